//! The embedded back end: one redb file, a writer thread with group commit, history for reads and watches of the past.
//!
//! Every write goes through one thread that takes all that is queued, applies it in order inside one database
//! transaction, makes it durable with one fsync, hands it to the watches, and only then acknowledges. Readers use the
//! database's own snapshots.

mod compaction;
mod expiry;
mod fault;
mod tables;
mod watch;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use minato_meta::Revision;
use redb::{Database, ReadableDatabase};

use crate::hub::Hub;
use crate::store::{Commit, CommitError, LastChange, ListPage, ListRequest, Read, Store, StoreError, Txn, WatchStream};
use fault::failed;
use tables::Snapshot;
use writer::{Command, Writer};

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

struct Shared {
    database: Database,
    hub: Hub,
}

/// A store in one file. Clones share it; the file is closed with the last one.
#[derive(Clone)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    writer: Writer,
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
        let revision = Snapshot::new(database.begin_read().map_err(failed)?).revision()?;
        let shared = Arc::new(Shared {
            database,
            hub: Hub::new(revision),
        });
        let writer = Writer::start(Arc::downgrade(&shared), options.keep_history)?;
        Ok(Self { shared, writer })
    }

    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::new(self.shared.database.begin_read().map_err(failed)?))
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
        self.writer.send(|reply| Command::Commit { txn, reply }).await?
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        watch::start(&self.shared, prefix.to_owned(), after)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let revision = self.snapshot()?.revision()?;
        // Whoever asks next what has changed must not be told less than a read has shown already.
        self.shared.hub.reach(revision).await;
        Ok(revision)
    }

    async fn last_change(&self, prefix: &str) -> Result<LastChange, StoreError> {
        self.revision().await?;
        Ok(self.shared.hub.last_change(prefix))
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.revision().await?;
        self.shared.hub.mark_progress();
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.writer.send(|reply| Command::Compact { revision, reply }).await?
    }
}
