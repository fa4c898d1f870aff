//! What integration tests share: container images made without a registry ([`images`]), and nodes in namespaces of their
//! own with a real containerd ([`TestNode`]).
//!
//! A dev-dependency only. May depend on: `minato-images`, tokio, tempfile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod node;

pub use minato_images as images;
pub use node::{NodeConfig, TestNode, until};
