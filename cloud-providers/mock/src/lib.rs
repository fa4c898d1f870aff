//! A cloud for tests, demonstrations and the quick start.
//!
//! One state machine ([`state::CloudState`]) behind two modes. In *sim* mode it is all there is: in memory, on tokio's
//! clock, so that tests may pause time. In *local* mode a [`local::LocalHost`] makes it real on this machine: an instance
//! is a network namespace with its own mounts, processes and cgroup that boots the node set-up, a route is a kernel
//! route, a load balancer is a listener with health checks.
//!
//! Every request is one [`call::Call`], whether it comes from the same process ([`MockCloud`]) or over a unix socket
//! ([`remote::RemoteCloud`]); [`MockProvider`] turns the provider interface into calls. So faults, call budgets and the
//! call log see all traffic alike. May depend on: the provider interface, tokio, hyper, nix.

pub mod api;
pub mod call;
mod cloud;
pub mod local;
mod provider;
pub mod remote;
pub mod state;

pub use cloud::{CloudConfig, MockCloud};
pub use provider::MockProvider;
