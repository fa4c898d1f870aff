//! The etcd back end: every key of a cluster below one prefix of an etcd that others may share.
//!
//! A transaction is one request, acknowledged by etcd after its own fsync. One watch follows the whole prefix and feeds the
//! hub, which hands changes to the watches of this process; so many watches cost etcd one. A revision is certain to have
//! been followed when an event or a progress mark at it or after it has come; [`Inner::settle`] asks for one when other
//! tenants have moved the revision on.
//!
//! Source: <https://etcd.io/docs/v3.5/learning/api/>, <https://etcd.io/docs/v3.5/learning/api_guarantees/>.

mod compaction;
mod fault;
mod follow;
mod keys;
mod leases;
mod options;
mod revisions;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, CompareOp, GetOptions, PutOptions, TxnOp, TxnOpResponse, TxnResponse};
use minato_meta::Revision;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::hub::Hub;
use crate::store::{
    Commit, CommitError, Compare, Expect, KeyValue, LastChange, ListPage, ListRequest, Op, Read, Store, StoreError,
    Txn, WatchStream,
};
use fault::Fault;
use keys::Keys;
use leases::Leases;
pub use options::{EtcdOptions, EtcdTls};
use revisions::Revisions;

/// Pairs of one range request when all are wanted: a few hundred kilobytes, and never a request that holds etcd up.
const PAGE: usize = 1_000;
/// How long a change of our own may take to arrive before etcd is asked how far it is.
const GRACE: Duration = Duration::from_millis(3);
/// When it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

struct Inner {
    client: Client,
    keys: Keys,
    hub: Hub,
    leases: Leases,
    /// Newest event below the prefix that was followed: there is one at exactly this revision.
    last_event: AtomicU64,
    /// Somebody waits for a mark.
    nudge: Notify,
    /// Longest that one request may take.
    timeout: Duration,
}

/// A store in etcd. Clones share it; its tasks end with the last one.
#[derive(Clone)]
pub struct EtcdStore {
    inner: Arc<Inner>,
    revisions: Revisions,
    _tasks: Arc<DropGuard>,
}

impl EtcdStore {
    /// Connects, and begins to follow the prefix. Needs a running tokio runtime, here and later.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no endpoint answers, or refuses the credential or the prefix.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StoreError> {
        let client = options.connect().await?;
        let keys = Keys::new(&options.prefix);
        // In place before the mark: so it is never behind, whatever is compacted.
        let stream = watch::open_now(&client, &keys).await?;
        let opened = follow::mark(&client, &keys).await?;
        let inner = Arc::new(Inner {
            client,
            keys,
            hub: Hub::new(opened),
            leases: Leases::default(),
            last_event: AtomicU64::new(opened.0),
            nudge: Notify::new(),
            timeout: options.timeout,
        });
        let cancel = CancellationToken::new();
        let stopping = |task| {
            let cancel = cancel.clone();
            async move { cancel.run_until_cancelled(task).await }
        };
        tokio::spawn(stopping(futures::future::Either::Left(follow::run(
            Arc::clone(&inner),
            stream,
        ))));
        let compaction = compaction::run(Arc::clone(&inner), options.keep_history);
        tokio::spawn(stopping(futures::future::Either::Right(compaction)));
        Ok(Self {
            revisions: Revisions::start(Arc::downgrade(&inner)),
            inner,
            _tasks: Arc::new(cancel.drop_guard()),
        })
    }
}

impl Inner {
    /// The present revision, linearizable.
    async fn read_revision(&self) -> Result<Revision, StoreError> {
        let options = GetOptions::new().with_keys_only();
        let read = self.client.kv_client().get(self.keys.mark(), Some(options)).await;
        let read = read.map_err(|error| Fault::of(error).reading())?;
        Ok(fault::revision(read.header()))
    }

    /// Waits until everything up to the revision is with the watches.
    async fn settle(&self, revision: Revision) -> Result<(), StoreError> {
        let reached = async {
            let mut patience = GRACE;
            while tokio::time::timeout(patience, self.hub.reach(revision)).await.is_err() {
                self.nudge.notify_one();
                patience = ASK_AGAIN;
            }
        };
        let in_time = tokio::time::timeout(self.timeout, reached).await;
        in_time.map_err(|_| StoreError::Unavailable(format!("the watch of etcd did not come to {revision} in time")))
    }

    /// A typed error for a refused revision, with what the contract wants to be told.
    async fn refused(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Compacted => match watch::compacted(self).await {
                Ok(compacted) => StoreError::Compacted { compacted },
                Err(error) => error,
            },
            Fault::Future => match self.read_revision().await {
                Ok(current) => StoreError::Future { current },
                Err(error) => error,
            },
            other => other.reading(),
        }
    }

    /// The request for a transaction; takes leases for what is to expire.
    async fn request(&self, txn: &Txn) -> Result<etcd_client::Txn, CommitError> {
        let compares: Vec<etcd_client::Compare> = txn.compare.iter().map(|compare| self.compare(compare)).collect();
        let mut ops = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            ops.push(match op {
                Op::Put { key, value, ttl } => {
                    let options = match ttl {
                        Some(ttl) => Some(PutOptions::new().with_lease(self.leases.take(&self.client, *ttl).await?)),
                        None => None,
                    };
                    TxnOp::put(self.keys.outer(key), value.as_ref(), options)
                }
                Op::Delete { key } => TxnOp::delete(self.keys.outer(key), None),
            });
        }
        let present = txn
            .compare
            .iter()
            .map(|compare| TxnOp::get(self.keys.outer(&compare.key), None));
        let request = etcd_client::Txn::new().when(compares).and_then(ops);
        Ok(request.or_else(present.collect::<Vec<_>>()))
    }

    fn compare(&self, compare: &Compare) -> etcd_client::Compare {
        let key = self.keys.outer(&compare.key);
        match compare.expect {
            Expect::Absent => etcd_client::Compare::create_revision(key, CompareOp::Equal, 0),
            Expect::ModRevision(revision) => {
                etcd_client::Compare::mod_revision(key, CompareOp::Equal, fault::number(revision))
            }
        }
    }

    fn conflict(&self, response: &TxnResponse) -> CommitError {
        let present = |response| match response {
            TxnOpResponse::Get(get) => get.kvs().first().and_then(|kv| self.keys.pair(kv)),
            _ => None,
        };
        CommitError::Conflict {
            current: response.op_responses().into_iter().map(present).collect(),
            revision: fault::revision(response.header()),
        }
    }

    /// One page of a range, at most `limit` pairs.
    async fn page(&self, request: &ListRequest, limit: usize) -> Result<ListPage, Fault> {
        let (from, to) = self.keys.range(&request.prefix, request.start_after.as_deref());
        let mut options = GetOptions::new().with_range(to);
        options = options.with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
        if let Some(revision) = request.revision {
            options = options.with_revision(fault::number(revision));
        }
        let response = self
            .client
            .kv_client()
            .get(from, Some(options))
            .await
            .map_err(Fault::of)?;
        let items: Vec<KeyValue> = response.kvs().iter().filter_map(|kv| self.keys.pair(kv)).collect();
        let count = u64::try_from(response.count()).unwrap_or(0);
        Ok(ListPage {
            more: response.more(),
            remaining: count.saturating_sub(items.len() as u64),
            revision: request.revision.unwrap_or_else(|| fault::revision(response.header())),
            items,
        })
    }

    /// Every pair of a range, page by page, all as of the first page's revision.
    async fn all(&self, mut request: ListRequest) -> Result<ListPage, Fault> {
        let mut whole = self.page(&request, PAGE).await?;
        request.revision = Some(whole.revision);
        while whole.more {
            request.start_after = whole.items.last().map(|kv| kv.key.clone());
            let page = self.page(&request, PAGE).await?;
            whole.items.extend(page.items);
            (whole.more, whole.remaining) = (page.more, page.remaining);
        }
        Ok(whole)
    }

    fn last_event(&self) -> Revision {
        Revision(self.last_event.load(Ordering::Acquire))
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Read, StoreError> {
        let read = self
            .inner
            .client
            .kv_client()
            .get(self.inner.keys.outer(key), None)
            .await;
        let read = read.map_err(|error| Fault::of(error).reading())?;
        Ok(Read {
            kv: read.kvs().first().and_then(|kv| self.inner.keys.pair(kv)),
            revision: fault::revision(read.header()),
        })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let page = match request.limit {
            0 => self.inner.all(request).await,
            limit => self.inner.page(&request, limit).await,
        };
        match page {
            Ok(page) => Ok(page),
            Err(fault) => Err(self.inner.refused(fault).await),
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, CommitError> {
        let mut again = true;
        loop {
            let request = self.inner.request(&txn).await?;
            match self.inner.client.kv_client().txn(request).await {
                Ok(response) if response.succeeded() => {
                    let revision = fault::revision(response.header());
                    return Ok(Commit { revision });
                }
                Ok(response) => return Err(self.inner.conflict(&response)),
                Err(error) => match Fault::of(error) {
                    // It ran out while the request was on its way; nothing was done.
                    Fault::LeaseGone if again => {
                        again = false;
                        self.inner.leases.forget();
                    }
                    fault => return Err(fault.writing().into()),
                },
            }
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        watch::start(&self.inner, prefix.to_owned(), after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let revision = self.revisions.read().await?;
        // Whoever asks next what has changed must not be told less than a read has shown already.
        self.inner.settle(revision).await?;
        Ok(revision)
    }

    async fn last_change(&self, prefix: &str) -> Result<LastChange, StoreError> {
        self.revision().await?;
        Ok(self.inner.hub.last_change(prefix))
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.revision().await?;
        self.inner.hub.mark_progress();
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        match self
            .inner
            .client
            .kv_client()
            .compact(fault::number(revision), None)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => match Fault::of(error) {
                fault @ (Fault::Compacted | Fault::Future) => Err(self.inner.refused(fault).await),
                fault => Err(fault.writing()),
            },
        }
    }
}
