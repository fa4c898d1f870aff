//! What can go wrong in a reconciliation. All of it is tried again.

use minato_api::kube;
use minato_provider_interface::CloudError;

use crate::hosting::HostingError;

/// Failure of one reconciliation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API server refused a request or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// What was asked.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The cloud.
    #[error("cloud: {0}")]
    Cloud(#[from] CloudError),
    /// The hosting of a control plane.
    #[error("hosting: {0}")]
    Hosting(#[from] HostingError),
    /// A certificate.
    #[error("certificate: {0}")]
    Pki(#[from] minato_pki::PkiError),
    /// A value could not be encoded or decoded.
    #[error("{what}: {source}")]
    Encoding {
        /// What was being written or read.
        what: &'static str,
        /// Why it failed.
        source: serde_json::Error,
    },
    /// An object holds something that cannot be worked with.
    #[error("{0}")]
    Invalid(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Says what a request was for.
pub(crate) fn api(what: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Api {
        what,
        source: Box::new(source),
    }
}

/// The HTTP code of an API error.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The result without the failure that the object is gone, or exists already.
pub(crate) fn unless<T>(
    result: std::result::Result<T, kube::Error>,
    tolerated: u16,
) -> std::result::Result<Option<T>, kube::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if code(&error) == Some(tolerated) => Ok(None),
        Err(error) => Err(error),
    }
}
