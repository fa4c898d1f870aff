//! What etcd's errors mean for the contract of the store.

use std::error::Error as _;

use etcd_client::{Error, ResponseHeader};
use minato_meta::Revision;

use crate::store::StoreError;

/// A failed request.
#[derive(Debug)]
pub(super) enum Fault {
    /// The revision is compacted.
    Compacted,
    /// The revision is in the future.
    Future,
    /// The lease has run out.
    LeaseGone,
    /// etcd refused the request; nothing was done.
    Refused(StoreError),
    /// The connection or the deadline failed: a write may have happened.
    Lost(String),
}

/// Numbers of the gRPC codes with which etcd refuses a request before it does anything
/// (<https://grpc.io/docs/guides/status-codes/>): invalid argument, not found, permission denied, failed precondition, out of
/// range, unimplemented, unauthenticated.
const REFUSALS: [i32; 7] = [3, 5, 7, 9, 11, 12, 16];

impl Fault {
    /// Sorts an error. etcd tells its own errors apart by their text only.
    pub(super) fn of(error: Error) -> Self {
        let Error::GRpcStatus(status) = &error else {
            return Self::Lost(error.to_string());
        };
        let text = status.message();
        let has = |part: &str| text.contains(part);
        if has("required revision has been compacted") {
            return Self::Compacted;
        }
        if has("required revision is a future revision") {
            return Self::Future;
        }
        if has("requested lease not found") {
            return Self::LeaseGone;
        }
        let text = text.to_owned();
        if has("database space exceeded") {
            return Self::Refused(StoreError::NoSpace(text));
        }
        if has("request is too large") || has("too many operations in txn request") {
            return Self::Refused(StoreError::TooLarge(text));
        }
        let refused = REFUSALS.contains(&i32::from(status.code())) || has("too many requests");
        if refused || never_connected(status.source()) {
            return Self::Refused(StoreError::Unavailable(format!("etcd: {text}")));
        }
        Self::Lost(format!("etcd: {text}"))
    }

    /// The error of a read: it may be tried again whatever it was.
    pub(super) fn reading(self) -> StoreError {
        match self {
            Self::Lost(text) => StoreError::Unavailable(text),
            other => other.writing(),
        }
    }

    /// The error of a write.
    pub(super) fn writing(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Lost(text) => StoreError::Unknown(text),
            Self::LeaseGone => StoreError::Unavailable("etcd: the lease ran out".to_owned()),
            Self::Compacted | Self::Future => StoreError::Unavailable("etcd: the revision is not available".to_owned()),
        }
    }
}

/// Whether no connection was there to send anything over.
fn never_connected(mut source: Option<&(dyn std::error::Error + 'static)>) -> bool {
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        source = error.source();
    }
    false
}

/// The revision that a response was made at.
pub(super) fn revision(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(Revision(0), |header| revision_of(header.revision()))
}

/// etcd's signed number, which is never negative, as a revision.
pub(super) fn revision_of(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

/// A revision as etcd's signed number.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
