//! The scheduling framework: extension points, and the profile that runs plug-ins at them.
//!
//! A plug-in implements the points that it takes part in; the others do nothing. Source: KEP-624.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cache::{Cache, NodeInfo};
use crate::config::{PREEMPTION, Point, ProfileSpec};
use crate::owners::Owners;
use crate::plugins;
use crate::pod::PodInfo;

/// Best score of a node. Source: the framework's `MaxNodeScore`.
pub(crate) const MAX_SCORE: i64 = 100;

/// Why a pod does not fit, in upstream's words, which users know from events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reasons: Vec<String>,
    /// Whether taking other pods away could help.
    pub(crate) resolvable: bool,
}

impl Rejection {
    /// Something that other pods on the node have to do with.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable: true,
        }
    }

    /// Something about the node itself.
    pub(crate) fn unresolvable(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable: false,
        }
    }
}

/// What a plug-in remembers: anything that can be copied, so that what-if questions have a state of their own.
trait Remembered: Any + Send + Sync {
    fn copy(&self) -> Box<dyn Remembered>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Send + Sync + Clone> Remembered for T {
    fn copy(&self) -> Box<dyn Remembered> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// What plug-ins remember from one point to the next, for one pod.
#[derive(Default)]
pub(crate) struct CycleState {
    data: HashMap<&'static str, Box<dyn Remembered>>,
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        let data = self.data.iter().map(|(name, value)| (*name, value.as_ref().copy()));
        Self { data: data.collect() }
    }
}

impl CycleState {
    pub(crate) fn put<T: Any + Send + Sync + Clone>(&mut self, plugin: &'static str, value: T) {
        self.data.insert(plugin, Box::new(value));
    }

    pub(crate) fn get<T: Any>(&self, plugin: &'static str) -> Option<&T> {
        self.data.get(plugin)?.as_ref().as_any().downcast_ref()
    }

    pub(crate) fn get_mut<T: Any>(&mut self, plugin: &'static str) -> Option<&mut T> {
        self.data.get_mut(plugin)?.as_mut().as_any_mut().downcast_mut()
    }
}

/// What happened in the cluster that may let a waiting pod be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A node appeared, or changed in what can be allocated.
    NodeAdded,
    /// Labels, taints, or whether it takes pods.
    NodeChanged,
    /// A pod that had a node is gone, or finished.
    PodGone,
    /// A pod was given a node, or the labels of one that has a node changed.
    PodPlaced,
    /// The labels of a namespace changed.
    NamespaceChanged,
}

/// A plug-in. All names are upstream's.
pub(crate) trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Whether the pod may enter the queue of pods to be tried.
    fn pre_enqueue(&self, _pod: &PodInfo) -> Result<(), Rejection> {
        Ok(())
    }

    /// Looks at the pod and the whole cluster once, before nodes are tried.
    fn pre_filter(&self, _state: &mut CycleState, _pod: &PodInfo, _cache: &Cache) -> Result<(), Rejection> {
        Ok(())
    }

    /// Changes what was looked at in [`Plugin::pre_filter`] as if `other` had come to the node (`by` is 1) or left it
    /// (-1).
    fn shift(&self, _state: &mut CycleState, _pod: &PodInfo, _other: &PodInfo, _node: &NodeInfo, _by: i64) {}

    /// Whether the node can run the pod.
    fn filter(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Result<(), Rejection> {
        Ok(())
    }

    /// Looks at the nodes that are left, before they are scored.
    fn pre_score(&self, _state: &mut CycleState, _pod: &PodInfo, _nodes: &[&NodeInfo], _cache: &Cache) {}

    /// How good the node is; `None` from plug-ins that do not score.
    fn score(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Option<i64> {
        None
    }

    /// Brings the scores of all nodes to 0 to [`MAX_SCORE`].
    fn normalize(&self, _scores: &mut [i64]) {}

    /// The queueing hint: whether the event may change this plug-in's mind about a pod that it rejected.
    fn wakes(&self, _event: Event, _pod: &PodInfo) -> bool {
        true
    }
}

/// The plug-ins of one scheduler name, in order at each point, with the weights of their scores.
pub(crate) struct Profile {
    pub(crate) name: String,
    /// Share of nodes to score, in percent; 0 to choose by their number.
    percentage: usize,
    /// The share of nodes, in percent, and the number that preemption looks at at least; `None` without preemption.
    pub(crate) preemption: Option<(usize, usize)>,
    all: Vec<Arc<dyn Plugin>>,
    pre_enqueue: Vec<Arc<dyn Plugin>>,
    pre_filter: Vec<Arc<dyn Plugin>>,
    filter: Vec<Arc<dyn Plugin>>,
    pre_score: Vec<Arc<dyn Plugin>>,
    score: Vec<(Arc<dyn Plugin>, i64)>,
    /// Where the next search begins, so that all nodes have their turn when not all are looked at.
    start: AtomicUsize,
}

/// Fewer nodes are all looked at. Source: upstream's `minFeasibleNodesToFind`.
const LEAST_FEASIBLE: usize = 100;

/// How many nodes that can run a pod are enough. Without a percentage, half of a small cluster and 1% less for each 125
/// nodes, down to 5%.
fn enough(percentage: usize, nodes: usize) -> usize {
    if nodes < LEAST_FEASIBLE {
        return nodes;
    }
    let percentage = if percentage == 0 {
        50_usize.saturating_sub(nodes / 125).max(5)
    } else {
        percentage.min(100)
    };
    (nodes * percentage / 100).max(LEAST_FEASIBLE)
}

/// Why no node was found.
#[derive(Debug, Default)]
pub(crate) struct Unschedulable {
    /// Number of nodes that were tried, or all that there are.
    pub(crate) nodes: usize,
    /// Nodes by reason.
    pub(crate) reasons: BTreeMap<String, usize>,
    /// Names of the plug-ins that rejected.
    pub(crate) plugins: BTreeSet<&'static str>,
    /// Nodes on which taking pods away could help.
    pub(crate) candidates: Vec<String>,
    /// What came of trying to make room.
    pub(crate) preemption: String,
}

impl Unschedulable {
    pub(crate) fn count(&mut self, plugin: &'static str, rejection: &Rejection, nodes: usize) {
        self.plugins.insert(plugin);
        for reason in &rejection.reasons {
            *self.reasons.entry(reason.clone()).or_default() += nodes;
        }
    }

    /// `0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable.`
    pub(crate) fn message(&self) -> String {
        let mut texts: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        texts.sort();
        let mut text = format!("0/{} nodes are available", self.nodes);
        if !texts.is_empty() {
            text = format!("{text}: {}", texts.join(", "));
        }
        let space = if self.preemption.is_empty() { "" } else { " " };
        format!("{text}.{space}{}", self.preemption)
    }
}

impl Profile {
    pub(crate) fn new(spec: &ProfileSpec, owners: Option<&Owners>) -> Self {
        let mut made: BTreeMap<&'static str, Arc<dyn Plugin>> = BTreeMap::new();
        for (name, _) in spec.plugins.values().flatten() {
            if let Some(plugin) = plugins::make(name, &spec.arguments, owners) {
                made.entry(*name).or_insert(plugin);
            }
        }
        let list = |point: Point| spec.plugins.get(&point).into_iter().flatten();
        let at = |point: Point| list(point).filter_map(|(name, _)| made.get(name).cloned()).collect();
        Self {
            name: spec.name.clone(),
            percentage: spec.percentage,
            preemption: list(Point::PostFilter)
                .any(|(name, _)| *name == PREEMPTION)
                .then_some(spec.arguments.preemption),
            pre_enqueue: at(Point::PreEnqueue),
            pre_filter: at(Point::PreFilter),
            filter: at(Point::Filter),
            pre_score: at(Point::PreScore),
            score: list(Point::Score)
                .filter_map(|(name, weight)| Some((made.get(name)?.clone(), *weight)))
                .collect(),
            all: made.into_values().collect(),
            start: AtomicUsize::new(0),
        }
    }

    /// The first plug-in that keeps the pod out of the queue.
    pub(crate) fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), &'static str> {
        match self.pre_enqueue.iter().find(|plugin| plugin.pre_enqueue(pod).is_err()) {
            Some(plugin) => Err(plugin.name()),
            None => Ok(()),
        }
    }

    pub(crate) fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cache: &Cache) -> Result<(), Unschedulable> {
        for plugin in &self.pre_filter {
            if let Err(rejection) = plugin.pre_filter(state, pod, cache) {
                let mut why = Unschedulable {
                    nodes: cache.nodes().count(),
                    ..Unschedulable::default()
                };
                let nodes = why.nodes;
                why.count(plugin.name(), &rejection, nodes);
                return Err(why);
            }
        }
        Ok(())
    }

    /// The first plug-in that rejects the node, and why.
    pub(crate) fn filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), (&'static str, Rejection)> {
        for plugin in &self.filter {
            plugin
                .filter(state, pod, node)
                .map_err(|rejection| (plugin.name(), rejection))?;
        }
        Ok(())
    }

    /// What if `other` came to the node (`by` is 1) or left it (-1)?
    pub(crate) fn shift(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        for plugin in &self.pre_filter {
            plugin.shift(state, pod, other, node, by);
        }
    }

    /// [`Profile::filter`] that also counts the pods that are to come to the node and matter as much or more. They may
    /// not come after all, so the pod must fit with and without them.
    pub(crate) fn filter_nominated(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        cache: &Cache,
    ) -> Result<(), (&'static str, Rejection)> {
        let to_come: Vec<_> = cache
            .nominated_to(&node.name)
            .filter(|other| other.priority >= pod.priority && other.uid != pod.uid)
            .collect();
        if !to_come.is_empty() {
            let (mut state, mut node) = (state.clone(), node.clone());
            for other in to_come {
                self.shift(&mut state, pod, other, &node, 1);
                node.add(other.clone());
            }
            self.filter(&state, pod, &node)?;
        }
        self.filter(state, pod, node)
    }

    /// The nodes that can run the pod.
    pub(crate) fn feasible<'c>(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        cache: &'c Cache,
    ) -> Result<Vec<&'c NodeInfo>, Unschedulable> {
        let mut why = Unschedulable::default();
        let mut left = Vec::new();
        let nodes: Vec<&NodeInfo> = cache.nodes().collect();
        let enough = enough(self.percentage, nodes.len());
        let start = self.start.load(Ordering::Relaxed) % nodes.len().max(1);
        for node in nodes[start..].iter().chain(&nodes[..start]) {
            if left.len() >= enough {
                break;
            }
            why.nodes += 1;
            match self.filter_nominated(state, pod, node, cache) {
                Ok(()) => left.push(*node),
                Err((plugin, rejection)) => {
                    why.count(plugin, &rejection, 1);
                    if rejection.resolvable {
                        why.candidates.push(node.name.clone());
                    }
                }
            }
        }
        self.start.store(start + why.nodes, Ordering::Relaxed);
        if left.is_empty() { Err(why) } else { Ok(left) }
    }

    /// The sum of the weighted scores of each node, in their order.
    pub(crate) fn scores(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[&NodeInfo], cache: &Cache) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        for plugin in &self.pre_score {
            plugin.pre_score(state, pod, nodes, cache);
        }
        for (plugin, weight) in &self.score {
            let scores: Option<Vec<i64>> = nodes.iter().map(|node| plugin.score(state, pod, node)).collect();
            let Some(mut scores) = scores else { continue };
            plugin.normalize(&mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += score.clamp(0, MAX_SCORE) * weight;
            }
        }
        totals
    }

    /// Whether one of the plug-ins that rejected the pod wants it tried again.
    pub(crate) fn wakes(&self, event: Event, pod: &PodInfo, rejected_by: &BTreeSet<&'static str>) -> bool {
        rejected_by.is_empty()
            || self
                .all
                .iter()
                .any(|plugin| rejected_by.contains(plugin.name()) && plugin.wakes(event, pod))
    }
}

/// Scales so that the largest becomes [`MAX_SCORE`]; `reverse` makes the largest the worst.
pub(crate) fn normalize(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if largest == 0 { 0 } else { *score * MAX_SCORE / largest };
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn large_clusters_are_sampled() {
        assert_eq!([0, 1, 99].map(|nodes| enough(0, nodes)), [0, 1, 99]);
        // 50 - 1000/125 = 42%; 50 - 6000/125 = 2, raised to 5%.
        assert_eq!([100, 1000, 6000].map(|nodes| enough(0, nodes)), [100, 420, 300]);
        assert_eq!(
            [(30, 1000), (5, 1000), (100, 150)].map(|(share, nodes)| enough(share, nodes)),
            [300, 100, 150]
        );
    }
}
