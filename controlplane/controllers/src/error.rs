//! What can go wrong in a reconciliation. All of it is tried again.

use minato_api::kube;
use thiserror::Error;

/// Failure of one reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused a request or could not be reached.
    #[error("a request failed")]
    Api(#[from] kube::Error),
    /// A selector in an object cannot be evaluated.
    #[error("bad selector")]
    Selector(#[from] minato_meta::SelectorError),
    /// An object holds something that cannot be worked with.
    #[error("{0}")]
    Invalid(String),
    /// The cache is known to be behind; the next event will wake us.
    #[error("the cache is behind: {0}")]
    Behind(&'static str),
    /// A value could not be turned into JSON.
    #[error("could not encode an object")]
    Encode(#[from] serde_json::Error),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The HTTP code of an API error.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

pub(crate) fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// The namespace is being deleted: creating in it is pointless, and its controllers' owners will go with it.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
