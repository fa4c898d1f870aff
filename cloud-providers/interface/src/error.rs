//! Why a cloud call failed, in the terms that decide what a controller does next.

use std::time::Duration;

/// What a failure means. Controllers branch on this and on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloudErrorKind {
    /// Positive evidence that the thing does not exist. The only kind that may lead to a deletion.
    NotFound,
    /// Something of that name or key exists and is not what was asked for.
    AlreadyExists,
    /// Too many calls; [`CloudError::retry_after`] says how long to wait, when the cloud says so.
    Throttled,
    /// The work was accepted and is not finished; ask again after [`CloudError::retry_after`].
    InProgress,
    /// A quota or limit of the account.
    QuotaExceeded,
    /// Credentials are missing, wrong or expired, or lack a permission.
    Unauthorized,
    /// The request can never succeed as it is; a person has to change it.
    Invalid,
    /// The resource is locked or being changed by another call; retry soon.
    Conflict,
    /// Time-outs, resets, 5xx: may succeed when repeated.
    Transient,
    /// The cloud, or this provider, does not offer it.
    Unsupported,
}

/// A failed cloud call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    kind: CloudErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

impl CloudError {
    /// An error with what happened in words; no secrets.
    pub fn new(kind: CloudErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
    /// Adds how long to wait before the next try.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
    /// What it means.
    pub fn kind(&self) -> CloudErrorKind {
        self.kind
    }
    /// How long the cloud asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
    /// Whether this is positive evidence of absence.
    pub fn is_not_found(&self) -> bool {
        self.kind == CloudErrorKind::NotFound
    }
}
