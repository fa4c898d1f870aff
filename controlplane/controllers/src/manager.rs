//! Starts and stops the controllers.

use std::sync::Arc;

use minato_runtime::{Runtime, Tasks};

use crate::{Context, ControllerManagerConfig};
use crate::{
    certificates, clusterrole, deployment, endpoints, endpointslice, gc, job, namespace, nodeipam, nodelifecycle,
    nodettl, podgc, replicaset, resourcequota, rootca, serviceaccount, statefulset, storageprotection, tainteviction,
    tokencleaner,
};

type Start = fn(&Context);

/// All controllers by upstream's names.
#[rustfmt::skip]
const CONTROLLERS: &[(&str, Start)] = &[
    ("serviceaccount-controller", serviceaccount::start),
    ("root-ca-certificate-publisher-controller", rootca::start),
    ("namespace-controller", namespace::start),
    ("replicaset-controller", replicaset::start),
    ("replicationcontroller-controller", replicaset::start_replication),
    ("deployment-controller", deployment::start),
    ("statefulset-controller", statefulset::start),
    ("job-controller", job::start),
    ("endpointslice-controller", endpointslice::start),
    ("endpoints-controller", endpoints::start),
    ("garbage-collector-controller", gc::start),
    ("clusterrole-aggregation-controller", clusterrole::start),
    ("certificatesigningrequest-approving-controller", certificates::start_approver),
    ("certificatesigningrequest-signing-controller", certificates::start_signer),
    ("certificatesigningrequest-cleaner-controller", certificates::start_cleaner),
    ("node-ipam-controller", nodeipam::start),
    ("node-lifecycle-controller", nodelifecycle::start),
    ("taint-eviction-controller", tainteviction::start),
    ("pod-garbage-collector-controller", podgc::start),
    ("resourcequota-controller", resourcequota::start),
    ("ttl-controller", nodettl::start),
    ("token-cleaner-controller", tokencleaner::start),
    ("persistentvolumeclaim-protection-controller", storageprotection::start_claims),
    ("persistentvolume-protection-controller", storageprotection::start_volumes),
];

/// The controllers of one cluster, as a value.
pub struct ControllerManager;

impl ControllerManager {
    /// Names that [`ControllerManagerConfig::disabled`] may hold.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CONTROLLERS.iter().map(|(name, _)| *name)
    }

    /// Starts all controllers that are not disabled, at once: none waits for another. They run on the informers of
    /// `runtime`, which other components of the process may share, and end with its tasks or by the handle. Of several
    /// replicas only the elected leader may call this; see `minato_runtime::LeaderElector`.
    pub fn start(config: ControllerManagerConfig, runtime: &Runtime) -> ControllerManagerHandle {
        let tasks = runtime.tasks.child();
        let cx = Context {
            runtime: runtime.with_tasks(tasks.clone()),
            config: Arc::new(config),
        };
        for (name, start) in CONTROLLERS {
            if !cx.config.disabled.contains(*name) {
                start(&cx);
            }
        }
        ControllerManagerHandle { tasks }
    }
}

/// Running controllers. Dropping it does not stop them.
pub struct ControllerManagerHandle {
    tasks: Tasks,
}

impl ControllerManagerHandle {
    /// Stops all controllers and waits for them.
    pub async fn stop(&self) {
        self.tasks.stop().await;
    }

    /// Fires when the controllers stop, by [`ControllerManagerHandle::stop`] or because one of them panicked.
    pub async fn stopped(&self) {
        self.tasks.token().cancelled().await;
    }

    /// Why they stopped by themselves, if they did.
    pub fn failure(&self) -> Option<String> {
        self.tasks.failure()
    }
}
