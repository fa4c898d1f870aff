//! What integration tests share: container images made without a registry ([`images`]), nodes in namespaces of their
//! own with a real containerd ([`TestNode`]), the real kubectl ([`Kubectl`]) and a real etcd ([`Etcd`]).
//!
//! A dependency of tests and of the bench only. May depend on: `minato-images`, tokio, tempfile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod etcd;
mod kubectl;
mod node;

pub use etcd::{Certificates, Etcd};
pub use kubectl::{Kubectl, said};
pub use minato_images as images;
pub use node::{NodeConfig, TestNode, until};
