//! The cloud controller manager: four controllers that keep a cluster in step with the cloud that its nodes live in.
//!
//! ```text
//!  node       a new Node gets its id, addresses and labels; then it may have pods
//!  lifecycle  a Node whose instance is gone goes too; one whose instance is off is marked
//!  route      every node's pod range is routed to it
//!  service    every Service of type LoadBalancer has its load balancer
//! ```
//!
//! They know the cloud by `minato-provider-interface` alone and the cluster by a `kube::Client` alone, so any provider
//! serves and any Kubernetes does. What is in the cloud is found again by its ownership tags: nothing is remembered that
//! a crash could lose. Only positive evidence of absence deletes anything.
//!
//! May depend on: machinery, `minato-runtime`, the provider interface. Never on a provider.

mod config;
mod error;
mod lifecycle;
mod manager;
mod node;
mod ops;
mod route;
mod service;

pub use config::CloudControllerManagerConfig;
pub use error::Error;
pub use manager::{CloudControllerManager, CloudControllerManagerHandle};

use std::sync::Arc;

use minato_api::kube::Client;
use minato_provider_interface::CloudProvider;
use minato_runtime::{Informer, Object, Runtime};

/// What every controller is given.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) runtime: Runtime,
    pub(crate) config: Arc<CloudControllerManagerConfig>,
    pub(crate) provider: Arc<dyn CloudProvider>,
}

impl Context {
    pub(crate) fn client(&self) -> &Client {
        &self.runtime.client
    }

    /// The shared informer of a kind.
    pub(crate) fn informer<K: Object>(&self) -> Informer<K> {
        self.runtime.informers.of()
    }
}
