//! The controller manager: one folder per controller, all of one shape.
//!
//! ```text
//!  mod.rs    what is watched, which key a change maps to, reconcile(key)
//!  plan.rs   from what was observed to what to do: no await, no client, no clock
//!  apply.rs  carries the plan out, each request safe to repeat
//! ```
//!
//! Controllers see the cluster through a `kube::Client` and shared informers alone, so they run against any Kubernetes.
//! May depend on: machinery, `minato-runtime`, `minato-pki`. Never on the API server or its storage.

mod certificates;
mod clusterrole;
mod config;
mod deployment;
mod discovery;
mod endpoints;
mod endpointslice;
mod error;
mod gc;
mod history;
mod intstr;
mod job;
mod manager;
mod names;
mod namespace;
mod nodeipam;
mod nodelifecycle;
mod nodettl;
mod ops;
mod ownership;
mod podgc;
mod pods;
mod replicaset;
mod resourcequota;
mod rootca;
mod serviceaccount;
mod statefulset;
mod storageprotection;
mod tainteviction;
mod taints;
mod template;
mod tokencleaner;

pub use config::{CloudAddresses, ControllerManagerConfig};
pub use error::Error;
pub use manager::{ControllerManager, ControllerManagerHandle};

use std::sync::Arc;

use minato_api::kube::{self, Client};
use minato_runtime::{Informer, Object, Runtime};

/// What every controller is given.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) runtime: Runtime,
    pub(crate) config: Arc<ControllerManagerConfig>,
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

/// The API server's message, which is what users want to read in an event.
pub(crate) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
