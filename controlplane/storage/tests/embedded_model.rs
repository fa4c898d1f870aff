//! The embedded store against a model that remembers everything: pages of the present and the past, replayed events,
//! compaction, and what it says of its changes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{
    EmbeddedOptions, EmbeddedStore, EventKind, ListPage, ListRequest, Op, Store, StoreError, Txn, WatchItem,
};
use proptest::prelude::*;

fn open(directory: &tempfile::TempDir) -> EmbeddedStore {
    EmbeddedStore::open(&directory.path().join("store.redb"), EmbeddedOptions::default()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

async fn commit(store: &EmbeddedStore, ops: Vec<Op>) -> Revision {
    store.commit(Txn { compare: vec![], ops }).await.unwrap().revision
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
    store: &EmbeddedStore,
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

async fn compare(store: &EmbeddedStore, history: &History, compacted: Revision) {
    for (revision, state) in history {
        for prefix in ["/r/", "/r/a/", "/"] {
            let below = state.iter().filter(|(k, _)| k.starts_with(prefix));
            let expected: Vec<_> = below.map(|(k, v)| (k.clone(), v.clone())).collect();
            if *revision < compacted {
                let request = ListRequest {
                    prefix: prefix.into(),
                    revision: Some(*revision),
                    ..ListRequest::default()
                };
                let error = store.list(request).await.unwrap_err();
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
            let mut watch = store.watch(prefix, *revision).await.unwrap();
            store.request_progress().await.unwrap();
            while let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
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
            let (_, newest) = history.last().unwrap();
            let below = newest.iter().filter(|(k, _)| k.starts_with(prefix));
            assert_eq!(replayed, below.map(|(k, v)| (k.clone(), v.clone())).collect());
        }
    }
}

async fn follow(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
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
                let revision = commit(&store, changes.iter().map(op).collect()).await;
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
    compare(&store, &history, compacted).await;
    let last = store.last_change("/r/a/").await.unwrap();
    assert_eq!(last.revision, history.last().unwrap().0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_the_model(steps in proptest::collection::vec(step(), 1..30)) {
        runtime().block_on(follow(steps));
    }
}

#[tokio::test]
async fn an_area_knows_its_last_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
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
    assert_eq!(change("/registry/c/").await.changed, opened);
    assert_eq!(change("/registry/").await.changed, b);
    assert_eq!(change("/registry/a/").await.revision, b);
    let c = commit(&store, vec![delete("/registry/a/n/x")]).await;
    assert_eq!(change("/registry/a/").await.changed, c);
    drop(store);
}

#[tokio::test]
async fn compaction_forgets_more_than_one_slice() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let many = |value: &str| (0..3000).map(|n| put(&format!("/r/{n}"), value)).collect::<Vec<_>>();
    let first = commit(&store, many("1")).await;
    commit(&store, many("2")).await;
    commit(&store, many("3")).await;
    let hot = (0..10).map(|n| commit(&store, vec![put("/r/hot", &n.to_string())]));
    let hot = futures::future::join_all(hot).await;
    let newest = *hot.iter().max().unwrap();
    store.compact(newest).await.unwrap();
    let past = ListRequest {
        prefix: "/r/".into(),
        revision: Some(first),
        ..ListRequest::default()
    };
    let error = store.list(past).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { compacted } if compacted == newest));
    assert_eq!(pages(&store, "/r/", newest, 1000).await.len(), 3001);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_does_not_wait_for_writes_and_comes_after_the_events() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/r/", start).await.unwrap();
    // More than a watch's queue holds: it has to read the history.
    for n in 0..600 {
        commit(&store, vec![put("/r/a", &n.to_string())]).await;
    }
    let newest = store.revision().await.unwrap();
    store.request_progress().await.unwrap();
    let mut seen = start;
    loop {
        let item = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        match item.expect("the watch stands still").unwrap().unwrap() {
            WatchItem::Events(events) => {
                for event in events {
                    assert_eq!(event.kv.mod_revision, Revision(seen.0 + 1));
                    seen = event.kv.mod_revision;
                }
            }
            WatchItem::Progress(revision) => {
                assert_eq!(revision, seen);
                if revision == newest {
                    break;
                }
            }
        }
    }
}
