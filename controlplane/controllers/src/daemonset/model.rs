//! A DaemonSet, the nodes, and the pods by the node that they are meant for.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{DaemonSet, DaemonSetSpec};
use minato_api::k8s::core::v1::{Node, Pod};

use super::eligible::{Eligible, eligible, target};
use super::pod;
use crate::error::Result;
use crate::intstr::{Round, scaled};
use crate::names::CONTROLLER_REVISION_HASH;
use crate::ops;
use crate::pods::{self, Availability};

/// What is there and what is wanted.
pub(super) struct Model<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) spec: &'a DaemonSetSpec,
    pub(super) pod_spec: minato_api::k8s::core::v1::PodSpec,
    /// Hash of the present template.
    pub(super) hash: String,
    /// What is wanted of each node.
    pub(super) nodes: BTreeMap<String, Eligible>,
    /// The pods of each node, the oldest first. Those that have ended and are being deleted need no more attention.
    pub(super) pods: BTreeMap<String, Vec<Arc<Pod>>>,
    pub(super) now: Timestamp,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        set: &'a DaemonSet,
        spec: &'a DaemonSetSpec,
        hash: &str,
        nodes: &[Arc<Node>],
        claimed: &[Arc<Pod>],
        now: Timestamp,
    ) -> Self {
        let pod_spec = pod::spec(&spec.template);
        let judged = nodes
            .iter()
            .map(|node| (ops::name(&node.metadata).to_owned(), eligible(&pod_spec, node)));
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in claimed {
            let over = pods::is_finished(pod) && pods::is_terminating(pod);
            if let Some(node) = target(pod).filter(|_| !over) {
                by_node.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_cached_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (created, pod.metadata.name.clone())
            });
        }
        Self {
            set,
            spec,
            nodes: judged.collect(),
            pods: by_node,
            pod_spec,
            hash: hash.to_owned(),
            now,
        }
    }

    pub(super) fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        ops::label(&pod.metadata, CONTROLLER_REVISION_HASH) == Some(self.hash.as_str())
    }

    pub(super) fn availability(&self, pod: &Pod) -> Availability {
        pods::availability(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        self.availability(pod) == Availability::Yes
    }

    /// How many nodes should run a pod.
    pub(super) fn desired(&self) -> i32 {
        let desired = self
            .nodes
            .values()
            .filter(|eligible| **eligible == Eligible::Yes)
            .count();
        i32::try_from(desired).unwrap_or(i32::MAX)
    }

    /// Whether the controller replaces old pods by itself.
    pub(super) fn rolls(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    /// How many pods may be too many, and how many unavailable, during a rollout.
    pub(super) fn limits(&self) -> Result<(usize, usize)> {
        let rolling = self
            .spec
            .update_strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.as_ref());
        let of = |value: Option<&minato_api::apimachinery::pkg::util::intstr::IntOrString>| {
            let number = value.map_or(Ok(0), |value| scaled(value, self.desired(), Round::Up))?;
            Ok::<_, crate::error::Error>(usize::try_from(number).unwrap_or(0))
        };
        let surge = of(rolling.and_then(|rolling| rolling.max_surge.as_ref()))?;
        let unavailable = of(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()))?;
        // With neither, a rollout could never go on.
        Ok((surge, if surge == 0 { unavailable.max(1) } else { unavailable }))
    }

    /// Whether old and new pods may share a node during a rollout.
    pub(super) fn surges(&self) -> bool {
        self.rolls() && self.limits().is_ok_and(|(surge, _)| surge > 0)
    }
}
