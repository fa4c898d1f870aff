//! Finds out which nodes are alive, says so in their conditions, and turns conditions into taints that keep pods out
//! or move them away.
//!
//! ```text
//!  Lease, status ── health: last sign of life ── silent: conditions Unknown, pods not ready
//!  conditions ───── taint: NoSchedule at once, NoExecute when the zone's turn comes (zones)
//! ```
//!
//! Renewals of leases only move a node's deadline; no work is done for them. Moving the pods is the
//! taint-eviction-controller's.
//! Source: <https://kubernetes.io/docs/reference/node/node-status/>,
//! <https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>.

mod health;
mod taint;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_api::meta_v1::Time;
use minato_runtime::{Change, Controller, EventKind, Informer, Next, ObjectKey, Recorder, WatchScope, WorkQueue};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::Context;
use crate::error::{Result, is_conflict, is_not_found};
use crate::{ops, pods};
use health::Beats;
use taint::Eviction;
use zones::{Pace, Shift, Zones, zone_of};

const LEASES: &str = "kube-node-lease";
/// Labels whose older names some programs still read.
const OLD_LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

struct State {
    beats: Beats,
    zones: Zones,
    /// Nodes that stopped being ready, whose pods have not been told yet.
    fallen: HashSet<String>,
}

struct NodeLifecycle {
    cx: Context,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    queue: WorkQueue<ObjectKey>,
    recorder: Recorder,
    state: Mutex<State>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let config = &cx.config;
    let pods: Informer<Pod> = cx.informer();
    pods::index_by_node(&pods);
    let controller = Controller::new("node-lifecycle", &cx.runtime).workers(10);
    let this = Arc::new(NodeLifecycle {
        cx: cx.clone(),
        nodes: cx.informer(),
        pods: pods.clone(),
        queue: controller.queue(),
        recorder: cx.runtime.recorder("node-controller"),
        state: Mutex::new(State {
            beats: Beats::default(),
            zones: Zones::new(Pace {
                normal: config.node_eviction_rate,
                slow: config.node_slow_eviction_rate,
                large: config.large_zone,
                threshold: config.unhealthy_zone_threshold,
            }),
            fallen: HashSet::new(),
        }),
    });
    let leases: Informer<Lease> = Informer::start(
        Api::namespaced(cx.reader(), LEASES),
        WatchScope::default(),
        &cx.runtime.tasks,
    );
    let (on_node, on_lease) = (this.clone(), this.clone());
    controller
        .watch_primary(&this.nodes)
        .watch(&this.nodes, move |change, _| on_node.observe(change))
        .watch(&leases, move |change, _| {
            if !matches!(change, Change::Deleted(_)) {
                on_lease.state.lock().beats.lease(change.object(), Instant::now());
            }
        })
        .reads(&pods)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl NodeLifecycle {
    fn observe(&self, change: &Change<Node>) {
        let mut state = self.state.lock();
        let node = change.object();
        let name = ops::name(&node.metadata);
        if matches!(change, Change::Deleted(_)) {
            state.beats.forget(name);
            state.zones.forget(name);
            state.fallen.remove(name);
            return;
        }
        state.beats.node(node, Instant::now());
        let was = change.old().and_then(|old| health::ready(old));
        let is = health::ready(node);
        if was.is_none() || was != is || change.old().is_some_and(|old| zone_of(old) != zone_of(node)) {
            state.zones.observe(node);
        }
        if was == Some("True") && is != Some("True") {
            state.fallen.insert(name.to_owned());
        }
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(node) = self.nodes.get(&key) else {
            return Ok(Next::Done);
        };
        let left = self.left(&node, &key.name);
        if left.is_zero()
            && let Some(conditions) = health::unknown(&node, Timestamp::now())
        {
            tracing::info!(node = key.name, "no sign of life; conditions become Unknown");
            let patch = json!({"status": {"conditions": conditions}});
            // The cache shows it soon, and everything else follows then.
            return settle(ops::merge_status(&self.api(), &node.metadata, patch).await);
        }
        self.tell_pods(&node, &key.name).await?;
        let (patch, wait) = self.plan(&node);
        if let Some(patch) = patch {
            settle(ops::merge(&self.api(), &node.metadata, patch).await)?;
        }
        let alive = if left.is_zero() { Next::Done } else { Next::After(left) };
        Ok(wait.map_or(alive, |wait| alive.sooner(Next::After(wait))))
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.cx.client().clone())
    }

    /// What is left of the node's grace. Notices when the cluster as a whole changes.
    fn left(&self, node: &Node, name: &str) -> Duration {
        let config = &self.cx.config;
        let grace = match health::ready(node) {
            Some(_) => config.node_monitor_grace,
            None => config.node_startup_grace,
        };
        let now = Instant::now();
        let (left, shift) = {
            let mut state = self.state.lock();
            let shift = state.zones.assess();
            if shift == Shift::Recovered {
                // While nothing reached us, nobody could be heard.
                state.beats.reset(now);
            }
            (state.beats.left(name, grace, now), shift)
        };
        if shift != Shift::Same {
            self.nodes.keys().into_iter().for_each(|key| self.queue.add(key));
        }
        left
    }

    /// Taints and labels to write, and how long the node waits for its turn.
    fn plan(&self, node: &Node) -> (Option<Value>, Option<Duration>) {
        let (eviction, wait) = self.eviction(node);
        let mut patch = Map::new();
        if let Some(taints) = taint::desired(node, eviction, Timestamp::now()) {
            patch.insert("spec".to_owned(), json!({"taints": taints}));
        }
        let mut labels = Map::new();
        for (new, old) in OLD_LABELS {
            if let Some(value) = ops::label(&node.metadata, new)
                && ops::label(&node.metadata, old) != Some(value)
            {
                labels.insert(old.to_owned(), json!(value));
            }
        }
        if !labels.is_empty() {
            patch.insert("metadata".to_owned(), json!({"labels": labels}));
        }
        ((!patch.is_empty()).then_some(Value::Object(patch)), wait)
    }

    fn eviction(&self, node: &Node) -> (Eviction, Option<Duration>) {
        let mut state = self.state.lock();
        if state.zones.all_down() {
            return (Eviction::Never, None);
        }
        // A node that is being emptied stays so, whichever way it is out of order.
        if taint::evicting(node).is_none() || taint::is_evicting(node) {
            return (Eviction::Now, None);
        }
        match state.zones.take_turn(&zone_of(node)) {
            Ok(()) => (Eviction::Now, None),
            Err(wait) => (Eviction::Later, wait),
        }
    }

    /// Takes the pods of a node that fell out of the ready ones: nobody else would, if its kubelet is silent.
    async fn tell_pods(&self, node: &Node, name: &str) -> Result<()> {
        let fallen = self.state.lock().fallen.contains(name);
        if !fallen && health::ready(node) != Some("Unknown") {
            return Ok(());
        }
        if fallen {
            let text = format!("Node {name} status is now: NodeNotReady");
            self.recorder.event(node, EventKind::Normal, "NodeNotReady", text);
        }
        let told = pods::on_node(&self.pods, name);
        ops::all(
            told.iter()
                .filter(|pod| pods::is_ready(pod))
                .map(|pod| self.not_ready(pod)),
        )
        .await?;
        self.state.lock().fallen.remove(name);
        Ok(())
    }

    async fn not_ready(&self, pod: &Pod) -> Result<()> {
        let status = pod.status.as_ref();
        let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        for condition in conditions
            .iter_mut()
            .filter(|condition| condition.type_ == health::READY)
        {
            condition.status = "False".to_owned();
            condition.last_transition_time = Some(Time(Timestamp::now()));
        }
        let api = ops::namespaced::<Pod>(self.cx.client(), ops::namespace(&pod.metadata));
        let patch = json!({"status": {"conditions": conditions}});
        match ops::merge_status(&api, &pod.metadata, patch).await {
            Ok(_) => {
                self.recorder
                    .event(pod, EventKind::Warning, "NodeNotReady", "Node is not ready");
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A conflict means that the cache will show something newer, which wakes us; a node that is gone needs nothing.
fn settle(sent: std::result::Result<Node, minato_api::kube::Error>) -> Result<Next> {
    match sent {
        Ok(_) => Ok(Next::Done),
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(Next::Done),
        Err(error) => Err(error.into()),
    }
}
