//! The embedded store at its edges: a store that is never idle, impossible revisions, stale deadlines, closing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{EmbeddedOptions, EmbeddedStore, ListRequest, Op, Store, StoreError, Txn, WatchItem};

fn put(key: &str, ttl: Option<Duration>) -> Txn {
    Txn {
        compare: vec![],
        ops: vec![Op::Put {
            key: key.into(),
            value: Bytes::from_static(b"x"),
            ttl,
        }],
    }
}

fn open(directory: &tempfile::TempDir, keep_history: Duration) -> EmbeddedStore {
    let options = EmbeddedOptions {
        keep_history,
        ..EmbeddedOptions::default()
    };
    EmbeddedStore::open(&directory.path().join("store.redb"), options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_end_and_history_is_compacted_while_writes_keep_coming() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_secs(1));
    let first = store
        .commit(put("/short", Some(Duration::from_millis(200))))
        .await
        .unwrap()
        .revision;
    let (mut ended, mut compacted) = (false, false);
    let deadline = Instant::now() + Duration::from_secs(8);
    while !(ended && compacted) && Instant::now() < deadline {
        // Ten writes a second, as the heartbeats of a few nodes make.
        store.commit(put("/busy", None)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        ended |= store.get("/short").await.unwrap().kv.is_none();
        let past = ListRequest {
            prefix: "/".into(),
            revision: Some(first),
            ..ListRequest::default()
        };
        compacted |= matches!(store.list(past).await, Err(StoreError::Compacted { .. }));
    }
    assert!(ended, "the key outlived its time");
    assert!(compacted, "the history was never compacted");
}

#[tokio::test]
async fn a_watch_after_the_last_possible_revision_replays_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_secs(300));
    store.commit(put("/a", None)).await.unwrap();
    let mut watch = store.watch("/", Revision(u64::MAX)).await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    assert!(next.is_err(), "{next:?}");
}

#[tokio::test]
async fn deadlines_of_deleted_and_renewed_keys_do_not_hold_up_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_secs(300));
    let soon = Some(Duration::from_millis(50));
    let keys = |prefix: &str| (0..700).map(|n| format!("/{prefix}/{n}")).collect::<Vec<_>>();
    let put_all = |keys: Vec<String>, ttl| Txn {
        compare: vec![],
        ops: keys.into_iter().flat_map(|key| put(&key, ttl).ops).collect(),
    };
    store.commit(put_all(keys("deleted"), soon)).await.unwrap();
    let ops = keys("deleted").into_iter().map(|key| Op::Delete { key }).collect();
    store.commit(Txn { compare: vec![], ops }).await.unwrap();
    store.commit(put_all(keys("renewed"), soon)).await.unwrap();
    store.commit(put_all(keys("renewed"), None)).await.unwrap();
    let last = store.commit(put("/z", soon)).await.unwrap().revision;
    let mut watch = store.watch("/", last).await.unwrap();
    let item = tokio::time::timeout(Duration::from_secs(8), watch.next()).await;
    let WatchItem::Events(events) = item.expect("the key outlived its time").unwrap().unwrap() else {
        panic!("an event comes first")
    };
    let ended: Vec<_> = events.iter().map(|e| e.kv.key.as_str()).collect();
    assert_eq!(ended, ["/z"]);
    let renewed = ListRequest {
        prefix: "/renewed/".into(),
        ..ListRequest::default()
    };
    assert_eq!(store.list(renewed).await.unwrap().items.len(), 700);
}

#[tokio::test]
async fn a_file_is_open_once_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let _store = open(&directory, Duration::from_secs(300));
    let again = EmbeddedStore::open(&directory.path().join("store.redb"), EmbeddedOptions::default());
    assert!(matches!(again.err(), Some(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_watch_ends_when_its_store_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Duration::from_secs(300));
    let mut watch = store.watch("/", store.revision().await.unwrap()).await.unwrap();
    drop(store);
    let end = tokio::time::timeout(Duration::from_secs(5), watch.next()).await;
    assert!(matches!(end, Ok(Some(Err(StoreError::Unavailable(_))))), "{end:?}");
}
