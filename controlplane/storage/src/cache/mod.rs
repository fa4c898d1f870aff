//! The watch cache: what the API server reads, and what it watches, in memory.
//!
//! ```text
//! store ──one watch a resource──▶ Resource: objects (persistent map), history (ring of events)
//!                                    ├─ get, snapshot: consistent by Store::last_change
//!                                    └─ Watcher: a place in the history; reads it when it likes
//! ```
//!
//! Every state of an object is one [`Entry`], whose JSON is made once and shared by reference: by lists, events and every
//! watcher. A watcher holds no queue, only the number of its next event; one that is too slow finds its place forgotten,
//! and nobody else notices. A resource costs nothing until it is first read.

mod entry;
mod follow;
mod history;
mod resource;
mod snapshot;
mod watcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use minato_meta::{GroupResource, Revision};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

pub use entry::Entry;
pub use history::{CacheEvent, ChangeKind};
pub use resource::Resource;
pub use snapshot::Snapshot;
pub use watcher::{Lost, Watcher};

use crate::store::Store;

/// Bounds of what is remembered of each resource's past.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Most events.
    pub history_events: usize,
    /// Most bytes of their objects.
    pub history_bytes: usize,
    /// Events older than this are forgotten, within a minute.
    pub history_age: Duration,
    /// States of lists in pages that are kept for the next page. Others are made of the history, or read from the store.
    pub kept_snapshots: usize,
    /// How long a read waits for the cache to reach the store's revision, and for a resource to be filled.
    pub patience: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            history_events: 8192,
            history_bytes: 8 << 20,
            history_age: Duration::from_secs(300),
            kept_snapshots: 4,
            patience: Duration::from_secs(10),
        }
    }
}

/// Which state a read shows.
/// Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest, linearizable.
    Newest,
    /// Whatever is at hand.
    Any,
    /// At least this new.
    NotOlderThan(Revision),
    /// This one.
    Exact(Revision),
}

/// The caches of all resources of one store. Dropping it ends them.
pub struct WatchCache {
    store: Arc<dyn Store>,
    options: CacheOptions,
    resources: RwLock<HashMap<GroupResource, Arc<Resource>>>,
    stop: CancellationToken,
}

impl WatchCache {
    /// Caches over a store; nothing is read yet.
    pub fn new(store: Arc<dyn Store>, options: CacheOptions) -> Self {
        Self {
            store,
            options,
            resources: RwLock::default(),
            stop: CancellationToken::new(),
        }
    }

    /// The cache of a resource, by the name under which it is stored. It starts with its first read.
    pub fn resource(&self, name: &GroupResource) -> Arc<Resource> {
        if let Some(resource) = self.resources.read().get(name) {
            return resource.clone();
        }
        let mut resources = self.resources.write();
        let make = || Resource::new(name, self.store.clone(), self.options.clone(), self.stop.child_token());
        resources.entry(name.clone()).or_insert_with(make).clone()
    }

    /// The cache of a resource, if anybody has asked for it.
    pub fn known(&self, name: &GroupResource) -> Option<Arc<Resource>> {
        self.resources.read().get(name).cloned()
    }

    /// Drops the cache of a resource that is served no more; its watches end.
    pub fn forget(&self, name: &GroupResource) {
        if let Some(resource) = self.resources.write().remove(name) {
            resource.close();
        }
    }
}

impl WatchCache {
    /// Ends all caches and their watches: nothing reads the store on their behalf from here on.
    pub fn close(&self) {
        self.stop.cancel();
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        self.close();
    }
}
