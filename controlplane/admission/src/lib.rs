//! The admission chain and its built-in plug-ins.
//!
//! Runs between decoding and the store on every write. Reads the cluster through [`minato_meta::ClusterReader`].
//! May depend on: machinery crates, `auth`, `client`.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod certificates;
mod default_classes;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod objects;
mod pod_security;
mod priority;
mod request;
mod role_escalation;
mod runtime_class;
mod service_account;
mod storage;
#[cfg(test)]
mod tests;
mod tolerations;
mod topology_labels;

pub use certificates::{CertificateApproval, CertificateSigning, CertificateSubjectRestriction};
pub use default_classes::{DefaultIngressClass, DefaultStorageClass};
pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_restriction::NodeRestriction;
pub use pod_security::PodSecurity;
pub use priority::Priority;
pub use request::{AdmissionPlugin, AdmissionRequest, Notes, Operation};
pub use role_escalation::RoleEscalation;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use storage::{PersistentVolumeClaimResize, StorageObjectInUseProtection};
pub use tolerations::{DefaultTolerationSeconds, TaintNodesByCondition};
pub use topology_labels::PodTopologyLabels;
