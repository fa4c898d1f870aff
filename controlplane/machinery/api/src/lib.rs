//! The only door to `k8s-openapi` and `kube` versions, and the `fleet.minato.dev` kinds.
//!
//! Every other crate names Kubernetes types through this one, so the Kubernetes minor is changed in one line.
//! May depend on: k8s-openapi, kube, serde. Nothing of ours.

pub mod fleet;
pub mod node;

pub use k8s_openapi;
pub use k8s_openapi::api as k8s;
pub use k8s_openapi::apimachinery;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta_v1;
pub use kube;

/// The Kubernetes minor whose wire contract this project implements.
pub const KUBERNETES_MAJOR: &str = "1";
/// See [`KUBERNETES_MAJOR`].
pub const KUBERNETES_MINOR: &str = "36";
/// What `/version` reports as `gitVersion`; the suffix is build metadata as of <https://semver.org/#spec-item-10>.
pub const GIT_VERSION: &str = concat!("v1.36.0+minato.", env!("CARGO_PKG_VERSION"));
