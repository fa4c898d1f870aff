//! The embedded back end: one redb file, a writer thread with group commit, history for reads and watches of the past.
//!
//! Every write goes through one thread that takes all that is queued, applies it in order inside one database
//! transaction, makes it durable with one fsync, and only then acknowledges. Readers use the database's own snapshots.

mod tables;
mod watch;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use async_trait::async_trait;
use minato_meta::Revision;
use redb::{Database, ReadableDatabase};
use tokio::sync::{broadcast, oneshot};

use crate::store::{Commit, CommitError, ListPage, ListRequest, Read, Store, StoreError, Txn, WatchItem, WatchStream};
use tables::Snapshot;
use writer::Command;

/// Settings of an embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Bytes of the database's page cache.
    pub cache_bytes: usize,
    /// History older than this is compacted away by itself.
    pub keep_history: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 4 << 20,
            keep_history: Duration::from_secs(300),
        }
    }
}

pub(crate) struct Shared {
    database: Database,
    published: broadcast::Sender<WatchItem>,
}

/// A store in one file. Clones share it; the file is closed with the last one.
#[derive(Clone)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    commands: SyncSender<Command>,
}

pub(crate) fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

impl EmbeddedStore {
    /// Opens the file, making it when it is not there. A file that is open already is refused.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file cannot be opened or is in use, [`StoreError::Corrupt`] when it is not
    /// such a file.
    pub fn open(path: &Path, options: EmbeddedOptions) -> Result<Self, StoreError> {
        let database = Database::builder()
            .set_cache_size(options.cache_bytes)
            .create(path)
            .map_err(|e| StoreError::Unavailable(format!("{}: {e}", path.display())))?;
        tables::create(&database)?;
        let shared = Arc::new(Shared {
            database,
            published: broadcast::Sender::new(1024),
        });
        let commands = writer::start(Arc::downgrade(&shared), options.keep_history)?;
        Ok(Self { shared, commands })
    }

    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Snapshot::new(self.shared.database.begin_read().map_err(corrupt)?)
    }

    async fn send<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::Unavailable("the store's writer has ended".to_owned());
        let mut command = make(reply);
        // The queue is bounded; while it is full the caller waits without holding a thread.
        while let Err(error) = self.commands.try_send(command) {
            match error {
                std::sync::mpsc::TrySendError::Full(back) => {
                    command = back;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                std::sync::mpsc::TrySendError::Disconnected(_) => return Err(closed()),
            }
        }
        answer
            .await
            .map_err(|_| StoreError::Unknown("the store's writer ended while the write was under way".to_owned()))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Read, StoreError> {
        let snapshot = self.snapshot()?;
        Ok(Read {
            kv: snapshot.current(key)?,
            revision: snapshot.revision()?,
        })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.snapshot()?.list(&request)
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, CommitError> {
        self.send(|reply| Command::Commit { txn, reply }).await?
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        watch::start(&self.shared, prefix.to_owned(), after)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.snapshot()?.revision()
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.send(|reply| Command::Progress { reply }).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.send(|reply| Command::Compact { revision, reply }).await?
    }
}
