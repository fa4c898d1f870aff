//! The cache of one resource: its state, and the reads of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use minato_meta::{CachedObject, Change, GroupResource, Revision};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::history::{CacheEvent, ChangeKind, History, Objects, undo};
use super::snapshot::Snapshot;
use super::watcher::Watcher;
use super::{CacheOptions, ReadAt};
use crate::key::resource_prefix;
use crate::store::{Event, EventKind, ListRequest, Store, StoreError, WatchItem};

/// How long one request for progress may take before another is made.
const PROGRESS_RETRY: Duration = Duration::from_millis(100);
/// Most events that a watch from before the window is given from the store; beyond, listing is cheaper.
const LONGEST_BACKLOG: usize = 10_000;

pub(super) struct State {
    pub(super) objects: Objects,
    /// The objects show this revision.
    pub(super) revision: Revision,
    pub(super) history: History,
}

/// See the module documentation.
pub struct Resource {
    pub(super) name: GroupResource,
    pub(super) prefix: String,
    pub(super) store: Arc<dyn Store>,
    pub(super) options: CacheOptions,
    pub(super) state: RwLock<State>,
    /// The objects are known to show this revision too: nothing of the resource changed up to it.
    proven: AtomicU64,
    /// States that pages of lists go on with.
    kept: Mutex<VecDeque<(Instant, Snapshot)>>,
    /// [`State::revision`], once the resource is filled.
    pub(super) reached: watch::Sender<Option<Revision>>,
    /// Number of the next event.
    pub(super) appended: watch::Sender<u64>,
    started: AtomicBool,
    /// Why it is not filled, when it is not.
    pub(super) failure: Mutex<Option<StoreError>>,
    pub(super) stop: CancellationToken,
}

fn closed() -> StoreError {
    StoreError::Unavailable("the cache is closed".to_owned())
}

impl Resource {
    pub(super) fn new(
        name: &GroupResource,
        store: Arc<dyn Store>,
        options: CacheOptions,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.clone(),
            prefix: resource_prefix(name),
            store,
            options,
            state: RwLock::new(State {
                objects: Objects::new(),
                revision: Revision(0),
                history: History::new(0, Revision(0)),
            }),
            proven: AtomicU64::new(0),
            kept: Mutex::default(),
            reached: watch::Sender::new(None),
            appended: watch::Sender::new(0),
            started: AtomicBool::new(false),
            failure: Mutex::new(None),
            stop,
        })
    }

    pub(super) fn close(&self) {
        self.stop.cancel();
    }

    /// Whether the cache has ended.
    pub fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn start(self: &Arc<Self>) {
        if !self.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(super::follow::run(self.clone()));
        }
    }

    /// Waits until the resource has been read from the store once; starts that when nobody has yet.
    ///
    /// # Errors
    /// The store's, when it does not answer for as long as the options say.
    pub async fn filled(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.reached.borrow().is_some() {
            return Ok(());
        }
        self.start();
        let mut reached = self.reached.subscribe();
        let filled = async {
            tokio::select! {
                _ = reached.wait_for(Option::is_some) => Ok(()),
                () = self.stop.cancelled() => Err(closed()),
            }
        };
        timeout(self.options.patience, filled).await.unwrap_or_else(|_| {
            let failure = self.failure.lock().clone();
            Err(failure.unwrap_or_else(|| StoreError::Unavailable(format!("the cache of {} is not filled", self.name))))
        })
    }

    /// Brings the cache to the store's present revision, and returns that.
    ///
    /// # Errors
    /// The store's.
    pub async fn fresh(self: &Arc<Self>) -> Result<Revision, StoreError> {
        self.filled().await?;
        let last = self.store.last_change(&self.prefix).await?;
        if *self.reached.borrow() < Some(last.changed) {
            self.reach(last.changed, last.exact).await?;
        }
        // From now on the objects include everything up to `changed`, and up to `revision` there is nothing more.
        self.proven.fetch_max(last.revision.0, Ordering::AcqRel);
        Ok(last.revision)
    }

    async fn reach(&self, revision: Revision, by_itself: bool) -> Result<(), StoreError> {
        let mut reached = self.reached.subscribe();
        let reach = async {
            let mut ask = !by_itself;
            loop {
                if ask {
                    self.store.request_progress().await?;
                }
                ask = true;
                let wait = reached.wait_for(|r| *r >= Some(revision));
                tokio::select! {
                    result = timeout(PROGRESS_RETRY, wait) => if result.is_ok() {
                        return Ok(());
                    },
                    () = self.stop.cancelled() => return Err(closed()),
                }
            }
        };
        timeout(self.options.patience, reach).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!(
                "the cache of {} did not reach revision {revision}",
                self.name
            )))
        })
    }

    /// Waits until the present state is one that a reader wants.
    async fn await_state(self: &Arc<Self>, at: ReadAt) -> Result<(), StoreError> {
        self.filled().await?;
        match at {
            ReadAt::Any => {}
            ReadAt::Newest => drop(self.fresh().await?),
            ReadAt::NotOlderThan(wanted) | ReadAt::Exact(wanted) => {
                if self.proven().max(self.revision()) < wanted {
                    let current = self.fresh().await?;
                    if current < wanted {
                        return Err(StoreError::Future { current });
                    }
                }
            }
        }
        Ok(())
    }

    fn proven(&self) -> Revision {
        Revision(self.proven.load(Ordering::Acquire))
    }

    /// The present state, and the number of the event that will be the next.
    fn present(&self) -> (Snapshot, u64) {
        // Before the state is looked at, which then includes all that was proven.
        let proven = self.proven();
        let state = self.state.read();
        let snapshot = Snapshot {
            objects: state.objects.clone(),
            revision: state.revision.max(proven),
        };
        (snapshot, state.history.next())
    }

    /// One object, by its key below the resource, and the revision of the read.
    ///
    /// # Errors
    /// [`StoreError::Future`], [`StoreError::Compacted`], and the store's.
    pub async fn get(self: &Arc<Self>, key: &str, at: ReadAt) -> Result<Option<Arc<Entry>>, StoreError> {
        if let ReadAt::Exact(_) = at {
            return Ok(self.snapshot(at).await?.get(key).cloned());
        }
        self.await_state(at).await?;
        Ok(self.state.read().objects.get(key).cloned())
    }

    /// A consistent state.
    ///
    /// # Errors
    /// [`StoreError::Future`] for a revision that the store has not reached, [`StoreError::Compacted`] for an exact one
    /// that neither the cache nor the store remembers, and the store's.
    pub async fn snapshot(self: &Arc<Self>, at: ReadAt) -> Result<Snapshot, StoreError> {
        self.await_state(at).await?;
        match at {
            ReadAt::Exact(revision) => self.past(revision).await,
            _ => Ok(self.present().0),
        }
    }

    async fn past(&self, revision: Revision) -> Result<Snapshot, StoreError> {
        if let Some((_, kept)) = self.kept.lock().iter().find(|(_, s)| s.revision == revision) {
            return Ok(kept.clone());
        }
        let known = {
            let state = self.state.read();
            let events = state.history.since(revision);
            events.map(|events| (state.objects.clone(), events.cloned().collect::<Vec<_>>()))
        };
        if let Some((objects, events)) = known {
            return Ok(Snapshot {
                objects: undo(objects, &events),
                revision,
            });
        }
        let request = ListRequest {
            prefix: self.prefix.clone(),
            revision: Some(revision),
            ..ListRequest::default()
        };
        let page = self.store.list(request).await?;
        let entries = page.items.iter().filter_map(|kv| Entry::from_store(&self.prefix, kv));
        Ok(Snapshot {
            objects: entries.map(|entry| (entry.key().clone(), entry)).collect(),
            revision: page.revision,
        })
    }

    /// Keeps a state for the pages of a list that follow; of the latest few of these.
    pub fn keep(&self, snapshot: &Snapshot) {
        let mut kept = self.kept.lock();
        kept.retain(|(_, s)| s.revision != snapshot.revision);
        kept.push_back((Instant::now(), snapshot.clone()));
        while kept.len() > self.options.kept_snapshots {
            kept.pop_front();
        }
    }

    pub(super) fn age(&self) {
        let now = Instant::now();
        let young = |at: &Instant| now.saturating_duration_since(*at) < self.options.history_age;
        self.kept.lock().retain(|(at, _)| young(at));
        self.state.write().history.age(now, &self.options);
    }

    /// A consistent state and the watch of everything after it.
    ///
    /// # Errors
    /// As [`Resource::snapshot`].
    pub async fn snapshot_and_watch(self: &Arc<Self>, at: ReadAt) -> Result<(Snapshot, Watcher), StoreError> {
        self.await_state(at).await?;
        let (snapshot, next) = self.present();
        let watcher = self.watcher(VecDeque::new(), next, snapshot.revision);
        Ok((snapshot, watcher))
    }

    /// The watch of everything after a revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when that is forgotten, and the store's.
    pub async fn watch(self: &Arc<Self>, after: Revision) -> Result<Watcher, StoreError> {
        self.filled().await?;
        let position = self.state.read().history.position(after);
        if let Some(next) = position {
            return Ok(self.watcher(VecDeque::new(), next, after));
        }
        let (backlog, reached) = self.backlog(after).await?;
        let state = self.state.read();
        let next = state.history.position(reached).ok_or(StoreError::Compacted {
            compacted: state.history.forgotten(),
        })?;
        Ok(self.watcher(backlog, next, reached))
    }

    fn watcher(self: &Arc<Self>, backlog: VecDeque<Arc<CacheEvent>>, next: u64, after: Revision) -> Watcher {
        Watcher::new(self.clone(), backlog, next, after, self.appended.subscribe())
    }

    /// What the store remembers from a revision on, and up to which one: for clients that watched before the cache did,
    /// as all do when the server was restarted.
    async fn backlog(&self, after: Revision) -> Result<(VecDeque<Arc<CacheEvent>>, Revision), StoreError> {
        let mut stream = self.store.watch(&self.prefix, after).await?;
        self.store.request_progress().await?;
        let mut backlog = VecDeque::new();
        let collect = async {
            loop {
                let events = match stream.next().await.ok_or_else(closed)?? {
                    WatchItem::Progress(reached) => return Ok(reached),
                    WatchItem::Events(events) => events,
                };
                for event in &events {
                    let event = self.event(event).ok_or(StoreError::Compacted { compacted: after })?;
                    backlog.push_back(Arc::new(event));
                }
                if backlog.len() > LONGEST_BACKLOG {
                    return Err(StoreError::Compacted { compacted: after });
                }
            }
        };
        let reached = timeout(self.options.patience, collect)
            .await
            .map_err(|_| StoreError::Unavailable("the store makes no progress".to_owned()))??;
        Ok((backlog, reached))
    }

    /// An event of the store by itself; `None` when the store has lost the state before.
    fn event(&self, event: &Event) -> Option<CacheEvent> {
        let previous = event.previous.as_ref().map(|kv| Entry::from_store(&self.prefix, kv));
        let previous = previous.flatten();
        if event.kind == EventKind::Deleted {
            return Some(CacheEvent::delete(previous?, event.kv.mod_revision));
        }
        let object = Entry::from_store(&self.prefix, &event.kv)?;
        if (event.kind == EventKind::Updated) != previous.is_some() {
            return None;
        }
        Some(CacheEvent::put(object, previous))
    }

    pub(super) fn read(&self, from: u64, most: usize) -> Option<Vec<Arc<CacheEvent>>> {
        self.state.read().history.read(from, most)
    }

    pub(super) fn is_caught_up(&self, next: u64) -> bool {
        self.state.read().history.next() == next
    }
}

/// Reads that do not wait, for those inside the server who decide by what is at hand.
impl Resource {
    /// One object as it is at the moment.
    pub fn peek(&self, key: &str) -> Option<Arc<Entry>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The state at the moment.
    pub fn at_hand(&self) -> Snapshot {
        self.present().0
    }

    /// Revision of the last event, or of the filling; zero when it is not filled.
    pub fn revision(&self) -> Revision {
        self.reached.borrow().unwrap_or_default()
    }

    /// What changed after a revision, and the revision reached; `None` when that is forgotten.
    pub fn changes_since(&self, since: Revision) -> Option<(Vec<Change>, Revision)> {
        let state = self.state.read();
        let change = |event: &Arc<CacheEvent>| {
            let object = CachedObject {
                revision: event.revision,
                json: event.object.json().clone(),
            };
            match event.kind {
                ChangeKind::Deleted => Change::Deleted(object),
                ChangeKind::Added | ChangeKind::Modified => Change::Applied(object),
            }
        };
        let changes = state.history.since(since)?.map(change).collect();
        Some((changes, state.revision))
    }
}
