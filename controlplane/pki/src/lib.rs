//! A cluster's certificate authority and what it issues: serving certificates, client certificates, kubeconfigs.
//!
//! Everything is made once and kept in a directory that only its owner may read; loading it again gives the same. May
//! depend on: rcgen, rustls-pki-types. Nothing of ours.
//! Source: <https://kubernetes.io/docs/setup/best-practices/certificates/>.

mod authority;
mod kubeconfig;

pub use authority::{ClusterPki, Issued, PkiError, Serving};
pub use kubeconfig::kubeconfig;
