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
mod cronjob;
mod daemonset;
mod deployment;
mod discovery;
mod disruption;
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
mod podautoscaler;
mod podgc;
mod pods;
mod replicaset;
mod resourcequota;
mod rootca;
mod scale;
mod serviceaccount;
mod statefulset;
mod storageprotection;
mod tainteviction;
mod taints;
mod template;
mod tokencleaner;
mod ttlafterfinished;
mod written;

pub use config::{Clients, CloudAddresses, ControllerManagerConfig};
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
    /// The same for a controller that acts as this service account of `kube-system`.
    fn acting_as(&self, account: &str) -> Self {
        let mut cx = self.clone();
        if let Some(clients) = &self.config.clients {
            cx.runtime.client = clients(account);
        }
        cx
    }

    pub(crate) fn client(&self) -> &Client {
        &self.runtime.client
    }

    /// For informers of a controller's own: all reading is done as the manager, whose role allows it.
    pub(crate) fn reader(&self) -> Client {
        self.runtime.informers.client()
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
