//! The admission chain and its built-in plug-ins.
//!
//! Runs between decoding and the store on every write. Reads the cluster through [`minato_meta::ClusterReader`].
//! May depend on: machinery crates, `auth`, `client`.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod request;
mod role_escalation;

pub use request::{AdmissionPlugin, AdmissionRequest, Operation};
pub use role_escalation::RoleEscalation;
