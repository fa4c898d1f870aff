//! Lists: pages, continue tokens, revisions, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{call, embedded};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use minato_meta::{ContinueToken, Revision};
use minato_storage::Store;
use minato_storage::cache::CacheOptions;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALL: &str = "/api/v1/configmaps";

async fn create(server: &Arc<ApiServer>, namespace: &str, name: &str, parity: &str) -> u64 {
    let map = json!({"metadata": {"name": name, "labels": {"parity": parity}}, "data": {"n": name}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let (code, made) = call(server, Method::POST, &path, map).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    revision(&made)
}

/// Ten maps in `default`, even and odd, and one in each of two neighbours that sort before and after.
async fn ten(server: &Arc<ApiServer>) -> u64 {
    for n in 0..10 {
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        create(server, "default", &format!("m{n}"), parity).await;
    }
    create(server, "defaul", "before", "even").await;
    create(server, "default2", "after", "even").await
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

async fn get(server: &Arc<ApiServer>, path: &str) -> (StatusCode, Value) {
    call(server, Method::GET, path, Value::Null).await
}

async fn list(server: &Arc<ApiServer>, path: &str) -> Value {
    let (code, list) = get(server, path).await;
    assert_eq!(code, StatusCode::OK, "{path}: {list}");
    list
}

#[tokio::test]
async fn pages_add_up_and_count_what_remains() {
    let (server, _store, _directory) = embedded();
    let newest = ten(&server).await;
    let first = list(&server, &format!("{MAPS}?limit=4")).await;
    assert_eq!(names(&first), ["m0", "m1", "m2", "m3"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 6);
    assert_eq!(revision(&first), newest);
    assert_eq!(
        (&first["kind"], &first["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = list(&server, &format!("{MAPS}?limit=4&continue={token}")).await;
    assert_eq!(names(&second), ["m4", "m5", "m6", "m7"]);
    assert_eq!(second["metadata"]["remainingItemCount"], 2);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = list(&server, &format!("{MAPS}?limit=4&continue={token}")).await;
    assert_eq!(names(&third), ["m8", "m9"]);
    assert!(third["metadata"].get("continue").is_none());
    assert!(third["metadata"].get("remainingItemCount").is_none());
    // A page that just fits is the last.
    let whole = list(&server, &format!("{MAPS}?limit=10")).await;
    assert_eq!(names(&whole).len(), 10);
    assert!(whole["metadata"].get("continue").is_none());
    // Over all namespaces, in the order of keys.
    let all = list(&server, &format!("{ALL}?limit=11")).await;
    assert_eq!(
        (names(&all)[0], names(&all)[1], names(&all)[10]),
        ("before", "m0", "m9")
    );
    let token = all["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        names(&list(&server, &format!("{ALL}?continue={token}")).await),
        ["after"]
    );
}

#[tokio::test]
async fn pages_of_a_selection_do_not_count_what_remains() {
    let (server, _store, _directory) = embedded();
    ten(&server).await;
    let odd = format!("{MAPS}?labelSelector=parity%3Dodd");
    let first = list(&server, &format!("{odd}&limit=3")).await;
    assert_eq!(names(&first), ["m1", "m3", "m5"]);
    assert!(first["metadata"].get("remainingItemCount").is_none());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = list(&server, &format!("{odd}&limit=3&continue={token}")).await;
    assert_eq!(names(&second), ["m7", "m9"]);
    assert!(second["metadata"].get("continue").is_none());
    let one = list(&server, &format!("{ALL}?fieldSelector=metadata.name%3Dm3&limit=1")).await;
    assert_eq!(names(&one), ["m3"]);
    let none = list(
        &server,
        &format!("{MAPS}?fieldSelector=metadata.name%21%3Dm3,metadata.namespace%3Dx"),
    )
    .await;
    assert!(names(&none).is_empty());
}

#[tokio::test]
async fn a_list_stays_as_it_was_while_others_write() {
    let (server, _store, _directory) = embedded();
    ten(&server).await;
    let first = list(&server, &format!("{MAPS}?limit=2")).await;
    let at = revision(&first);
    for n in 0..10 {
        if n % 3 == 0 {
            call(&server, Method::DELETE, &format!("{MAPS}/m{n}"), Value::Null).await;
        } else {
            let changed = json!({"metadata": {"name": format!("m{n}")}, "data": {"n": "changed"}});
            call(&server, Method::PUT, &format!("{MAPS}/m{n}"), changed).await;
        }
        create(&server, "default", &format!("m{n}x"), "new").await;
    }
    let mut token = first["metadata"]["continue"].as_str().map(str::to_owned);
    let mut seen: Vec<String> = names(&first).into_iter().map(str::to_owned).collect();
    while let Some(t) = token {
        let page = list(&server, &format!("{MAPS}?limit=3&continue={t}")).await;
        assert_eq!(revision(&page), at);
        for item in page["items"].as_array().unwrap() {
            assert_eq!(item["data"]["n"], item["metadata"]["name"], "not the state of then");
            assert!(revision(item) <= at);
        }
        seen.extend(names(&page).into_iter().map(str::to_owned));
        token = page["metadata"]["continue"].as_str().map(str::to_owned);
    }
    assert_eq!(seen, (0..10).map(|n| format!("m{n}")).collect::<Vec<_>>());
    let exact = list(
        &server,
        &format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact"),
    )
    .await;
    assert_eq!((names(&exact).len(), revision(&exact)), (10, at));
    // A limit without a match asks for that revision too.
    let legacy = list(&server, &format!("{MAPS}?resourceVersion={at}&limit=1")).await;
    assert_eq!((names(&legacy), revision(&legacy)), (vec!["m0"], at));
    assert_eq!(legacy["items"][0]["data"]["n"], "m0");
    // Without a limit it is a lower bound.
    let newer = list(&server, &format!("{MAPS}?resourceVersion={at}")).await;
    assert!(revision(&newer) > at);
    let newest: BTreeSet<String> = names(&newer).into_iter().map(str::to_owned).collect();
    assert!(newest.contains("m1x") && !newest.contains("m3"), "{newest:?}");
}

#[tokio::test]
async fn an_expired_token_comes_with_one_to_go_on_with() {
    let (server, store, _directory) = common::embedded_with(CacheOptions {
        history_events: 1,
        kept_snapshots: 0,
        ..CacheOptions::default()
    });
    ten(&server).await;
    let first = list(&server, &format!("{MAPS}?limit=4")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let newest = create(&server, "default", "m5x", "new").await;
    call(&server, Method::DELETE, &format!("{MAPS}/m6"), Value::Null).await;
    store.compact(Revision(newest)).await.unwrap();
    let (code, status) = get(&server, &format!("{MAPS}?limit=4&continue={token}")).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::GONE, &json!("Expired")),
        "{status}"
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = list(&server, &format!("{MAPS}?limit=4&continue={token}")).await;
    assert_eq!(names(&rest), ["m4", "m5", "m5x", "m7"]);
    // From here on it is consistent again.
    let decoded = ContinueToken::decode(rest["metadata"]["continue"].as_str().unwrap()).unwrap();
    assert_eq!(decoded.revision, Some(Revision(revision(&rest))));
    let exact = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", revision(&first));
    let (code, status) = get(&server, &exact).await;
    assert_eq!((code, &status["reason"]), (StatusCode::GONE, &json!("Expired")));
    assert!(status["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn a_revision_of_the_future_is_a_timeout_with_a_cause() {
    let (server, _store, _directory) = embedded();
    let newest = ten(&server).await;
    for query in [
        "",
        "&resourceVersionMatch=NotOlderThan",
        "&resourceVersionMatch=Exact",
        "&limit=1",
    ] {
        let path = format!("{MAPS}?resourceVersion={}{query}", newest + 1000);
        let (code, status) = get(&server, &path).await;
        assert_eq!(code, StatusCode::GATEWAY_TIMEOUT, "{query}");
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }
    let (code, status) = get(&server, &format!("{MAPS}/m0?resourceVersion={}", newest + 1000)).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::GATEWAY_TIMEOUT, &json!("Timeout"))
    );
    let (code, _) = get(&server, &format!("{MAPS}/m0?resourceVersion=x")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let (code, _) = get(&server, &format!("{MAPS}/m0?resourceVersion={newest}")).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn nonsense_is_refused() {
    let (server, _store, _directory) = embedded();
    ten(&server).await;
    for (query, code) in [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=x", 400),
        ("limit=x", 400),
        ("continue=x", 400),
        ("labelSelector=%3D%3D", 400),
        ("fieldSelector=spec.x%3Dy", 400),
    ] {
        let (got, status) = get(&server, &format!("{MAPS}?{query}")).await;
        assert_eq!(got.as_u16(), code, "{query}: {status}");
        assert_eq!(status["kind"], "Status");
    }
    // A token may not lead to what its bearer was not let in for.
    let start = "../../secrets/default/\0".to_owned();
    let hostile = ContinueToken { revision: None, start }.encode();
    let (code, _) = get(&server, &format!("{MAPS}?continue={hostile}")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let start = "\u{10ffff}".to_owned();
    let beyond = ContinueToken { revision: None, start }.encode();
    assert!(names(&list(&server, &format!("{MAPS}?continue={beyond}")).await).is_empty());
}

#[tokio::test]
async fn what_was_written_is_read() {
    let (server, store, _directory) = embedded();
    for n in 0..50 {
        let name = format!("m{n}");
        let made = create(&server, "default", &name, "even").await;
        let (code, read) = get(&server, &format!("{MAPS}/{name}")).await;
        assert_eq!((code, revision(&read)), (StatusCode::OK, made));
        let all = list(&server, MAPS).await;
        assert_eq!(names(&all).len(), n + 1);
        assert!(revision(&all) >= made);
    }
    assert_eq!(store.revision().await.unwrap().0, revision(&list(&server, MAPS).await));
    call(&server, Method::DELETE, &format!("{MAPS}/m7"), Value::Null).await;
    let (code, _) = get(&server, &format!("{MAPS}/m7")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(names(&list(&server, MAPS).await).len(), 49);
}
