//! A cluster's public-key infrastructure: certificate authorities, what they issue, signing keys and kubeconfigs.
//!
//! ```text
//! ClusterPki ─ cluster CA ──── serving, client and requested (CSR) certificates
//!            ├ front-proxy CA ─ client certificates of the aggregation layer
//!            ├ etcd CA
//!            └ service-account keys (one signs, all verify)
//! ```
//!
//! Everything is made once and kept in a directory that only its owner may read; loading it again gives the same. All
//! keys are ECDSA P-256. Certificates are encoded here, because a subject may name many organizations (groups) and a
//! requested one must be rebuilt from what was checked, not copied. May depend on: ring, x509-parser. Nothing of ours.
//! Source: <https://kubernetes.io/docs/setup/best-practices/certificates/>.

mod authority;
mod certificate;
mod cluster;
mod der;
mod error;
mod files;
mod key;
mod kubeconfig;
mod request;

pub use authority::{Authority, Issued, Serving};
pub use certificate::{AltName, SubjectAttribute, Usage};
pub use cluster::ClusterPki;
pub use error::PkiError;
pub use files::{keep_private, write_private};
pub use key::PrivateKey;
pub use kubeconfig::{Credential, kubeconfig, kubeconfig_with};
pub use request::{CertificateRequest, Refusal, Signer, new_request};
