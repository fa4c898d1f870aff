//! The optimistic loop under every write: read, compute, compare-and-swap, and again when somebody was faster.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use minato_meta::{ApiError, ErrorKind, Revision};
use minato_storage::{Commit, CommitError, Compare, Expect, KeyValue, Op, StoreError, Txn, object};
use serde_json::Value;

use super::Target;
use crate::quota::Turn;
use crate::server::ApiServer;

/// An object as stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The tree, with `metadata.resourceVersion`.
    pub(crate) object: Value,
    /// The bytes in the store.
    pub(crate) bytes: Bytes,
    /// Revision of the last write.
    pub(crate) revision: Revision,
}

impl Stored {
    fn from_kv(kv: &KeyValue) -> Result<Self, ApiError> {
        Ok(Self {
            object: object::decode(&kv.value, kv.mod_revision)
                .map_err(|e| store_error(StoreError::Corrupt(e.to_string())))?,
            bytes: kv.value.clone(),
            revision: kv.mod_revision,
        })
    }
}

/// Conditions and effects on other keys that belong to the same write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects {
    pub(crate) compare: Vec<Compare>,
    pub(crate) ops: Vec<Op>,
    /// Held until the write is through.
    pub(crate) turn: Option<Turn>,
}

/// What a transform wants.
#[derive(Debug)]
pub(crate) enum Change {
    /// Leave everything as it is.
    Keep,
    /// Write this object.
    Put { object: Value, effects: Effects },
    /// Delete it; the object is what the client and the last event show.
    Delete { object: Value, effects: Effects },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was written.
    Kept(Stored),
    /// The object was written (or would have been, in a dry run).
    Written { stored: Stored, created: bool },
    /// The object is gone (or would be).
    Deleted { object: Value },
}

/// Computes a change from the present state; may be called again with a newer one.
#[async_trait]
pub(crate) trait Transform: Send {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError>;
}

/// Attempts before a write that keeps losing races is given up; the client's deadline usually comes first.
const MOST_ATTEMPTS: usize = 200;

/// Runs a transform to its end.
///
/// # Errors
/// The transform's, or the store's.
pub(crate) async fn run(
    server: &Arc<ApiServer>,
    target: &Target,
    dry_run: bool,
    transform: &mut dyn Transform,
) -> Result<Outcome, ApiError> {
    let current = read(server, target).await?;
    run_from(server, target, dry_run, transform, current).await
}

/// Like [`run`], from a state that the caller has already: `None` where the object is believed absent.
///
/// # Errors
/// The transform's, or the store's.
pub(crate) async fn run_from(
    server: &Arc<ApiServer>,
    target: &Target,
    dry_run: bool,
    transform: &mut dyn Transform,
    mut current: Option<Stored>,
) -> Result<Outcome, ApiError> {
    let key = target.key();
    for _ in 0..MOST_ATTEMPTS {
        let change = transform.apply(current.as_ref()).await?;
        let step = match prepare(&key, &change, current.as_ref(), target)? {
            Some(step) => step,
            None => return kept(current, target),
        };
        if dry_run {
            return Ok(outcome(
                change,
                step.bytes,
                current.as_ref().map(|c| c.revision),
                current.is_none(),
            ));
        }
        match server.store.commit(step.txn).await {
            Ok(Commit { revision }) => return Ok(outcome(change, step.bytes, Some(revision), current.is_none())),
            Err(CommitError::Conflict { current: now, .. }) => {
                // Also the case when one of the other keys was the reason: then the transform chooses anew.
                current = now.first().and_then(Option::as_ref).map(Stored::from_kv).transpose()?;
            }
            Err(CommitError::Store(error)) => return Err(store_error(error)),
        }
    }
    Err(ApiError::new(
        ErrorKind::ServerTimeout,
        "the object is being changed too often; try again",
    )
    .with_retry_after(1))
}

/// Reads the present state.
///
/// # Errors
/// The store's.
pub(crate) async fn read(server: &Arc<ApiServer>, target: &Target) -> Result<Option<Stored>, ApiError> {
    let read = server.store.get(&target.key()).await.map_err(store_error)?;
    read.kv.as_ref().map(Stored::from_kv).transpose()
}

struct Step {
    txn: Txn,
    bytes: Bytes,
}

/// The transaction of a change; `None` when nothing would change.
fn prepare(key: &str, change: &Change, current: Option<&Stored>, target: &Target) -> Result<Option<Step>, ApiError> {
    let expect = match current {
        None => Expect::Absent,
        Some(stored) => Expect::ModRevision(stored.revision),
    };
    let mut compare = vec![Compare {
        key: key.to_owned(),
        expect,
    }];
    let (op, effects, bytes) = match change {
        Change::Keep => return Ok(None),
        Change::Put { object, effects } => {
            let bytes = object::encode(object).map_err(ApiError::internal)?;
            let unchanged = current.is_some_and(|c| c.bytes == bytes);
            if unchanged && effects.ops.is_empty() {
                return Ok(None);
            }
            let ttl = target.resource.strategy.ttl_seconds();
            let op = Op::Put {
                key: key.to_owned(),
                value: bytes.clone(),
                ttl: ttl.map(std::time::Duration::from_secs),
            };
            (op, effects, bytes)
        }
        Change::Delete { effects, .. } => (Op::Delete { key: key.to_owned() }, effects, Bytes::new()),
    };
    compare.extend(effects.compare.iter().cloned());
    let mut ops = vec![op];
    ops.extend(effects.ops.iter().cloned());
    Ok(Some(Step {
        txn: Txn { compare, ops },
        bytes,
    }))
}

fn kept(current: Option<Stored>, target: &Target) -> Result<Outcome, ApiError> {
    current.map(Outcome::Kept).ok_or_else(|| target.not_found())
}

fn outcome(change: Change, bytes: Bytes, revision: Option<Revision>, created: bool) -> Outcome {
    match change {
        Change::Put { mut object, .. } => {
            if let (Some(revision), Some(metadata)) =
                (revision, object.get_mut("metadata").and_then(Value::as_object_mut))
            {
                metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
            }
            Outcome::Written {
                stored: Stored {
                    object,
                    bytes,
                    revision: revision.unwrap_or_default(),
                },
                created,
            }
        }
        Change::Delete { object, .. } => Outcome::Deleted { object },
        // `prepare` has answered this one.
        Change::Keep => Outcome::Deleted { object: Value::Null },
    }
}

/// A store's failure as the client gets it.
pub(crate) fn store_error(error: StoreError) -> ApiError {
    tracing::warn!(%error, "the store failed");
    match error {
        StoreError::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
        StoreError::Future { current } => ApiError::new(
            ErrorKind::Timeout,
            format!("Too large resource version, current: {current}"),
        )
        .with_retry_after(1),
        StoreError::Unavailable(_) => {
            ApiError::new(ErrorKind::ServiceUnavailable, "the store is not available").with_retry_after(1)
        }
        StoreError::Unknown(_) => ApiError::new(
            ErrorKind::Timeout,
            "Timeout: the store did not answer in time; the request may or may not have been carried out",
        ),
        StoreError::NoSpace(_) => ApiError::new(ErrorKind::InternalError, "the store is out of space"),
        StoreError::TooLarge(why) => ApiError::new(
            ErrorKind::RequestEntityTooLarge,
            format!("the object is too large for the store: {why}"),
        ),
        StoreError::Corrupt(_) => ApiError::new(ErrorKind::StoreReadError, "stored data cannot be read"),
    }
}
