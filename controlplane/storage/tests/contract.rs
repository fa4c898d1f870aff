//! What every store keeps to: compare-and-swap, history, watches, expiry; and a model that remembers everything: pages of
//! the present and the past, replayed events, compaction, and what a store says of its changes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{Backend, commit, delete, put, put_if, under};
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{CommitError, EventKind, Expect, ListPage, ListRequest, Op, Store, StoreError, WatchItem};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

both!(
    a_failed_compare_changes_nothing_and_shows_what_is_there,
    the_past_can_be_listed_until_it_is_compacted,
    watchers_see_every_event_of_concurrent_writers_once_and_in_order,
    a_key_with_a_time_to_live_ends_with_an_event,
    the_store_is_the_model,
    an_area_knows_its_last_change,
    progress_does_not_wait_for_writes_and_comes_after_the_events,
);

async fn a_failed_compare_changes_nothing_and_shows_what_is_there(mut backend: impl Backend) {
    let store = backend.open().await;
    let first = store.commit(put_if("/a", "1", Expect::Absent)).await.unwrap().revision;
    let conflict = store.commit(put_if("/a", "2", Expect::Absent)).await;
    let Err(CommitError::Conflict { current, revision }) = conflict else {
        panic!("the key exists")
    };
    assert_eq!(revision, first);
    assert_eq!(current[0].as_ref().unwrap().value, "1");
    let second = store.commit(put_if("/a", "2", Expect::ModRevision(first))).await;
    let second = second.unwrap().revision;
    assert!(second > first);
    let kv = store.get("/a").await.unwrap().kv.unwrap();
    assert_eq!(
        (kv.create_revision, kv.mod_revision, &kv.value[..]),
        (first, second, &b"2"[..])
    );
}

async fn the_past_can_be_listed_until_it_is_compacted(mut backend: impl Backend) {
    let store = backend.open().await;
    for key in ["/p/a", "/p/b", "/q/c"] {
        commit(&store, vec![put(key, "1")]).await;
    }
    let then = store.revision().await.unwrap();
    commit(&store, vec![delete("/p/a")]).await;
    let now = commit(&store, vec![put("/p/b", "2")]).await;
    let keys = |page: ListPage| {
        let text = |kv: minato_storage::KeyValue| (kv.key, String::from_utf8(kv.value.to_vec()).unwrap());
        page.items.into_iter().map(text).collect::<Vec<_>>()
    };
    let text = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    let past = store.list(under("/p/", Some(then))).await.unwrap();
    assert_eq!(keys(past), [text("/p/a", "1"), text("/p/b", "1")]);
    assert_eq!(keys(store.list(under("/p/", None)).await.unwrap()), [text("/p/b", "2")]);
    let mut page = under("/", Some(then));
    (page.limit, page.start_after) = (1, Some("/p/a".into()));
    let page = store.list(page).await.unwrap();
    assert!(page.more && page.remaining == 1 && page.items[0].key == "/p/b");
    store.compact(now).await.unwrap();
    let error = store.list(under("/p/", Some(then))).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Compacted { compacted } if compacted == now),
        "{error}"
    );
    assert!(matches!(
        store.watch("/p/", then).await.err(),
        Some(StoreError::Compacted { .. })
    ));
    let future = store.list(under("/p/", Some(Revision(now.0 + 100)))).await.unwrap_err();
    assert!(matches!(future, StoreError::Future { .. }), "{future}");
    assert_eq!(
        keys(store.list(under("/p/", Some(now))).await.unwrap()),
        [text("/p/b", "2")]
    );
}

async fn watchers_see_every_event_of_concurrent_writers_once_and_in_order(mut backend: impl Backend) {
    const WRITERS: usize = 8;
    const WRITES: usize = 50;
    let store = backend.open().await;
    let start = store.revision().await.unwrap();
    let early = store.watch("/w/", start).await.unwrap();
    let write = |w: usize| {
        let store = store.clone();
        async move {
            for n in 0..WRITES {
                commit(&store, vec![put(&format!("/w/{w}/{}", n % 5), &n.to_string())]).await;
                commit(&store, vec![put("/other", "x")]).await;
            }
        }
    };
    futures::future::join_all((0..WRITERS).map(|w| tokio::spawn(write(w)))).await;
    let late = store.watch("/w/", start).await.unwrap();
    let mut histories = Vec::new();
    for mut watch in [early, late] {
        let mut seen = Vec::new();
        while seen.len() < WRITERS * WRITES {
            if let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
                let marks = |e: minato_storage::Event| (e.kv.mod_revision, e.kv.key, e.kv.value, e.previous);
                seen.extend(events.into_iter().map(marks));
            }
        }
        assert!(
            seen.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "one key a revision, in order"
        );
        histories.push(seen);
    }
    assert_eq!(histories[0], histories[1]);
}

async fn a_key_with_a_time_to_live_ends_with_an_event(mut backend: impl Backend) {
    let store = backend.open().await;
    let op = Op::Put {
        key: "/e".into(),
        value: Bytes::from_static(b"x"),
        ttl: Some(Duration::from_millis(100)),
    };
    let kept = [op.clone(), put("/kept", "x")];
    let made = commit(&store, kept.into()).await;
    let mut watch = store.watch("/e", made).await.unwrap();
    let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() else {
        panic!("progress that nobody asked for")
    };
    assert_eq!(events[0].kind, EventKind::Deleted);
    assert_eq!(events[0].previous.as_ref().unwrap().value, "x");
    assert_eq!(store.get("/e").await.unwrap().kv, None);
    assert!(store.get("/kept").await.unwrap().kv.is_some());
}

/// Keys that sort in ways that invite mistakes, one with a NUL.
const KEYS: &[&str] = &["/r/a/", "/r/a/b", "/r/a/b\0", "/r/a/b\0c", "/r/a/c/d", "/r/ab", "/s/a"];

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<(usize, Option<u8>)>),
    Compact(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..KEYS.len(), proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        8 => proptest::collection::vec(change, 1..4).prop_map(Step::Write),
        1 => any::<u8>().prop_map(Step::Compact),
    ]
}

/// State after each revision.
type History = Vec<(Revision, BTreeMap<String, (Revision, Revision, String)>)>;

fn pairs(page: &ListPage) -> Vec<(String, (Revision, Revision, String))> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let pair = |kv: &minato_storage::KeyValue| (kv.key.clone(), (kv.create_revision, kv.mod_revision, text(&kv.value)));
    page.items.iter().map(pair).collect()
}

async fn pages(
    store: &impl Store,
    prefix: &str,
    revision: Revision,
    limit: usize,
) -> Vec<(String, (Revision, Revision, String))> {
    let mut all: Vec<(String, (Revision, Revision, String))> = Vec::new();
    loop {
        let request = ListRequest {
            prefix: prefix.to_owned(),
            start_after: all.last().map(|(key, _)| key.clone()),
            limit,
            revision: Some(revision),
        };
        let page = store.list(request).await.unwrap();
        assert_eq!(page.revision, revision);
        let (found, more, remaining) = (pairs(&page), page.more, page.remaining);
        assert!(found.len() <= limit);
        all.extend(found);
        if !more {
            assert_eq!(remaining, 0);
            return all;
        }
        assert!(remaining > 0);
    }
}

async fn compare_at(store: &impl Store, history: &History, at: usize, compacted: Revision) {
    let (revision, state) = &history[at];
    for prefix in ["/r/", "/r/a/", "/"] {
        let below = state.iter().filter(|(k, _)| k.starts_with(prefix));
        let expected: Vec<_> = below.map(|(k, v)| (k.clone(), v.clone())).collect();
        if *revision < compacted {
            let error = store.list(under(prefix, Some(*revision))).await.unwrap_err();
            assert!(matches!(error, StoreError::Compacted { compacted: c } if c == compacted));
            continue;
        }
        for limit in [1, 2, 100] {
            assert_eq!(
                pages(store, prefix, *revision, limit).await,
                expected,
                "{prefix} {revision}"
            );
        }
        // The events from here on lead from this state to the newest.
        let mut replayed = state.clone();
        replayed.retain(|k, _| k.starts_with(prefix));
        let watch = store.watch(prefix, *revision).await;
        let mut watch = watch.unwrap_or_else(|error| panic!("{revision} {compacted}: {error}"));
        store.request_progress().await.unwrap();
        let (newest, last) = history.last().unwrap();
        loop {
            let events = match watch.next().await.unwrap().unwrap() {
                WatchItem::Progress(revision) if revision >= *newest => break,
                WatchItem::Progress(_) => continue,
                WatchItem::Events(events) => events,
            };
            for event in events {
                let text = String::from_utf8(event.kv.value.to_vec()).unwrap();
                let value = (event.kv.create_revision, event.kv.mod_revision, text);
                let before = match event.kind {
                    EventKind::Deleted => replayed.remove(&event.kv.key),
                    _ => replayed.insert(event.kv.key.clone(), value),
                };
                assert_eq!(before.is_none(), event.kind == EventKind::Created);
            }
        }
        let below = last.iter().filter(|(k, _)| k.starts_with(prefix));
        assert_eq!(replayed, below.map(|(k, v)| (k.clone(), v.clone())).collect());
    }
}

async fn follow(store: &impl Store, steps: Vec<Step>) {
    let mut state = BTreeMap::new();
    let mut history: History = vec![(store.revision().await.unwrap(), state.clone())];
    let mut compacted = Revision(0);
    for step in steps {
        match step {
            Step::Write(changes) => {
                let mut changes: BTreeMap<usize, Option<u8>> = changes.into_iter().collect();
                changes.retain(|key, value| value.is_some() || state.contains_key(KEYS[*key]));
                let op = |(key, value): (&usize, &Option<u8>)| match value {
                    Some(value) => put(KEYS[*key], &value.to_string()),
                    None => delete(KEYS[*key]),
                };
                let revision = commit(store, changes.iter().map(op).collect()).await;
                for (key, value) in changes {
                    let key = KEYS[key].to_owned();
                    let created = state.get(&key).map_or(revision, |(created, ..)| *created);
                    match value {
                        Some(value) => drop(state.insert(key, (created, revision, value.to_string()))),
                        None => drop(state.remove(&key)),
                    }
                }
                if history.last().unwrap().0 < revision {
                    history.push((revision, state.clone()));
                }
            }
            Step::Compact(at) => {
                let (revision, _) = history[usize::from(at) % history.len()];
                match store.compact(revision).await {
                    Ok(()) => {
                        assert!(revision > compacted);
                        compacted = revision;
                    }
                    Err(StoreError::Compacted { compacted: c }) => assert!(revision <= c && c == compacted),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    let all = (0..history.len()).map(|at| compare_at(store, &history, at, compacted));
    futures::future::join_all(all).await;
    let last = store.last_change("/r/a/").await.unwrap();
    assert!(last.revision >= history.last().unwrap().0);
}

async fn the_store_is_the_model(mut backend: impl Backend) {
    // By hand instead of by the macro, as one etcd serves all cases; what fails is printed, and its seed is kept by no file.
    let mut runner = TestRunner::default();
    for _ in 0..24 {
        let steps = proptest::collection::vec(step(), 1..30).new_tree(&mut runner).unwrap();
        let steps = steps.current();
        eprintln!("{steps:?}");
        follow(&backend.open().await, steps).await;
    }
}

async fn an_area_knows_its_last_change(mut backend: impl Backend) {
    let store = backend.open().await;
    let opened = store.revision().await.unwrap();
    let a = commit(&store, vec![put("/registry/a/n/x", "1")]).await;
    let b = commit(&store, vec![put("/registry/b/x", "1")]).await;
    let change = |prefix: &'static str| {
        let store = store.clone();
        async move { store.last_change(prefix).await.unwrap() }
    };
    assert_eq!(change("/registry/a/").await.changed, a);
    assert_eq!(change("/registry/a/n/").await.changed, a);
    assert_eq!(change("/registry/b/").await.changed, b);
    assert!(change("/registry/c/").await.changed <= opened);
    assert!(change("/registry/").await.changed >= b);
    assert!(change("/registry/a/").await.revision >= b);
    let c = commit(&store, vec![delete("/registry/a/n/x")]).await;
    assert_eq!(change("/registry/a/").await.changed, c);
    drop(store);
}

async fn progress_does_not_wait_for_writes_and_comes_after_the_events(mut backend: impl Backend) {
    let store = backend.open().await;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/r/", start).await.unwrap();
    // More than a watch's queue holds: it has to read the history.
    for n in 0..600 {
        commit(&store, vec![put("/r/a", &n.to_string())]).await;
    }
    let newest = store.revision().await.unwrap();
    store.request_progress().await.unwrap();
    let (mut seen, mut count) = (start, 0);
    loop {
        let item = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        match item.expect("the watch stands still").unwrap().unwrap() {
            WatchItem::Events(events) => {
                for event in events {
                    assert_eq!(event.kv.value, count.to_string());
                    assert!(event.kv.mod_revision > seen);
                    seen = event.kv.mod_revision;
                    count += 1;
                }
            }
            WatchItem::Progress(revision) => {
                assert!(revision >= seen);
                if revision >= newest {
                    assert_eq!(count, 600);
                    break;
                }
            }
        }
    }
}
