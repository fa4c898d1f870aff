//! Deletes pods from nodes with a `NoExecute` taint that they do not tolerate, or no longer.
//!
//! A pod's time runs from when the taint was put on, as the taint itself tells, so a restart neither hastens nor
//! delays anything. Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>.

mod plan;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Node, Pod, Taint};
use minato_runtime::{Change, Controller, EventKind, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;

use crate::Context;
use crate::error::Result;
use crate::taints::NO_EXECUTE;
use crate::{ops, pods};
use plan::{Fate, fate};

#[derive(Default)]
struct State {
    /// Taints by node, and when they were first seen.
    seen: HashMap<String, Vec<(Taint, Timestamp)>>,
    /// Pods whose deletion is planned, by uid.
    marked: HashSet<String>,
}

struct TaintEviction {
    cx: Context,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    recorder: Recorder,
    state: Mutex<State>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let pods: Informer<Pod> = cx.informer();
    pods::index_by_node(&pods);
    let this = Arc::new(TaintEviction {
        cx: cx.clone(),
        nodes: cx.informer(),
        pods,
        recorder: cx.runtime.recorder("taint-eviction-controller"),
        state: Mutex::default(),
    });
    let (on_node, on_pod) = (this.clone(), this.clone());
    Controller::new("taint-eviction", &cx.runtime)
        .workers(8)
        .watch(&this.pods, move |change, add| {
            let pod = change.object();
            if matches!(change, Change::Deleted(_)) {
                on_pod.state.lock().marked.remove(ops::uid(&pod.metadata));
            } else if on_pod.is_concerned(pod) {
                add(ObjectKey::of(pod.as_ref()));
            }
        })
        .watch(&this.nodes, move |change, add| on_node.node_changed(change, add))
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

fn executing(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == NO_EXECUTE).cloned().collect()
}

impl TaintEviction {
    /// Most pods are on nodes without such taints, and are no work. A node that the cache does not show yet is looked at
    /// with all its pods when it does.
    fn is_concerned(&self, pod: &Pod) -> bool {
        let node = pods::node_name(pod).and_then(|name| self.nodes.get_cluster(name));
        let marked = || self.state.lock().marked.contains(ops::uid(&pod.metadata));
        node.is_some_and(|node| !executing(&node).is_empty()) || marked()
    }

    fn node_changed(&self, change: &Change<Node>, add: &mut dyn FnMut(ObjectKey)) {
        let node = change.object();
        let name = ops::name(&node.metadata);
        let taints = executing(node);
        {
            let mut state = self.state.lock();
            let known = state.seen.remove(name).unwrap_or_default();
            let seen: Vec<_> = taints
                .iter()
                .map(|taint| {
                    let known = known.iter().find(|(seen, _)| seen == taint);
                    (taint.clone(), known.map_or_else(Timestamp::now, |(_, since)| *since))
                })
                .collect();
            if !seen.is_empty() && !matches!(change, Change::Deleted(_)) {
                state.seen.insert(name.to_owned(), seen);
            }
        }
        let before = change.old().map(|old| executing(old)).unwrap_or_default();
        if before != taints {
            for pod in pods::on_node(&self.pods, name) {
                add(ObjectKey::of(pod.as_ref()));
            }
        }
    }

    /// The node's taints that move pods away, and since when.
    fn taints(&self, node: &Node) -> Vec<(Taint, Timestamp)> {
        let state = self.state.lock();
        let seen = state.seen.get(ops::name(&node.metadata));
        let since = |taint: &Taint| {
            let seen = seen
                .and_then(|all| all.iter().find(|(seen, _)| seen == taint))
                .map(|(_, since)| *since);
            // The taint tells whole seconds, so it may tell up to one too little; but it also tells what was before us.
            let told = taint
                .time_added
                .as_ref()
                .map(|time| time.0 + SignedDuration::from_secs(1));
            seen.into_iter().chain(told).min().unwrap_or_else(Timestamp::now)
        };
        executing(node)
            .into_iter()
            .map(|taint| (taint.clone(), since(&taint)))
            .collect()
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(pod) = self.pods.get(&key).filter(|pod| pods::is_active(pod)) else {
            return Ok(Next::Done);
        };
        let Some(node) = pods::node_name(&pod).and_then(|name| self.nodes.get_cluster(name)) else {
            return Ok(Next::Done);
        };
        let tolerations = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.clone())
            .unwrap_or_default();
        let uid = ops::uid(&pod.metadata).to_owned();
        match fate(&self.taints(&node), &tolerations) {
            Fate::Stays => {
                if self.state.lock().marked.remove(&uid) {
                    let text = format!("Cancelling deletion of Pod {key}");
                    self.recorder
                        .event(pod.as_ref(), EventKind::Normal, "TaintManagerEviction", text);
                }
                Ok(Next::Done)
            }
            Fate::Goes(at) => {
                let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                self.state.lock().marked.insert(uid.clone());
                if !left.is_zero() {
                    return Ok(Next::After(left));
                }
                self.evict(&pod, &key).await?;
                self.state.lock().marked.remove(&uid);
                Ok(Next::Done)
            }
        }
    }

    async fn evict(&self, pod: &Pod, key: &ObjectKey) -> Result<()> {
        let text = format!("Marking for deletion Pod {key}");
        self.recorder
            .event(pod, EventKind::Normal, "TaintManagerEviction", text);
        let api = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        pods::disrupt(
            &api,
            pod,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            false,
        )
        .await?;
        Ok(ops::delete(&api, &pod.metadata).await?)
    }
}
