//! The embedded store: compare-and-swap, history, watches, expiry, and what survives kill -9.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{
    CommitError, Compare, EmbeddedOptions, EmbeddedStore, EventKind, Expect, ListRequest, Op, Store, StoreError, Txn,
    WatchItem,
};

fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&directory.join("store.redb"), EmbeddedOptions::default()).unwrap()
}

fn put(key: &str, value: &str, expect: Option<Expect>) -> Txn {
    Txn {
        compare: expect
            .map(|expect| Compare {
                key: key.into(),
                expect,
            })
            .into_iter()
            .collect(),
        ops: vec![Op::Put {
            key: key.into(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            ttl: None,
        }],
    }
}

fn delete(key: &str) -> Txn {
    Txn {
        compare: vec![],
        ops: vec![Op::Delete { key: key.into() }],
    }
}

fn under(prefix: &str, revision: Option<Revision>) -> ListRequest {
    ListRequest {
        prefix: prefix.into(),
        revision,
        ..ListRequest::default()
    }
}

#[tokio::test]
async fn a_failed_compare_changes_nothing_and_shows_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let first = store
        .commit(put("/a", "1", Some(Expect::Absent)))
        .await
        .unwrap()
        .revision;
    let Err(CommitError::Conflict { current, revision }) = store.commit(put("/a", "2", Some(Expect::Absent))).await
    else {
        panic!("the key exists")
    };
    assert_eq!(revision, first);
    assert_eq!(current[0].as_ref().unwrap().value, "1");
    let second = store
        .commit(put("/a", "2", Some(Expect::ModRevision(first))))
        .await
        .unwrap()
        .revision;
    assert_eq!(second, Revision(first.0 + 1));
    let kv = store.get("/a").await.unwrap().kv.unwrap();
    assert_eq!(
        (kv.create_revision, kv.mod_revision, &kv.value[..]),
        (first, second, &b"2"[..])
    );
}

#[tokio::test]
async fn the_past_can_be_listed_until_it_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for key in ["/p/a", "/p/b", "/q/c"] {
        store.commit(put(key, "1", None)).await.unwrap();
    }
    let then = store.revision().await.unwrap();
    store.commit(delete("/p/a")).await.unwrap();
    let now = store.commit(put("/p/b", "2", None)).await.unwrap().revision;
    let keys = |page: minato_storage::ListPage| {
        page.items
            .into_iter()
            .map(|kv| (kv.key, String::from_utf8(kv.value.to_vec()).unwrap()))
            .collect::<Vec<_>>()
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
    let future = store.list(under("/p/", Some(Revision(now.0 + 1)))).await.unwrap_err();
    assert!(matches!(future, StoreError::Future { .. }), "{future}");
    assert_eq!(
        keys(store.list(under("/p/", Some(now))).await.unwrap()),
        [text("/p/b", "2")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_every_event_of_concurrent_writers_once_and_in_order() {
    const WRITERS: usize = 8;
    const WRITES: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let start = store.revision().await.unwrap();
    let early = store.watch("/w/", start).await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..WRITES {
                    store
                        .commit(put(&format!("/w/{w}/{}", n % 5), &n.to_string(), None))
                        .await
                        .unwrap();
                    store.commit(put("/other", "x", None)).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let late = store.watch("/w/", start).await.unwrap();
    let mut histories = Vec::new();
    for mut watch in [early, late] {
        let mut seen = Vec::new();
        while seen.len() < WRITERS * WRITES {
            if let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
                seen.extend(
                    events
                        .into_iter()
                        .map(|e| (e.kv.mod_revision, e.kv.key, e.kv.value, e.previous)),
                );
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
