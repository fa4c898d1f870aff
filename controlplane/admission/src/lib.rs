//! The admission chain and its built-in plug-ins.
//!
//! Runs between decoding and the store on every write. Reads the cluster through [`minato_meta::ClusterReader`].
//! May depend on: machinery crates, `auth`, `client`.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod objects;
mod priority;
mod request;
mod role_escalation;
mod service_account;
mod tolerations;

pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_restriction::NodeRestriction;
pub use priority::Priority;
pub use request::{AdmissionPlugin, AdmissionRequest, Operation};
pub use role_escalation::RoleEscalation;
pub use service_account::ServiceAccount;
pub use tolerations::{DefaultTolerationSeconds, TaintNodesByCondition};
