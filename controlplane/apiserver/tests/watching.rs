//! Watches: where they begin, what they tell, how they end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{call, embedded, embedded_with, user};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use minato_apiserver::{ApiServer, Body};
use minato_codec::proto;
use minato_meta::Revision;
use minato_storage::Store;
use minato_storage::cache::CacheOptions;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const END: &str = "k8s.io/initial-events-end";

/// A watch being read.
struct Watch {
    body: Body,
    text: Vec<u8>,
}

async fn open(server: &Arc<ApiServer>, path: &str, accept: &str) -> (http::response::Parts, Body) {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
    response.into_parts()
}

async fn watch(server: &Arc<ApiServer>, path: &str) -> Watch {
    let (parts, body) = open(server, path, "application/json").await;
    assert_eq!(parts.status, StatusCode::OK, "{path}");
    assert_eq!(parts.headers["content-type"], "application/json");
    Watch { body, text: Vec::new() }
}

impl Watch {
    async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await;
            let frame = frame.expect("no event comes")?;
            self.text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// Type and name of the next event.
    async fn next(&mut self) -> (String, String) {
        let event = self.event().await.unwrap();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    async fn expect(&mut self, events: &[(&str, &str)]) {
        for (kind, name) in events {
            assert_eq!(self.next().await, ((*kind).to_owned(), (*name).to_owned()));
        }
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn create(server: &Arc<ApiServer>, name: &str, colour: &str) -> u64 {
    let map = json!({"metadata": {"name": name, "labels": {"colour": colour}}});
    let (code, made) = call(server, Method::POST, MAPS, map).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    revision(&made)
}

async fn paint(server: &Arc<ApiServer>, name: &str, colour: &str) -> u64 {
    let map = json!({"metadata": {"name": name, "labels": {"colour": colour}}});
    let (code, made) = call(server, Method::PUT, &format!("{MAPS}/{name}"), map).await;
    assert_eq!(code, StatusCode::OK, "{made}");
    revision(&made)
}

async fn delete(server: &Arc<ApiServer>, name: &str) {
    let (code, _) = call(server, Method::DELETE, &format!("{MAPS}/{name}"), Value::Null).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn where_a_watch_begins_is_the_clients_choice() {
    let (server, _store, _directory) = embedded();
    let first = create(&server, "a", "red").await;
    create(&server, "b", "red").await;
    for path in [
        format!("{MAPS}?watch=true"),
        format!("{MAPS}?watch=1&resourceVersion=0"),
    ] {
        watch(&server, &path)
            .await
            .expect(&[("ADDED", "a"), ("ADDED", "b")])
            .await;
    }
    let mut after = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={first}")).await;
    after.expect(&[("ADDED", "b")]).await;
    let none =
        format!("{MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    let mut none = watch(&server, &none).await;
    create(&server, "c", "red").await;
    delete(&server, "a").await;
    for open in [&mut after, &mut none] {
        open.expect(&[("ADDED", "c"), ("DELETED", "a")]).await;
    }
    let mut other = watch(&server, "/api/v1/namespaces/other/configmaps?watch=1").await;
    let mut old_path = watch(&server, "/api/v1/watch/namespaces/default/configmaps/c").await;
    old_path.expect(&[("ADDED", "c")]).await;
    let map = json!({"metadata": {"name": "far"}});
    call(&server, Method::POST, "/api/v1/namespaces/other/configmaps", map).await;
    other.expect(&[("ADDED", "far")]).await;
    delete(&server, "b").await;
    delete(&server, "c").await;
    old_path.expect(&[("DELETED", "c")]).await;
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark_at_its_revision() {
    let (server, store, _directory) = embedded();
    create(&server, "a", "red").await;
    create(&server, "b", "blue").await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut all = watch(&server, &format!("{MAPS}?{query}")).await;
    all.expect(&[("ADDED", "a"), ("ADDED", "b")]).await;
    let bookmark = all.event().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let object = &bookmark["object"];
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(object["metadata"]["annotations"][END], "true");
    assert_eq!(revision(object), store.revision().await.unwrap().0);
    let mut none = watch(&server, &format!("{MAPS}?{query}&labelSelector=colour%3Dgreen")).await;
    assert_eq!(none.next().await.0, "BOOKMARK");
    create(&server, "c", "green").await;
    none.expect(&[("ADDED", "c")]).await;
    all.expect(&[("ADDED", "c")]).await;

    let newest = store.revision().await.unwrap().0;
    let not_older = format!("{MAPS}?{query}&resourceVersion={newest}");
    watch(&server, &not_older)
        .await
        .expect(&[("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")])
        .await;
    let future = format!("{MAPS}?{query}&resourceVersion={}", newest + 1000);
    let (parts, _) = open(&server, &future, "application/json").await;
    assert_eq!(parts.status, StatusCode::GATEWAY_TIMEOUT);
    for bad in [
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
        "watch=1&resourceVersion=x",
    ] {
        let (parts, _) = open(&server, &format!("{MAPS}?{bad}"), "application/json").await;
        assert!(parts.status.is_client_error(), "{bad}");
    }
}

#[tokio::test]
async fn what_leaves_a_selection_is_deleted_and_what_enters_is_added() {
    let (server, _store, _directory) = embedded();
    create(&server, "a", "red").await;
    let red = format!("{MAPS}?watch=1&labelSelector=colour%3Dred");
    let mut red = watch(&server, &red).await;
    let mut named = watch(&server, &format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da")).await;
    red.expect(&[("ADDED", "a")]).await;
    named.expect(&[("ADDED", "a")]).await;
    let blue = paint(&server, "a", "blue").await;
    let left = red.event().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    // As it last was in the selection, at the revision at which it left.
    assert_eq!(left["object"]["metadata"]["labels"]["colour"], "red");
    assert_eq!(revision(&left["object"]), blue);
    paint(&server, "a", "green").await;
    create(&server, "b", "blue").await;
    paint(&server, "a", "red").await;
    red.expect(&[("ADDED", "a")]).await;
    named
        .expect(&[("MODIFIED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a")])
        .await;
    delete(&server, "b").await;
    delete(&server, "a").await;
    let gone = red.event().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["metadata"]["name"]),
        (&json!("DELETED"), &json!("a"))
    );
    named.expect(&[("DELETED", "a")]).await;
}

#[tokio::test]
async fn a_forgotten_revision_is_told_by_an_event() {
    let (server, store, _directory) = embedded_with(CacheOptions {
        history_events: 1,
        ..CacheOptions::default()
    });
    let first = create(&server, "a", "red").await;
    call(&server, Method::GET, MAPS, Value::Null).await;
    let mut last = first;
    for colour in ["blue", "green", "blue"] {
        last = paint(&server, "a", colour).await;
    }
    // The window of the cache is shorter than the memory of the store.
    let path = format!("{MAPS}?watch=1&resourceVersion={first}");
    watch(&server, &path).await.expect(&[("MODIFIED", "a"); 3]).await;
    store.compact(Revision(last)).await.unwrap();
    let mut refused = watch(&server, &path).await;
    let error = refused.event().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(error["object"]["reason"], "Expired");
    assert!(refused.event().await.is_none());
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_ended_and_others_are_not() {
    let (server, _store, _directory) = embedded_with(CacheOptions {
        history_events: 16,
        ..CacheOptions::default()
    });
    create(&server, "a", "red").await;
    let path = format!("{MAPS}?watch=1");
    let mut slow = watch(&server, &path).await;
    let mut quick = watch(&server, &path).await;
    slow.expect(&[("ADDED", "a")]).await;
    quick.expect(&[("ADDED", "a")]).await;
    for n in 0..40 {
        let painted = paint(&server, "a", &format!("c{n}")).await;
        assert_eq!(revision(&quick.event().await.unwrap()["object"]), painted);
    }
    let error = slow.event().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(slow.event().await.is_none());
    paint(&server, "a", "red").await;
    quick.expect(&[("MODIFIED", "a")]).await;
}

#[tokio::test]
async fn a_watch_ends_in_time_with_a_bookmark_of_where_the_store_is() {
    let (server, store, _directory) = embedded();
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true");
    let mut timed = watch(&server, &path).await;
    let map = json!({"metadata": {"name": "sa"}});
    call(&server, Method::POST, "/api/v1/namespaces/default/serviceaccounts", map).await;
    let newest = store.revision().await.unwrap().0;
    let bookmark = timed.event().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(revision(&bookmark["object"]), newest);
    assert!(timed.event().await.is_none());
    let mut endless = watch(&server, &format!("{MAPS}?watch=1")).await;
    server.stop();
    assert!(endless.event().await.is_none());
}

/// Takes the frames of a protobuf watch apart: event type and object.
fn frames(mut bytes: &[u8], schema: &minato_schema::Schema) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        // Field 1 is the type, field 2 a message whose field 1 is the object; all short enough for this reading.
        let kind_length = usize::from(message[1]);
        let kind = String::from_utf8(message[2..2 + kind_length].to_vec()).unwrap();
        let start = message.windows(4).position(|w| w == proto::MAGIC).unwrap();
        let envelope = proto::open(&message[start..]).unwrap();
        let object = proto::decode_protobuf(&envelope, schema, &minato_codec::Limits::default()).unwrap();
        found.push((kind, object));
    }
    found
}

#[tokio::test]
async fn lists_and_watches_speak_protobuf() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let (server, store, _directory) = embedded();
    let types = minato_schema::builtin();
    let schema = types.by_kind("", "v1", "ConfigMap").unwrap();
    let made = create(&server, "a", "red").await;
    create(&server, "b", "blue").await;

    let (parts, body) = open(&server, MAPS, &format!("{PROTOBUF},application/json")).await;
    assert_eq!(parts.headers["content-type"], PROTOBUF);
    let bytes = body.collect().await.unwrap().to_bytes();
    let list = types.by_kind("", "v1", "ConfigMapList").unwrap();
    let read = |bytes: &[u8]| {
        proto::decode_protobuf(&proto::open(bytes).unwrap(), list, &minato_codec::Limits::default()).unwrap()
    };
    let binary = read(&bytes);
    let (_, text) = call(&server, Method::GET, MAPS, Value::Null).await;
    assert_eq!(
        binary["metadata"]["resourceVersion"],
        text["metadata"]["resourceVersion"]
    );
    for (binary, text) in binary["items"]
        .as_array()
        .unwrap()
        .iter()
        .zip(text["items"].as_array().unwrap())
    {
        assert_eq!(binary["metadata"], text["metadata"]);
    }

    let path = format!(
        "{MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    );
    let (parts, body) = open(&server, &path, &format!("{PROTOBUF};stream=watch")).await;
    assert_eq!(
        parts.headers["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    paint(&server, "a", "green").await;
    let newest = store.revision().await.unwrap();
    let bytes = body.collect().await.unwrap().to_bytes();
    let seen = frames(&bytes, schema);
    let kinds: Vec<&str> = seen.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK", "MODIFIED", "BOOKMARK"]);
    assert_eq!(revision(&seen[0].1), made);
    assert_eq!(seen[0].1["kind"], "ConfigMap");
    assert_eq!(seen[2].1["metadata"]["annotations"][END], "true");
    assert_eq!(seen[3].1["metadata"]["labels"]["colour"], "green");
    assert_eq!(revision(&seen[4].1), newest.0);

    let (parts, _) = open(&server, MAPS, "text/html").await;
    assert_eq!(parts.status, StatusCode::NOT_ACCEPTABLE);
    // A kind without protobuf is served in the next encoding, or not at all.
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let (parts, _) = open(&server, widgets, &format!("{PROTOBUF},application/json")).await;
    assert_eq!(parts.headers["content-type"], "application/json");
    let (parts, _) = open(&server, widgets, PROTOBUF).await;
    assert_eq!(parts.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn other_versions_of_a_kind_are_listed_and_watched_as_such() {
    let (server, _store, _directory) = embedded();
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut newer_watch = watch(&server, &format!("{newer}?watch=1")).await;
    let mut core_watch = watch(&server, "/api/v1/namespaces/default/events?watch=1").await;
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod"}, "note": "hello", "reason": "Because",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reportingController": "c",
        "reportingInstance": "i",
    });
    let (code, made) = call(&server, Method::POST, newer, event).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let seen = newer_watch.event().await.unwrap();
    assert_eq!(
        (&seen["object"]["apiVersion"], &seen["object"]["note"]),
        (&json!("events.k8s.io/v1"), &json!("hello"))
    );
    let seen = core_watch.event().await.unwrap();
    assert_eq!(
        (&seen["object"]["apiVersion"], &seen["object"]["message"]),
        (&json!("v1"), &json!("hello"))
    );
    let (_, list) = call(&server, Method::GET, newer, Value::Null).await;
    assert_eq!(list["items"][0]["note"], "hello");
}

#[tokio::test]
async fn large_lists_are_compressed_for_those_who_ask() {
    let (server, _store, _directory) = embedded();
    for n in 0..3 {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"k": "x".repeat(60_000)}});
        call(&server, Method::POST, MAPS, map).await;
    }
    let get = |encoding: &'static str| {
        let request = Request::get(MAPS).header("accept-encoding", encoding);
        let service = server.service_as(user("admin"));
        async move {
            let request = request.body(Full::new(Bytes::new())).unwrap();
            let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
            (parts, body.collect().await.unwrap().to_bytes())
        }
    };
    let (plain, whole) = get("identity").await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let (packed, bytes) = get("deflate, gzip;q=0.5").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(bytes.len() < whole.len() / 10);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, whole);
    assert!(!get("gzip;q=0").await.0.headers.contains_key("content-encoding"));
    // Small ones are not worth it.
    call(&server, Method::DELETE, &format!("{MAPS}/m0"), Value::Null).await;
    assert!(!get("gzip").await.0.headers.contains_key("content-encoding"));
}

/// A client that lists in pages and watches from there ends up with what the store holds.
async fn follow(server: Arc<ApiServer>, page: usize) -> BTreeMap<String, u64> {
    let mut state = BTreeMap::new();
    let mut path = format!("{MAPS}?limit={page}");
    let start = loop {
        let (code, list) = call(&server, Method::GET, &path, Value::Null).await;
        assert_eq!(code, StatusCode::OK, "{list}");
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            assert!(
                state.insert(name.to_owned(), revision(item)).is_none(),
                "{name} is there twice"
            );
        }
        match list["metadata"]["continue"].as_str() {
            Some(token) => path = format!("{MAPS}?limit={page}&continue={token}"),
            None => break revision(&list),
        }
    };
    assert!(state.values().all(|revision| *revision <= start));
    let mut watch = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={start}")).await;
    let mut seen = start;
    while !state.contains_key("end") {
        let event = watch.event().await.unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        let at = revision(&event["object"]);
        assert!(at > seen);
        seen = at;
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(state.insert(name, at).is_none()),
            "MODIFIED" => assert!(state.insert(name, at).is_some()),
            "DELETED" => assert!(state.remove(&name).is_some()),
            other => panic!("{other}: {event}"),
        }
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_list_and_watch_reconstruct_the_store_under_concurrent_writes() {
    let (server, _store, _directory) = embedded();
    for n in 0..20 {
        create(&server, &format!("m{n}"), "red").await;
    }
    let writers: Vec<_> = (0..3u64)
        .map(|w| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut random = w + 1;
                for n in 0..60 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let name = format!("m{}", (random >> 33) % 30);
                    let map = json!({"metadata": {"name": name, "labels": {"colour": format!("c{w}-{n}")}}});
                    // Some fail, because the object is there already or is not.
                    match (random >> 50) % 3 {
                        0 => call(&server, Method::POST, MAPS, map).await,
                        1 => call(&server, Method::PUT, &format!("{MAPS}/{name}"), map).await,
                        _ => call(&server, Method::DELETE, &format!("{MAPS}/{name}"), Value::Null).await,
                    };
                }
            })
        })
        .collect();
    let followers: Vec<_> = [1, 3, 1000]
        .map(|page| tokio::spawn(follow(server.clone(), page)))
        .into();
    for writer in writers {
        writer.await.unwrap();
    }
    create(&server, "end", "black").await;
    let (_, list) = call(&server, Method::GET, MAPS, Value::Null).await;
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let expected: BTreeMap<String, u64> = items.iter().map(|item| (name(item), revision(item))).collect();
    for follower in followers {
        assert_eq!(follower.await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_lets_go_of_its_store() {
    use futures::StreamExt;
    use minato_api::k8s::core::v1::ConfigMap;
    use minato_api::kube::api::{Api, WatchParams};
    let (server, store, directory) = embedded();
    server.start().await;
    let weak = Arc::downgrade(&server);
    {
        let maps: Api<ConfigMap> = Api::namespaced(server.client_as(user("component")), "default");
        let events = maps.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = Box::pin(events);
        create(&server, "a", "red").await;
        events.next().await.unwrap().unwrap();
        server.stop();
        while events.next().await.is_some() {}
    }
    drop((server, store));
    let path = directory.path().join("store.redb");
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while minato_storage::EmbeddedStore::open(&path, Default::default()).is_err() {
        assert!(
            std::time::Instant::now() < deadline,
            "the store is held, server {}",
            weak.strong_count()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
