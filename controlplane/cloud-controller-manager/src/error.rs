//! What can go wrong in a reconciliation. All of it is tried again.

use minato_api::kube;
use minato_provider_interface::CloudError;
use thiserror::Error;

/// Failure of one reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused a request or could not be reached.
    #[error("a request failed")]
    Api(#[from] kube::Error),
    /// The cloud refused a call or could not be reached.
    #[error("a cloud call failed")]
    Cloud(#[from] CloudError),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

fn code(error: &kube::Error) -> Option<u16> {
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

/// A text for people, without the chain.
pub(crate) fn describe(error: &Error) -> String {
    match error {
        Error::Api(kube::Error::Api(status)) => status.message.clone(),
        Error::Api(error) => error.to_string(),
        Error::Cloud(error) => error.to_string(),
    }
}
