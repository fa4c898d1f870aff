//! The embedded store: what survives a restart and kill -9.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use common::{commit, put, under};
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{EmbeddedOptions, EmbeddedStore, EventKind, Op, Store, StoreError, Txn, WatchItem};

fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&directory.join("store.redb"), EmbeddedOptions::default()).unwrap()
}

#[tokio::test]
async fn a_key_with_a_time_to_live_ends_with_an_event_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let op = Op::Put {
        key: "/e".into(),
        value: Bytes::from_static(b"x"),
        ttl: Some(Duration::from_millis(100)),
    };
    let made = store
        .commit(Txn {
            compare: vec![],
            ops: vec![op],
        })
        .await
        .unwrap()
        .revision;
    drop(store);
    let store = reopen(directory.path()).await;
    let mut watch = store.watch("/e", made).await.unwrap();
    let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() else {
        panic!()
    };
    assert_eq!(events[0].kind, EventKind::Deleted);
    assert_eq!(events[0].previous.as_ref().unwrap().value, "x");
    assert_eq!(store.get("/e").await.unwrap().kv, None);
}

#[tokio::test]
async fn compaction_forgets_more_than_one_slice() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let many = |value: &str| (0..3000).map(|n| put(&format!("/r/{n}"), value)).collect::<Vec<_>>();
    let first = commit(&store, many("1")).await;
    commit(&store, many("2")).await;
    commit(&store, many("3")).await;
    let hot = (0..10).map(|n| commit(&store, vec![put("/r/hot", &n.to_string())]));
    let hot = futures::future::join_all(hot).await;
    let newest = *hot.iter().max().unwrap();
    store.compact(newest).await.unwrap();
    let error = store.list(under("/r/", Some(first))).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { compacted } if compacted == newest));
    assert_eq!(store.list(under("/r/", Some(newest))).await.unwrap().items.len(), 3001);
}

/// The file is released by the writer thread some time after the last handle is dropped.
async fn reopen(directory: &Path) -> EmbeddedStore {
    for _ in 0..500 {
        if let Ok(store) = EmbeddedStore::open(&directory.join("store.redb"), EmbeddedOptions::default()) {
            return store;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store stays locked")
}

/// Re-runs this test binary as a writer that prints each acknowledged write, and kills it.
#[test]
fn nothing_acknowledged_is_lost_to_kill_9() {
    const WRITER: &str = "MINATO_STORE_WRITER";
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if let Ok(directory) = std::env::var(WRITER) {
        runtime.block_on(write_forever(Path::new(&directory)));
        return;
    }
    let rounds: u64 = std::env::var("MINATO_KILL_ROUNDS")
        .ok()
        .map_or(25, |n| n.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut highest = Revision(0);
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "nothing_acknowledged_is_lost_to_kill_9", "--nocapture"])
            .env(WRITER, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(30 + (round * 37) % 170));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // The last line may be cut off by the kill.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines().filter_map(|l| l.strip_prefix("ack ")) {
            let (key, rest) = line.split_once(' ').unwrap();
            let (value, revision) = rest.split_once(' ').unwrap();
            acknowledged.insert(key.to_owned(), value.parse().unwrap());
            let revision = Revision(revision.parse().unwrap());
            highest = highest.max(revision);
        }
        runtime.block_on(async {
            let store = reopen(directory.path()).await;
            assert!(
                store.revision().await.unwrap() >= highest,
                "a revision would be given twice"
            );
            for (key, value) in &acknowledged {
                let read = |key: String| {
                    let store = &store;
                    async move {
                        let kv = store.get(&key).await.unwrap().kv.expect("an acknowledged key is there");
                        String::from_utf8(kv.value.to_vec()).unwrap().parse::<u64>().unwrap()
                    }
                };
                let stored = read(key.clone()).await;
                assert!(stored >= *value, "{key}: {value} was acknowledged, {stored} is there");
                assert_eq!(
                    read(key.replace("/left/", "/right/")).await,
                    stored,
                    "both halves of one transaction"
                );
            }
        });
    }
    assert!(!acknowledged.is_empty());
}

async fn write_forever(directory: &Path) {
    let store = reopen(directory).await;
    let writers: Vec<_> = (0..8)
        .map(|w| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = format!("/left/{w}");
                let kv = store.get(&key).await.unwrap().kv;
                let mut next = kv.map_or(0, |kv| String::from_utf8_lossy(&kv.value).parse::<u64>().unwrap() + 1);
                loop {
                    let value = Bytes::from(next.to_string());
                    let ops = [key.clone(), key.replace("/left/", "/right/")].map(|key| Op::Put {
                        key,
                        value: value.clone(),
                        ttl: None,
                    });
                    let done = store
                        .commit(Txn {
                            compare: vec![],
                            ops: ops.to_vec(),
                        })
                        .await
                        .unwrap();
                    println!("ack {key} {next} {}", done.revision);
                    next += 1;
                }
            })
        })
        .collect();
    futures::future::join_all(writers).await;
}
