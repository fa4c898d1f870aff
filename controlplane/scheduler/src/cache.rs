//! The nodes and what runs on them, kept by changes: the cost of an update does not grow with the cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, Pod, Taint};
use minato_runtime::ObjectKey;

use crate::pod::{self, Namespaces, PodInfo};
use crate::resources::Resources;

/// A node and the sum of its pods.
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    /// Absent while pods name a node that is not known.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) requested: Resources,
    /// With defaults for what is not requested.
    pub(crate) scored: Resources,
    pub(crate) pods: Vec<Arc<PodInfo>>,
    /// How many of the pods want others near or away.
    pub(crate) choosy: usize,
    /// Bytes by image name.
    pub(crate) images: HashMap<String, i64>,
}

impl NodeInfo {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            node: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources::default(),
            requested: Resources::default(),
            scored: Resources::default(),
            pods: Vec::new(),
            choosy: 0,
            images: HashMap::new(),
        }
    }

    fn set(&mut self, node: &Arc<Node>) {
        self.labels = node.metadata.labels.clone().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        self.taints = spec.taints.unwrap_or_default();
        self.unschedulable = spec.unschedulable == Some(true);
        let status = node.status.clone().unwrap_or_default();
        self.allocatable = Resources::from_list(&status.allocatable.or(status.capacity).unwrap_or_default());
        self.images.clear();
        for image in status.images.iter().flatten() {
            let size = image.size_bytes.unwrap_or(0);
            self.images
                .extend(image.names.iter().flatten().map(|name| (name.clone(), size)));
        }
        self.node = Some(node.clone());
    }

    pub(crate) fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.scored.add(&pod.scored);
        self.choosy += usize::from(pod.is_choosy());
        self.pods.push(pod);
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        if let Some(at) = self.pods.iter().position(|pod| pod.uid == uid) {
            let pod = self.pods.swap_remove(at);
            self.requested.subtract(&pod.requests);
            self.scored.subtract(&pod.scored);
            self.choosy -= usize::from(pod.is_choosy());
        }
    }
}

#[derive(Debug)]
struct Placed {
    node: String,
    /// Decided here, and not yet seen in the API.
    assumed: bool,
}

/// All nodes. A pod counts from the moment that a node was picked for it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    nodes: Vec<NodeInfo>,
    by_name: HashMap<String, usize>,
    /// Where each pod counts, by uid.
    placed: HashMap<String, Placed>,
    namespaces: Arc<Namespaces>,
    /// Pods for which room is being made, by uid, and on which node.
    nominated: HashMap<String, (String, Arc<PodInfo>)>,
}

impl Cache {
    /// Counts the pod as to come to the node.
    pub(crate) fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.nominated.insert(pod.uid.clone(), (node.to_owned(), pod));
    }

    pub(crate) fn withdraw(&mut self, uid: &str) {
        self.nominated.remove(uid);
    }

    /// The node on which room is being made for the pod.
    pub(crate) fn nominated_node(&self, uid: &str) -> Option<&str> {
        self.nominated.get(uid).map(|(node, _)| node.as_str())
    }

    /// The pods for which room is being made on the node.
    pub(crate) fn nominated_to(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.nominated
            .values()
            .filter(move |(on, _)| on == node)
            .map(|(_, pod)| pod)
    }

    /// The labels of namespaces; shared, as they seldom change.
    pub(crate) fn namespaces(&self) -> &Arc<Namespaces> {
        &self.namespaces
    }

    pub(crate) fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) {
        Arc::make_mut(&mut self.namespaces).set(name, labels);
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) {
        Arc::make_mut(&mut self.namespaces).remove(name);
    }

    /// The nodes that exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().filter(|node| node.node.is_some())
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name
            .get(name)
            .map(|at| &self.nodes[*at])
            .filter(|node| node.node.is_some())
    }

    fn entry(&mut self, name: &str) -> &mut NodeInfo {
        let at = *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            self.nodes.push(NodeInfo::new(name));
            self.nodes.len() - 1
        });
        &mut self.nodes[at]
    }

    pub(crate) fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        self.entry(&name).set(node);
    }

    /// The pods of a node that is gone still count until they go too: the node may come back.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(at) = self.by_name.get(name).copied() else {
            return;
        };
        self.nodes[at].node = None;
        self.drop_if_empty(at);
    }

    fn drop_if_empty(&mut self, at: usize) {
        if self.nodes[at].node.is_some() || !self.nodes[at].pods.is_empty() {
            return;
        }
        let gone = self.nodes.swap_remove(at);
        self.by_name.remove(&gone.name);
        if let Some(moved) = self.nodes.get(at) {
            self.by_name.insert(moved.name.clone(), at);
        }
    }

    /// Counts a pod on the node that was picked for it.
    pub(crate) fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.withdraw(&pod.uid);
        self.count(pod, node, true);
    }

    /// Takes back what was assumed. A pod that the API shows on a node stays counted there.
    pub(crate) fn forget(&mut self, uid: &str) {
        if self.placed.get(uid).is_some_and(|placed| placed.assumed) {
            self.remove_pod(uid);
        }
    }

    fn count(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        self.remove_pod(&pod.uid);
        let placed = Placed {
            node: node.to_owned(),
            assumed,
        };
        self.placed.insert(pod.uid.clone(), placed);
        self.entry(node).add(pod);
    }

    /// What an informer says of a pod that has a node.
    pub(crate) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        match pod::node_name(pod) {
            Some(node) if !pod::is_finished(pod) => {
                let node = node.to_owned();
                self.count(Arc::new(PodInfo::new(pod.clone())), &node, false);
            }
            Some(_) => self.remove_pod(uid),
            // Not yet bound as far as the API is concerned; it may be assumed.
            None => {}
        }
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        let Some(Placed { node, .. }) = self.placed.remove(uid) else {
            return;
        };
        if let Some(at) = self.by_name.get(&node).copied() {
            self.nodes[at].remove(uid);
            self.drop_if_empty(at);
        }
    }

    /// Whether the pod counts somewhere already.
    pub(crate) fn is_placed(&self, uid: &str) -> bool {
        self.placed.contains_key(uid)
    }
}

/// Key of a pod for the queue: a pod that was made anew under its name is another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PodId {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>, phase: &str) -> Arc<Pod> {
        let value = json!({
            "metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(value).unwrap_or_default())
    }

    #[test]
    fn a_pod_counts_once_wherever_it_is() {
        let mut cache = Cache::default();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap_or_default();
        cache.set_node(&Arc::new(node));
        cache.assume(Arc::new(PodInfo::new(pod("a", None, "Pending"))), "n");
        cache.set_pod(&pod("a", Some("n"), "Running"));
        assert_eq!(
            cache.node("n").map(|n| (n.requested.milli_cpu, n.pods.len())),
            Some((1000, 1))
        );
        cache.set_pod(&pod("a", Some("n"), "Succeeded"));
        assert_eq!(
            cache.node("n").map(|n| (n.requested.milli_cpu, n.pods.len())),
            Some((0, 0))
        );
        assert!(!cache.is_placed("a"));
    }

    #[test]
    fn only_what_is_assumed_is_taken_back() {
        let mut cache = Cache::default();
        cache.assume(Arc::new(PodInfo::new(pod("a", None, "Pending"))), "n");
        cache.forget("a");
        assert!(!cache.is_placed("a"));
        // The reply to the binding was lost, and the pod is bound all the same.
        cache.assume(Arc::new(PodInfo::new(pod("a", None, "Pending"))), "n");
        cache.set_pod(&pod("a", Some("m"), "Pending"));
        cache.forget("a");
        assert!(cache.is_placed("a"));
    }

    #[test]
    fn pods_of_an_unknown_node_count_when_it_appears() {
        let mut cache = Cache::default();
        cache.set_pod(&pod("a", Some("n"), "Running"));
        assert_eq!(cache.nodes().count(), 0);
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap_or_default();
        cache.set_node(&Arc::new(node));
        assert_eq!(cache.node("n").map(|n| n.requested.milli_cpu), Some(1000));
        cache.remove_node("n");
        cache.remove_pod("a");
        assert!(cache.by_name.is_empty() && cache.nodes.is_empty());
    }
}
