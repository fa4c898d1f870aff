//! What the API server asks of a database. The vocabulary is etcd's: revisions, compare-and-swap, watch, compaction.
//! Source: <https://etcd.io/docs/v3.5/learning/api/>.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use minato_meta::Revision;

/// A stored value with its history marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// Full key inside the tenant's prefix, such as `/registry/configmaps/default/a`.
    pub key: String,
    /// Bytes as they were put.
    pub value: Bytes,
    /// Revision that created the key.
    pub create_revision: Revision,
    /// Revision of the last put.
    pub mod_revision: Revision,
}

/// Result of a linearizable point read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The value, or `None` when the key does not exist.
    pub kv: Option<KeyValue>,
    /// Revision of the store at the time of the read.
    pub revision: Revision,
}

/// A range read over a prefix in key order.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only keys that start with this.
    pub prefix: String,
    /// Only keys strictly greater than this.
    pub start_after: Option<String>,
    /// At most this many; zero means all.
    pub limit: usize,
    /// Read as of this revision; `None` reads the newest, linearizable.
    pub revision: Option<Revision>,
}

/// One page of a range read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The pairs, in key order.
    pub items: Vec<KeyValue>,
    /// Whether keys of the prefix remain after the last item.
    pub more: bool,
    /// Keys of the prefix that remain after this page.
    pub remaining: u64,
    /// The revision that this page shows.
    pub revision: Revision,
}

/// What a key must look like for a transaction to go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists and its last put was at this revision.
    ModRevision(Revision),
}

/// One condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key looked at.
    pub key: String,
    /// What is expected of it.
    pub expect: Expect,
}

/// One effect of a transaction. A key may appear in one op only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value. With `ttl` the key is deleted (with a watch event) some time after that long, unless put again.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// Time to live; `None` keeps the key until it is deleted.
        ttl: Option<Duration>,
    },
    /// Deletes a key; deleting an absent key is no error and makes no event.
    Delete {
        /// The key.
        key: String,
    },
}

/// Several conditions and effects that happen at one revision, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold.
    pub compare: Vec<Compare>,
    /// Applied in order when they do.
    pub ops: Vec<Op>,
}

/// A transaction that went through, durably: it survives kill -9 and power loss from the moment this is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The revision of all its effects.
    pub revision: Revision,
}

/// Why a transaction did not go through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// A condition did not hold; nothing was changed. `current` has the present value of every compared key, in order,
    /// so that the caller can retry without another read.
    #[error("a compared key is not as expected")]
    Conflict {
        /// Present values of the compared keys.
        current: Vec<Option<KeyValue>>,
        /// Revision at which they were seen.
        revision: Revision,
    },
    /// The store failed. After [`StoreError::Unknown`] the effects may or may not have happened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Failures of a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The revision asked for is compacted; `compacted` is the oldest that can be asked for, less one.
    #[error("revision is compacted (history starts after {compacted})")]
    Compacted {
        /// The compaction revision.
        compacted: Revision,
    },
    /// The revision asked for is in the future.
    #[error("revision is in the future (the store is at {current})")]
    Future {
        /// The present revision.
        current: Revision,
    },
    /// The store cannot be reached or is not ready; nothing was done, a retry may help.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The outcome of a write is not known (connection lost, deadline passed).
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The store refuses writes for lack of space.
    #[error("store is out of space: {0}")]
    NoSpace(String),
    /// The request is larger than the store takes.
    #[error("request is too large: {0}")]
    TooLarge(String),
    /// The stored data cannot be read.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key did not exist before.
    Created,
    /// The key existed before.
    Updated,
    /// The key is gone. `kv` holds the key, an empty value, no creation, and the delete's revision as `mod_revision`.
    Deleted,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key's state after the change.
    pub kv: KeyValue,
    /// The key's state before it; `None` when created, or when compaction has taken it.
    pub previous: Option<KeyValue>,
}

/// What a watch delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchItem {
    /// All events of one or more whole revisions, in revision order; never splits a revision.
    Events(Vec<Event>),
    /// All events up to and including this revision were delivered.
    Progress(Revision),
}

/// When the keys of a prefix last changed, as far as the store can tell cheaply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastChange {
    /// No key of the prefix was changed after this revision. A bound: the last change may be older.
    pub changed: Revision,
    /// The present revision; never less than `changed`.
    pub revision: Revision,
    /// Whether watches of the prefix come to `changed` by themselves, or have to be asked for progress.
    pub exact: bool,
}

/// A running watch. It ends after an `Err`; dropping it cancels the watch.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchItem, StoreError>> + Send>>;

/// A linearizable, durable, watchable map from key to bytes with one growing revision.
///
/// Implementations pass the same model-based suite (`storage/tests`). All methods may be called concurrently.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Linearizable point read.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] and [`StoreError::Corrupt`].
    async fn get(&self, key: &str) -> Result<Read, StoreError>;

    /// Range read, of the newest state or as of a revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] and [`StoreError::Future`] for a revision outside the history.
    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError>;

    /// Compare-and-swap over several keys; returns when the effects are durable.
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a condition did not hold.
    async fn commit(&self, txn: Txn) -> Result<Commit, CommitError>;

    /// Delivers every event of the prefix with a revision greater than `after`, in order, without gap or duplicate,
    /// and [`WatchItem::Progress`] from time to time and after each [`Store::request_progress`].
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when the history no longer reaches back to `after` (here, or as the stream's last item).
    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError>;

    /// The present revision, linearizable: at least that of every commit acknowledged before the call.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// When the prefix last changed; linearizable as [`Store::revision`] is. Whoever has followed a watch of the prefix
    /// up to `changed` has the state of the prefix at `revision`: this is what makes consistent reads from a cache cheap.
    ///
    /// A store that does not know answers with the present revision for both, as this default does; a cache then asks for
    /// progress and waits for it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    async fn last_change(&self, _prefix: &str) -> Result<LastChange, StoreError> {
        let revision = self.revision().await?;
        Ok(LastChange {
            changed: revision,
            revision,
            exact: false,
        })
    }

    /// Asks every running watch of this handle for a [`WatchItem::Progress`] at the present revision. Must be cheap
    /// enough for one call per read, and must not wait for writes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    async fn request_progress(&self) -> Result<(), StoreError>;

    /// Forgets the history up to and including `revision`; newest values stay.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when already compacted beyond, [`StoreError::Future`].
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;
}
