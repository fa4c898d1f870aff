//! Starts and stops the controllers.

use std::sync::Arc;

use minato_runtime::{Runtime, Tasks};

use crate::{Context, ControllerManagerConfig};
use crate::{
    certificates, clusterrole, cronjob, daemonset, deployment, disruption, endpoints, endpointslice, gc, job,
    namespace, nodeipam, nodelifecycle, nodettl, podautoscaler, podgc, replicaset, resourcequota, rootca,
    serviceaccount, statefulset, storageprotection, tainteviction, tokencleaner, ttlafterfinished,
};

type Start = fn(&Context);

/// All controllers by upstream's names, and the service account of `kube-system` that each acts as.
#[rustfmt::skip]
const CONTROLLERS: &[(&str, &str, Start)] = &[
    ("serviceaccount-controller", "service-account-controller", serviceaccount::start),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", rootca::start),
    ("namespace-controller", "namespace-controller", namespace::start),
    ("replicaset-controller", "replicaset-controller", replicaset::start),
    ("replicationcontroller-controller", "replication-controller", replicaset::start_replication),
    ("deployment-controller", "deployment-controller", deployment::start),
    ("statefulset-controller", "statefulset-controller", statefulset::start),
    ("daemonset-controller", "daemon-set-controller", daemonset::start),
    ("job-controller", "job-controller", job::start),
    ("cronjob-controller", "cronjob-controller", cronjob::start),
    ("ttl-after-finished-controller", "ttl-after-finished-controller", ttlafterfinished::start),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler", podautoscaler::start),
    ("disruption-controller", "disruption-controller", disruption::start),
    ("endpointslice-controller", "endpointslice-controller", endpointslice::start),
    ("endpoints-controller", "endpoint-controller", endpoints::start),
    ("garbage-collector-controller", "generic-garbage-collector", gc::start),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation-controller", clusterrole::start),
    ("certificatesigningrequest-approving-controller", "certificate-controller", certificates::start_approver),
    ("certificatesigningrequest-signing-controller", "certificate-controller", certificates::start_signer),
    ("certificatesigningrequest-cleaner-controller", "certificate-controller", certificates::start_cleaner),
    ("node-ipam-controller", "node-controller", nodeipam::start),
    ("node-lifecycle-controller", "node-controller", nodelifecycle::start),
    ("taint-eviction-controller", "node-controller", tainteviction::start),
    ("pod-garbage-collector-controller", "pod-garbage-collector", podgc::start),
    ("resourcequota-controller", "resourcequota-controller", resourcequota::start),
    ("ttl-controller", "ttl-controller", nodettl::start),
    ("token-cleaner-controller", "token-cleaner", tokencleaner::start),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller", storageprotection::start_claims),
    ("persistentvolume-protection-controller", "pv-protection-controller", storageprotection::start_volumes),
];

/// The controllers of one cluster, as a value.
pub struct ControllerManager;

impl ControllerManager {
    /// Names that [`ControllerManagerConfig::disabled`] may hold.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CONTROLLERS.iter().map(|(name, _, _)| *name)
    }

    /// Starts all controllers that are not disabled, at once: none waits for another. They run on the informers of
    /// `runtime`, which other components of the process may share, and end with its tasks or by the handle. They read as
    /// who that runtime is and write as who [`ControllerManagerConfig::clients`] makes them. Of several replicas only the
    /// elected leader may call this; see `minato_runtime::LeaderElector`.
    pub fn start(config: ControllerManagerConfig, runtime: &Runtime) -> ControllerManagerHandle {
        let tasks = runtime.tasks.child();
        let cx = Context {
            runtime: runtime.with_tasks(tasks.clone()),
            config: Arc::new(config),
        };
        for (name, account, start) in CONTROLLERS {
            if !cx.config.disabled.contains(*name) {
                start(&cx.acting_as(account));
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
