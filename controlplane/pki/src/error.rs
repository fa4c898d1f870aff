//! What can go wrong.

use std::path::PathBuf;

/// Failures of making, keeping or reading keys and certificates. No message holds key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A kept certificate has no key, or a kept key signs another certificate.
    #[error("{path}: {why}")]
    Mismatch {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        why: &'static str,
    },
    /// The random number generator failed.
    #[error("no randomness available")]
    Random,
    /// A private key could not be read or used.
    #[error("private key: {0}")]
    Key(&'static str),
    /// A certificate or certificate request could not be read.
    #[error("certificate: {0}")]
    Malformed(&'static str),
    /// A name cannot be part of a certificate.
    #[error("{0:?} cannot be a name in a certificate")]
    Name(String),
    /// A usage that certificates do not know.
    #[error("{0:?} is no certificate usage")]
    Usage(String),
}
