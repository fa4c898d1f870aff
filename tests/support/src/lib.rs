//! What integration tests share: container images made without a registry ([`images`]), and nodes in namespaces of their
//! own with a real containerd ([`TestNode`]).
//!
//! A dev-dependency only. May depend on: tokio, tempfile. Nothing of ours.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod images;
mod node;
mod tar;

pub use node::{NodeConfig, TestNode, until};
