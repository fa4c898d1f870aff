//! Clears pods away that nobody else will: those of nodes that are gone, those that were never placed and are being
//! deleted, those on machines that a human declared dead, and finished ones when there are too many.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_api::kube::api::DeleteParams;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Context;
use crate::error::Result;
use crate::{ops, pods};
use plan::Fault;

/// Finished pods are counted this long after one finished.
const COUNT_AFTER: Duration = Duration::from_secs(20);
const FINISHED: &str = "finished";

struct PodGc {
    cx: Context,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Since when nodes that pods name are missing.
    missing: Mutex<HashMap<String, Instant>>,
}

/// The key for counting finished pods. No pod is without a name.
fn census() -> ObjectKey {
    ObjectKey::cluster("")
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let pods: Informer<Pod> = cx.informer();
    pods::index_by_node(&pods);
    pods.add_index(FINISHED, |pod| {
        let finished = pods::is_finished(pod) && !pods::is_terminating(pod);
        finished.then(String::new).into_iter().collect()
    });
    let this = Arc::new(PodGc {
        cx: cx.clone(),
        nodes: cx.informer(),
        pods,
        missing: Mutex::default(),
    });
    let controller = Controller::new("pod-gc", &cx.runtime);
    let (queue, of_nodes) = (controller.queue(), this.pods.clone());
    let (on_node, on_pod) = (this.clone(), this.clone());
    controller
        .workers(5)
        .watch(&this.pods, move |change, add| {
            let pod = change.object();
            if matches!(change, Change::Deleted(_)) {
                return;
            }
            if pods::is_finished(pod) && !change.old().is_some_and(|old| pods::is_finished(old)) {
                queue.add_after(census(), COUNT_AFTER);
            }
            // Whether its node is there is looked at again when all caches are in step.
            let node = pods::node_name(pod).and_then(|name| on_pod.nodes.get_cluster(name));
            if plan::fault(pod, node.as_deref()).is_some() {
                add(ObjectKey::of(pod.as_ref()));
            }
        })
        .watch(&this.nodes, move |change, add| {
            let node = change.object();
            let name = ops::name(&node.metadata);
            let gone = matches!(change, Change::Deleted(_));
            if !gone {
                on_node.missing.lock().remove(name);
            }
            if gone || plan::is_out_of_service(node) {
                for pod in pods::on_node(&of_nodes, name) {
                    add(ObjectKey::of(pod.as_ref()));
                }
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl PodGc {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        if key == census() {
            return self.count().await;
        }
        let Some(pod) = self.pods.get(&key) else {
            return Ok(Next::Done);
        };
        let node = pods::node_name(&pod).and_then(|name| self.nodes.get_cluster(name));
        match plan::fault(&pod, node.as_deref()) {
            None => Ok(Next::Done),
            Some(Fault::NodeMissing) => self.orphan(&pod, &key).await,
            Some(fault) => {
                self.remove(&pod, &key, fault).await?;
                Ok(Next::Done)
            }
        }
    }

    async fn orphan(&self, pod: &Pod, key: &ObjectKey) -> Result<Next> {
        let Some(name) = pods::node_name(pod) else {
            return Ok(Next::Done);
        };
        let since = *self.missing.lock().entry(name.to_owned()).or_insert_with(Instant::now);
        let left = (since + self.cx.config.orphan_quarantine).saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        // The cache may be behind: ask before taking a pod away from a node that is there.
        let nodes: Api<Node> = Api::all(self.cx.client().clone());
        if nodes.get_opt(name).await?.is_some() {
            self.missing.lock().remove(name);
            return Ok(Next::After(self.cx.config.orphan_quarantine));
        }
        self.remove(pod, key, Fault::NodeMissing).await?;
        if pods::on_node(&self.pods, name).len() <= 1 {
            self.missing.lock().remove(name);
        }
        Ok(Next::Done)
    }

    async fn count(&self) -> Result<Next> {
        let threshold = self.cx.config.terminated_pod_threshold;
        let surplus = plan::surplus(self.pods.indexed(FINISHED, ""), threshold);
        let jobs = surplus.iter().map(|pod| async move {
            let key = ObjectKey::of(pod.as_ref());
            self.remove(pod, &key, Fault::TooMany).await
        });
        ops::all(jobs).await?;
        Ok(Next::Done)
    }

    /// Deletes a pod for good: there is no kubelet to wait for.
    async fn remove(&self, pod: &Pod, key: &ObjectKey, fault: Fault) -> Result<()> {
        tracing::info!(pod = %key, ?fault, "removing pod");
        let api = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        if let Some(message) = fault.message() {
            pods::disrupt(&api, pod, "DeletionByPodGC", message, true).await?;
        } else if !pods::is_finished(pod) {
            pods::fail(&api, pod).await?;
        }
        let params = DeleteParams::default().grace_period(0);
        Ok(ops::delete_with(&api, &pod.metadata, params).await?)
    }
}
