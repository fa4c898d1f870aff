//! Failures of calls to the runtime.

use tonic::{Code, Status};

/// A call that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{call}: {message}")]
pub struct CriError {
    /// Which call, such as `RunPodSandbox`.
    pub call: &'static str,
    /// The runtime's text.
    pub message: String,
    /// gRPC status code.
    pub code: Code,
}

impl CriError {
    pub(crate) fn new(call: &'static str, status: &Status) -> Self {
        Self {
            call,
            message: status.message().to_owned(),
            code: status.code(),
        }
    }

    pub(crate) fn empty(call: &'static str) -> Self {
        Self {
            call,
            message: "the runtime's answer lacks its content".to_owned(),
            code: Code::Internal,
        }
    }

    /// Whether what was asked about does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// Whether the runtime does not know the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code == Code::Unimplemented
    }

    /// Whether the runtime did not answer at all.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::Cancelled)
    }

    /// Whether the call's deadline passed.
    pub fn is_timeout(&self) -> bool {
        self.code == Code::DeadlineExceeded
    }
}

/// Removing what is gone already is fine.
pub(crate) fn ignore_not_found(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
