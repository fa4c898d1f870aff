//! Random concurrent histories of every store, checked for linearizability and for complete watches; and stores that are
//! broken on purpose, which the check must find out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/history.rs"]
mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::{Backend, Embedded, InEtcd, commit, delete, put, under};
use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{
    Commit, CommitError, Event, ListPage, ListRequest, Read, Store, StoreError, Txn, WatchItem, WatchStream,
};

both!(histories_are_linearizable_and_watches_complete);

const CLIENTS: usize = 8;
const CALLS: usize = 120;

/// Which histories are drawn: another one each time, and the same again by its number.
fn seed() -> u64 {
    let seed = std::env::var("MINATO_HISTORY_SEED").ok().map(|n| n.parse().unwrap());
    let seed = seed.unwrap_or_else(rand::random);
    eprintln!("MINATO_HISTORY_SEED={seed}");
    seed
}

/// Runs clients on these handles of one store while watches look on.
async fn record<S: Store + Clone>(handles: &[S], seed: u64) -> (Revision, Vec<Event>, Vec<history::Call>) {
    let start = handles[0].revision().await.unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let live = handles[0].watch("/", start).await.unwrap();
    let clients = (0..CLIENTS).map(|n| {
        let store = handles[n % handles.len()].clone();
        tokio::spawn(history::client(store, Arc::clone(&clock), n, seed, CALLS))
    });
    let calls = futures::future::join_all(clients.collect::<Vec<_>>()).await;
    let calls: Vec<history::Call> = calls.into_iter().flat_map(Result::unwrap).collect();
    let end = handles[0].revision().await.unwrap();
    handles[0].request_progress().await.unwrap();
    let events = drain(live, end).await;
    // The same afterwards, of a part, from the middle, and by every handle.
    let middle = events
        .get(events.len() / 2)
        .map_or(start, |event| event.kv.mod_revision);
    for store in handles {
        for (prefix, after) in [("/", start), ("/r/", start), ("/s/", middle), ("/", middle)] {
            let seen = history::events(store, prefix, after, end).await;
            let expected = events
                .iter()
                .filter(|event| event.kv.key.starts_with(prefix) && event.kv.mod_revision > after);
            assert!(expected.eq(&seen), "{prefix} after {after}");
        }
    }
    (start, events, calls)
}

async fn drain(mut watch: WatchStream, upto: Revision) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Events(events) => all.extend(events),
            WatchItem::Progress(revision) if revision >= upto => return all,
            WatchItem::Progress(_) => {}
        }
    }
}

async fn histories_are_linearizable_and_watches_complete(mut backend: impl Backend) {
    for _ in 0..8 {
        let store = backend.open().await;
        let (start, events, calls) = record(&[store], seed()).await;
        history::check(start, &events, &calls).unwrap();
        assert!(events.len() > CALLS, "most of it was refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handles_of_one_etcd_are_one_store() {
    let backend = InEtcd::new();
    let (one, two) = (backend.at("/minato/c").await, backend.at("/minato/c").await);
    let (start, events, calls) = record(&[one, two], seed()).await;
    history::check(start, &events, &calls).unwrap();
}

/// etcd is killed and started again several times while clients go on: writes may be lost or not where nobody was told,
/// and no watch misses anything.
#[tokio::test(flavor = "multi_thread")]
async fn histories_hold_over_crashes_of_etcd() {
    let mut backend = InEtcd::new();
    let store = backend.open().await;
    let start = store.revision().await.unwrap();
    let watch = store.watch("/", start).await.unwrap();
    let (clock, seed) = (Arc::new(AtomicU64::new(0)), seed());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(history::client(store.clone(), Arc::clone(&clock), n, seed, 400)))
        .collect();
    for round in 1..=3u64 {
        while clock.load(Ordering::SeqCst) < round * 1_000 {
            tokio::task::yield_now().await;
        }
        backend.etcd.kill();
        backend.etcd.run();
    }
    let calls = futures::future::join_all(clients).await;
    let calls: Vec<history::Call> = calls.into_iter().flat_map(Result::unwrap).collect();
    let end = eventually(|| store.revision()).await;
    eventually(|| store.request_progress()).await;
    let events = drain(watch, end).await;
    history::check(start, &events, &calls).unwrap();
    assert!(events.len() > 200, "{}", events.len());
}

/// Until etcd is back.
async fn eventually<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match ask().await {
            Ok(value) => return value,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
    }
}

/// How a store may be broken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Every seventh write is acknowledged and not done.
    LosesWrites,
    /// Every seventh read shows the state of some revisions before, and says so.
    ReadsThePast,
    /// Every seventh read shows the state of some revisions before, and says that it is the newest.
    ReadsTheWrongState,
    /// Every seventh condition is not looked at.
    IgnoresConditions,
    /// Every seventh transaction is done in two steps.
    TearsTransactions,
    /// Watches leave every seventh item out.
    DropsEvents,
    /// Watches deliver every seventh item twice.
    RepeatsEvents,
}

#[derive(Clone)]
struct Broken<S> {
    store: S,
    fault: Fault,
    count: Arc<AtomicU64>,
}

impl<S> Broken<S> {
    fn is_due(&self, fault: Fault) -> bool {
        self.fault == fault && self.count.fetch_add(1, Ordering::SeqCst) % 7 == 6
    }
}

#[async_trait]
impl<S: Store + Clone> Store for Broken<S> {
    async fn get(&self, key: &str) -> Result<Read, StoreError> {
        let read = self.store.get(key).await?;
        let (past, wrong) = (self.is_due(Fault::ReadsThePast), self.is_due(Fault::ReadsTheWrongState));
        if !past && !wrong {
            return Ok(read);
        }
        let before = Revision(read.revision.0.saturating_sub(6).max(1));
        let page = self.store.list(under("/", Some(before))).await?;
        Ok(Read {
            kv: page.items.into_iter().find(|kv| kv.key == key),
            revision: if past { before } else { read.revision },
        })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.store.list(request).await
    }

    async fn commit(&self, mut txn: Txn) -> Result<Commit, CommitError> {
        if self.is_due(Fault::LosesWrites) {
            let revision = self.store.revision().await?;
            return Ok(Commit { revision });
        }
        if !txn.compare.is_empty() && self.is_due(Fault::IgnoresConditions) {
            txn.compare.clear();
        }
        if txn.ops.len() > 1 && self.is_due(Fault::TearsTransactions) {
            let rest = txn.ops.split_off(1);
            self.store.commit(txn).await?;
            txn = Txn {
                compare: vec![],
                ops: rest,
            };
        }
        self.store.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        let this = self.clone();
        let items = self.store.watch(prefix, after).await?.flat_map(move |item| {
            let events = matches!(item, Ok(WatchItem::Events(_)));
            let copies = match events {
                true if this.is_due(Fault::DropsEvents) => 0,
                true if this.is_due(Fault::RepeatsEvents) => 2,
                _ => 1,
            };
            futures::stream::iter(vec![item; copies])
        });
        Ok(Box::pin(items))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.store.request_progress().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_stores_are_found_out() {
    for fault in [
        Fault::LosesWrites,
        Fault::ReadsThePast,
        Fault::ReadsTheWrongState,
        Fault::IgnoresConditions,
        Fault::TearsTransactions,
        Fault::DropsEvents,
        Fault::RepeatsEvents,
    ] {
        let store = Broken {
            store: Embedded::new().open().await,
            fault,
            count: Arc::default(),
        };
        let start = store.revision().await.unwrap();
        let clock = Arc::new(AtomicU64::new(0));
        let watch = store.watch("/", start).await.unwrap();
        let clients =
            (0..CLIENTS).map(|n| tokio::spawn(history::client(store.clone(), Arc::clone(&clock), n, 1, CALLS)));
        let calls = futures::future::join_all(clients.collect::<Vec<_>>()).await;
        let calls: Vec<history::Call> = calls.into_iter().flat_map(Result::unwrap).collect();
        let end = store.revision().await.unwrap();
        store.request_progress().await.unwrap();
        let events = drain(watch, end).await;
        let found = history::check(start, &events, &calls);
        assert!(found.is_err(), "{fault:?} was not noticed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tenants_of_an_etcd_do_not_hold_up_reads() {
    let backend = InEtcd::new();
    let (ours, theirs) = (backend.at("/minato/ours").await, backend.at("/minato/theirs").await);
    let before = commit(&ours, vec![put("/registry/a/x", "1")]).await;
    let moved = commit(&theirs, vec![put("/registry/a/x", "2"), delete("/registry/a/y")]).await;
    assert!(moved > before);
    // It has to ask how far it is, as no event of its own will tell.
    let change = ours.last_change("/registry/a/").await.unwrap();
    assert_eq!(change.changed, before);
    assert!(change.revision >= moved && change.exact);
    assert_eq!(ours.get("/registry/a/x").await.unwrap().kv.unwrap().value, "1");
    assert_eq!(theirs.list(under("/", None)).await.unwrap().items.len(), 1);
}
