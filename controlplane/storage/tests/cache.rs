//! The watch cache over the embedded store: reads that see what was written, watches that lose nothing, bounds that hold.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minato_meta::{GroupResource, Revision};
use minato_storage::cache::{CacheOptions, ChangeKind, Lost, ReadAt, Resource, WatchCache, Watcher};
use minato_storage::{EmbeddedOptions, EmbeddedStore, Op, Store, StoreError, Txn};

struct Fixture {
    store: EmbeddedStore,
    cache: WatchCache,
    _directory: tempfile::TempDir,
}

fn fixture(options: CacheOptions) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = EmbeddedStore::open(&path, EmbeddedOptions::default()).unwrap();
    Fixture {
        cache: WatchCache::new(Arc::new(store.clone()), options),
        store,
        _directory: directory,
    }
}

fn maps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

async fn put(store: &EmbeddedStore, key: &str, text: &str) -> Revision {
    let name = key.rsplit('/').next().unwrap();
    let value = format!(r#"{{"kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"t":"{text}"}}}}"#);
    let op = Op::Put {
        key: format!("/registry/configmaps/{key}"),
        value: value.into(),
        ttl: None,
    };
    commit(store, op).await
}

async fn delete(store: &EmbeddedStore, key: &str) -> Revision {
    let key = format!("/registry/configmaps/{key}");
    commit(store, Op::Delete { key }).await
}

async fn commit(store: &EmbeddedStore, op: Op) -> Revision {
    let txn = Txn {
        compare: vec![],
        ops: vec![op],
    };
    store.commit(txn).await.unwrap().revision
}

async fn elsewhere(store: &EmbeddedStore) -> Revision {
    let op = Op::Put {
        key: "/registry/secrets/a/b".into(),
        value: Bytes::from_static(b"{}"),
        ttl: None,
    };
    commit(store, op).await
}

/// The next events, at least one.
async fn next(watcher: &mut Watcher) -> Vec<(ChangeKind, String, u64)> {
    loop {
        let events = watcher.ready(1000).unwrap();
        if !events.is_empty() {
            let event = |e: &Arc<minato_storage::cache::CacheEvent>| (e.kind, e.object.key().to_string(), e.revision.0);
            return events.iter().map(event).collect();
        }
        let more = tokio::time::timeout(Duration::from_secs(5), watcher.changed()).await;
        more.expect("no event comes");
    }
}

async fn keys(resource: &Arc<Resource>, at: ReadAt) -> Vec<String> {
    let snapshot = resource.snapshot(at).await.unwrap();
    snapshot.range("", "").map(|e| e.key().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_see_every_acknowledged_write_and_the_stores_revision() {
    let f = fixture(CacheOptions::default());
    let resource = f.cache.resource(&maps());
    for n in 0..200 {
        let written = put(&f.store, &format!("ns/m{n}"), "x").await;
        let newest = elsewhere(&f.store).await;
        let entry = resource
            .get(&format!("ns/m{n}"), ReadAt::Newest)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(entry.revision(), written);
        let snapshot = resource.snapshot(ReadAt::Newest).await.unwrap();
        assert_eq!((snapshot.len(), snapshot.revision()), (n + 1, newest));
        let json: serde_json::Value = serde_json::from_slice(entry.json()).unwrap();
        assert_eq!(json["metadata"]["resourceVersion"], written.to_string());
    }
    let gone = delete(&f.store, "ns/m7").await;
    assert!(
        resource
            .get("ns/m7", ReadAt::NotOlderThan(gone))
            .await
            .unwrap()
            .is_none()
    );
    let future = resource.snapshot(ReadAt::NotOlderThan(Revision(gone.0 + 1))).await;
    assert!(matches!(future.err(), Some(StoreError::Future { current }) if current == gone));
    let range: Vec<_> = resource
        .snapshot(ReadAt::Any)
        .await
        .unwrap()
        .range("ns/", "m98")
        .map(|e| e.name().to_owned())
        .collect();
    assert_eq!(range, ["m98", "m99"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_comes_from_the_window_or_from_the_store() {
    for history_events in [1, 1000] {
        let f = fixture(CacheOptions {
            history_events,
            ..CacheOptions::default()
        });
        let resource = f.cache.resource(&maps());
        assert!(keys(&resource, ReadAt::Newest).await.is_empty());
        let mut states = Vec::new();
        let mut state = BTreeMap::new();
        for n in 0..20 {
            let key = format!("ns/m{}", n % 7);
            let revision = if n % 3 == 2 {
                state.remove(&key);
                delete(&f.store, &key).await
            } else {
                let revision = put(&f.store, &key, &n.to_string()).await;
                state.insert(key, revision);
                revision
            };
            states.push((revision, state.clone()));
        }
        for (revision, state) in &states {
            let snapshot = resource.snapshot(ReadAt::Exact(*revision)).await.unwrap();
            assert_eq!(snapshot.revision(), *revision);
            let found: BTreeMap<_, _> = snapshot
                .range("", "")
                .map(|e| (e.key().to_string(), e.revision()))
                .collect();
            assert_eq!(found, *state, "at {revision} with {history_events}");
        }
        let (kept, _) = &states[3];
        resource.keep(&resource.snapshot(ReadAt::Exact(*kept)).await.unwrap());
        f.store.compact(states[19].0).await.unwrap();
        assert!(resource.snapshot(ReadAt::Exact(*kept)).await.is_ok());
        let other = resource.snapshot(ReadAt::Exact(states[4].0)).await;
        assert_eq!(other.is_ok(), history_events == 1000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_begins_after_its_revision_also_before_the_cache_did() {
    use ChangeKind::{Added, Deleted, Modified};
    let f = fixture(CacheOptions::default());
    let start = f.store.revision().await.unwrap();
    let a = put(&f.store, "ns/a", "1").await.0;
    let b = put(&f.store, "ns/b", "1").await.0;
    let c = put(&f.store, "ns/a", "2").await.0;
    // The cache starts here; what was before is the store's to tell.
    let resource = f.cache.resource(&maps());
    let mut early = resource.watch(start).await.unwrap();
    let mut late = resource.watch(Revision(b)).await.unwrap();
    let d = delete(&f.store, "ns/a").await.0;
    let key = |k: &str| format!("ns/{k}");
    let mut seen = next(&mut early).await;
    if seen.len() == 3 {
        seen.extend(next(&mut early).await);
    }
    let all = [
        (Added, key("a"), a),
        (Added, key("b"), b),
        (Modified, key("a"), c),
        (Deleted, key("a"), d),
    ];
    assert_eq!(seen, all);
    let mut seen = next(&mut late).await;
    if seen.len() == 1 {
        seen.extend(next(&mut late).await);
    }
    assert_eq!(seen, all[2..]);
    let (snapshot, mut watcher) = resource.snapshot_and_watch(ReadAt::Newest).await.unwrap();
    assert_eq!((snapshot.len(), snapshot.revision().0), (1, d));
    let e = put(&f.store, "ns/c", "1").await.0;
    assert_eq!(next(&mut watcher).await, [(Added, key("c"), e)]);
    // A bookmark tells of the whole store.
    let newest = elsewhere(&f.store).await;
    assert_eq!(watcher.progress().await, Some(newest));
    f.store.compact(newest).await.unwrap();
    let forgotten = resource.watch(start).await;
    assert!(matches!(forgotten.err(), Some(StoreError::Compacted { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_is_cut_off_and_nobody_else_notices() {
    let f = fixture(CacheOptions {
        history_events: 10,
        ..CacheOptions::default()
    });
    let resource = f.cache.resource(&maps());
    let (_, mut slow) = resource.snapshot_and_watch(ReadAt::Newest).await.unwrap();
    let (_, mut quick) = resource.snapshot_and_watch(ReadAt::Newest).await.unwrap();
    for n in 0..50 {
        let revision = put(&f.store, "ns/a", &n.to_string()).await.0;
        assert_eq!(next(&mut quick).await.last().unwrap().2, revision);
    }
    assert_eq!(slow.ready(100).unwrap_err(), Lost);
    assert_eq!(slow.ready(100).unwrap_err(), Lost);
    assert_eq!(slow.progress().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_cache_lets_go_of_its_watchers() {
    let f = fixture(CacheOptions::default());
    let resource = f.cache.resource(&maps());
    let (_, mut watcher) = resource.snapshot_and_watch(ReadAt::Newest).await.unwrap();
    f.cache.forget(&maps());
    while !watcher.is_over() {
        tokio::time::timeout(Duration::from_secs(5), watcher.changed())
            .await
            .unwrap();
    }
    assert!(f.cache.known(&maps()).is_none());
    assert!(keys(&f.cache.resource(&maps()), ReadAt::Newest).await.is_empty());
}

/// Followers who list and then watch must end up with what the store holds, whatever happened in between.
#[tokio::test(flavor = "multi_thread")]
async fn followers_reconstruct_the_store_under_concurrent_writes() {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 250;
    let f = fixture(CacheOptions {
        history_events: 300,
        ..CacheOptions::default()
    });
    let resource = f.cache.resource(&maps());
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let store = f.store.clone();
            tokio::spawn(async move {
                let mut random = w * 7919 + 1;
                for n in 0..WRITES {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = format!("ns{}/m{}", (random >> 33) % 3, (random >> 40) % 20);
                    match (random >> 50) % 4 {
                        0 => drop(delete(&store, &key).await),
                        1 => drop(elsewhere(&store).await),
                        _ => drop(put(&store, &key, &format!("{w}-{n}")).await),
                    }
                }
            })
        })
        .collect();
    let followers: Vec<_> = (0..6)
        .map(|_| {
            let resource = resource.clone();
            let store = f.store.clone();
            tokio::spawn(async move { follow(&resource, &store, WRITERS * WRITES).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let end = elsewhere(&f.store).await;
    let page = f
        .store
        .list(minato_storage::ListRequest {
            prefix: "/registry/configmaps/".into(),
            ..Default::default()
        })
        .await
        .unwrap();
    let expected: BTreeMap<String, u64> = page
        .items
        .iter()
        .map(|kv| (kv.key["/registry/configmaps/".len()..].to_owned(), kv.mod_revision.0))
        .collect();
    commit(
        &f.store,
        Op::Put {
            key: "/registry/configmaps/end".into(),
            value: "{\"metadata\":{}}".into(),
            ttl: None,
        },
    )
    .await;
    for follower in followers {
        let (mut state, listed) = follower.await.unwrap();
        state.remove("end");
        assert_eq!(state, expected);
        assert!(listed <= end.0);
    }
}

async fn follow(resource: &Arc<Resource>, store: &EmbeddedStore, _writes: u64) -> (BTreeMap<String, u64>, u64) {
    'list: loop {
        let (snapshot, mut watcher) = resource.snapshot_and_watch(ReadAt::Newest).await.unwrap();
        let listed = snapshot.revision().0;
        // What the cache lists is what the store lists at that revision.
        let request = minato_storage::ListRequest {
            prefix: "/registry/configmaps/".into(),
            revision: Some(snapshot.revision()),
            ..Default::default()
        };
        let page = store.list(request).await.unwrap();
        let stored: Vec<_> = page
            .items
            .iter()
            .map(|kv| (kv.key["/registry/configmaps/".len()..].to_owned(), kv.mod_revision.0))
            .collect();
        let mut state: BTreeMap<_, _> = snapshot
            .range("", "")
            .map(|e| (e.key().to_string(), e.revision().0))
            .collect();
        assert_eq!(state.iter().map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>(), stored);
        let mut seen = listed;
        loop {
            let Ok(events) = watcher.ready(7) else { continue 'list };
            if events.is_empty() {
                watcher.changed().await;
            }
            for event in events {
                assert!(event.revision.0 > seen, "in order, and nothing twice");
                seen = event.revision.0;
                let key = event.object.key().to_string();
                let before = match event.kind {
                    ChangeKind::Deleted => state.remove(&key),
                    _ => state.insert(key.clone(), event.revision.0),
                };
                assert_eq!(before.is_some(), event.kind != ChangeKind::Added, "{key}");
                assert_eq!(event.object.revision(), event.revision);
                if key == "end" {
                    return (state, listed);
                }
            }
        }
    }
}
