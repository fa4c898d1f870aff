//! Disruption budgets: how many pods of a set may be evicted now. The API server's `pods/eviction` spends what the
//! status allows; this controller counts anew.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/disruptions/>.

mod plan;
mod scale;
mod stale;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use minato_api::k8s::core::v1::{Pod, ReplicationController};
use minato_api::k8s::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use minato_api::kube::api::PostParams;
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, EventKind, Informer, Next, Object, ObjectKey, Recorder};

use crate::Context;
use crate::error::{Error, Result, is_conflict, is_not_found};
use crate::ops;

struct Disruption {
    cx: Context,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Disruption {
        cx: cx.clone(),
        budgets: cx.informer(),
        pods: cx.informer(),
        deployments: cx.informer(),
        replica_sets: cx.informer(),
        stateful_sets: cx.informer(),
        replication_controllers: cx.informer(),
        recorder: cx.runtime.recorder("controllermanager"),
    });
    stale::start(cx, &this.pods);
    let of_pods = this.budgets.clone();
    let controller = Controller::new("disruption", &cx.runtime)
        .watch_primary(&this.budgets)
        .watch(&this.pods, move |change, add| pod_changed(change, &of_pods, add));
    let controller = watch_scale(controller, &this.deployments, &this.budgets, |object| {
        object.spec.as_ref().and_then(|spec| spec.replicas)
    });
    let controller = watch_scale(controller, &this.replica_sets, &this.budgets, |object| {
        object.spec.as_ref().and_then(|spec| spec.replicas)
    });
    let controller = watch_scale(controller, &this.stateful_sets, &this.budgets, |object| {
        object.spec.as_ref().and_then(|spec| spec.replicas)
    });
    let controller = watch_scale(controller, &this.replication_controllers, &this.budgets, |object| {
        object.spec.as_ref().and_then(|spec| spec.replicas)
    });
    controller.run(move |key| {
        let this = this.clone();
        async move { this.reconcile(key).await }
    });
}

/// A share of pods is one of those that there should be, and that may change before any pod does.
fn watch_scale<K: Object>(
    controller: Controller,
    owners: &Informer<K>,
    budgets: &Informer<PodDisruptionBudget>,
    replicas: fn(&K) -> Option<i32>,
) -> Controller {
    let budgets = budgets.clone();
    controller.watch(owners, move |change, add| {
        let scaled = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => replicas(old) != replicas(new),
            Change::Deleted(_) => false,
        };
        if scaled {
            let namespace = ops::namespace(change.object().meta());
            for budget in budgets.list_in(namespace) {
                add(ObjectKey::of(budget.as_ref()));
            }
        }
    })
}

fn pod_changed(change: &Change<Pod>, budgets: &Informer<PodDisruptionBudget>, add: &mut dyn FnMut(ObjectKey)) {
    let pod = change.object();
    for budget in budgets.list_in(ops::namespace(&pod.metadata)) {
        let Ok(selector) = selector(&budget) else { continue };
        let guards = |pod: &Pod| selector.matches_map(pod.metadata.labels.as_ref().unwrap_or(&Default::default()));
        if guards(pod) || change.old().is_some_and(|old| guards(old)) {
            add(ObjectKey::of(budget.as_ref()));
        }
    }
}

/// Which pods a budget guards: none without a selector, all of the namespace with an empty one.
fn selector(budget: &PodDisruptionBudget) -> Result<LabelSelector> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Ok(LabelSelector::from_typed(selector)?)
}

impl Disruption {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(budget) = self.budgets.get(&key) else {
            return Ok(Next::Done);
        };
        match self.count(&budget).await {
            Err(Error::Api(error)) if is_conflict(&error) => Err(error.into()),
            Err(error) => {
                // Nothing may be evicted on the strength of numbers that nobody vouches for.
                self.write(&budget, plan::failed(&budget, &error.to_string(), Timestamp::now()))
                    .await?;
                match error {
                    Error::Api(_) => Err(error),
                    // Only a change can mend it.
                    _ => Ok(Next::Done),
                }
            }
            Ok(next) => Ok(next),
        }
    }

    async fn count(&self, budget: &PodDisruptionBudget) -> Result<Next> {
        let (name, namespace) = (ops::name(&budget.metadata), ops::namespace(&budget.metadata));
        let selector = selector(budget)?;
        let mut pods = self.pods.list_in(namespace);
        pods.retain(|pod| selector.matches_map(pod.metadata.labels.as_ref().unwrap_or(&Default::default())));
        if pods.is_empty() {
            self.recorder
                .event(budget, EventKind::Normal, "NoPods", "No matching pods found");
        }
        let (expected, desired) = match self.expected(budget, &pods).await {
            Ok(counts) => counts,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                let reason = "CalculateExpectedPodCountFailed";
                self.recorder.event(budget, EventKind::Warning, reason, message);
                return Err(error);
            }
        };
        let now = Timestamp::now();
        let disrupted = plan::disrupted(budget, &pods, now);
        for pod in &disrupted.overdue {
            let message = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
            self.recorder
                .event(pod.as_ref(), EventKind::Warning, "NotDeleted", message);
        }
        let counts = plan::Counts {
            expected,
            desired,
            healthy: plan::healthy(&pods, &disrupted.pods),
        };
        self.write(budget, plan::status(budget, &counts, disrupted.pods, now))
            .await?;
        Ok(disrupted.recheck.map_or(Next::Done, Next::After))
    }

    /// How many pods there should be, and how many of them healthy.
    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<(i32, i32)> {
        let mut expected = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        if plan::needs_scale(budget) {
            let found = self.scale_of(ops::namespace(&budget.metadata), pods).await?;
            expected = found.total;
            if !found.unmanaged.is_empty() {
                let selector = selector(budget)?;
                let message = format!(
                    "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a \
                     result, the status of the PDB cannot be calculated correctly, which may result in undefined \
                     behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an \
                     integer value."
                );
                self.recorder
                    .event(budget, EventKind::Warning, "UnmanagedPods", message);
            }
        }
        Ok((expected, plan::desired(budget, expected)?))
    }

    /// Writes a status, unless somebody, such as an eviction, wrote another one meanwhile.
    async fn write(&self, budget: &PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> Result<()> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api = ops::namespaced::<PodDisruptionBudget>(self.cx.client(), ops::namespace(&budget.metadata));
        let updated = PodDisruptionBudget {
            status: Some(status),
            ..budget.clone()
        };
        let (name, params) = (ops::name(&budget.metadata), PostParams::default());
        match api.replace_status(name, &params, &updated).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
