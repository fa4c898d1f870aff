//! Gives every node a range of pod addresses out of the cluster's, and never the same one to two.
//!
//! What is taken is read from the Nodes themselves, so nothing is kept elsewhere: a range is free when no Node has it.
//! One worker assigns, and a range counts as taken from the moment it is written, before the cache shows it.
//! Source: <https://kubernetes.io/docs/concepts/cluster-administration/networking/>.

mod ranges;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::IpNet;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_runtime::{Change, Controller, EventKind, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;
use serde_json::json;

use crate::Context;
use crate::error::{Error, Result, is_not_found};
use crate::ops;
use ranges::Ranges;

struct NodeIpam {
    cx: Context,
    nodes: Informer<Node>,
    recorder: Recorder,
    /// One per family, in the order of the configuration.
    ranges: Mutex<Vec<Ranges>>,
    /// What was written to a node without knowing whether it took effect, by uid: the same is written again.
    unsure: Mutex<HashMap<String, Vec<IpNet>>>,
    /// Nodes that found nothing left.
    waiting: Mutex<BTreeSet<ObjectKey>>,
}

/// Starts the controller, if the cluster has a range to give from.
pub(crate) fn start(cx: &Context) {
    let config = &cx.config;
    if config.cluster_cidrs.is_empty() {
        return;
    }
    let of = |cidr: &IpNet| {
        let mask = match cidr {
            IpNet::V4(_) => config.node_mask_v4,
            IpNet::V6(_) => config.node_mask_v6,
        };
        Ranges::new(*cidr, mask, &config.service_cidrs)
    };
    let this = Arc::new(NodeIpam {
        cx: cx.clone(),
        nodes: cx.informer(),
        recorder: cx.runtime.recorder("cidrAllocator"),
        ranges: Mutex::new(config.cluster_cidrs.iter().map(of).collect()),
        unsure: Mutex::default(),
        waiting: Mutex::default(),
    });
    let releasing = this.clone();
    Controller::new("node-ipam-controller", &cx.runtime)
        .workers(1)
        .watch_primary(&this.nodes)
        .watch(&this.nodes, move |change, add| match change {
            Change::Deleted(node) => {
                releasing.release(node);
                std::mem::take(&mut *releasing.waiting.lock()).into_iter().for_each(add);
            }
            Change::Added(node) | Change::Updated { new: node, .. } => releasing.occupy(node),
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl NodeIpam {
    fn occupy(&self, node: &Node) {
        let mut ranges = self.ranges.lock();
        for cidr in assigned(node) {
            ranges.iter_mut().for_each(|range| range.occupy(&cidr));
        }
    }

    fn release(&self, node: &Node) {
        let unsure = self.unsure.lock().remove(ops::uid(&node.metadata));
        self.give_back(assigned(node).into_iter().chain(unsure.into_iter().flatten()));
    }

    fn give_back(&self, cidrs: impl IntoIterator<Item = IpNet>) {
        let mut ranges = self.ranges.lock();
        for cidr in cidrs {
            ranges.iter_mut().for_each(|range| range.release(&cidr));
        }
    }

    /// One range per family, or none at all.
    fn take(&self) -> Option<Vec<IpNet>> {
        let taken: Vec<Option<IpNet>> = self.ranges.lock().iter_mut().map(Ranges::take).collect();
        if taken.iter().all(Option::is_some) {
            return Some(taken.into_iter().flatten().collect());
        }
        self.give_back(taken.into_iter().flatten());
        None
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(node) = self.nodes.get(&key) else {
            return Ok(Next::Done);
        };
        let unsure = self.unsure.lock().remove(ops::uid(&node.metadata));
        let has = assigned(&node);
        if !has.is_empty() || node.metadata.deletion_timestamp.is_some() {
            // What was to be written when the node had its range already, unknown to the cache.
            self.give_back(unsure.into_iter().flatten().filter(|cidr| !has.contains(cidr)));
            return Ok(Next::Done);
        }
        let Some(cidrs) = unsure.or_else(|| self.take()) else {
            let text = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder
                .event(node.as_ref(), EventKind::Normal, "CIDRNotAvailable", text);
            let failure = Error::Invalid(format!("no pod range is left for node {}", key.name));
            self.waiting.lock().insert(key);
            return Err(failure);
        };
        let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
        let nodes: Api<Node> = Api::all(self.cx.client().clone());
        let patch = json!({"spec": {"podCIDR": texts.first(), "podCIDRs": texts}});
        match ops::merge(&nodes, &node.metadata, patch).await {
            Ok(_) => Ok(Next::Done),
            Err(error) => {
                if is_not_found(&error) {
                    self.give_back(cidrs);
                    return Ok(Next::Done);
                }
                // Also after a conflict: the node is tried again at once, and stays with its range.
                self.unsure.lock().insert(ops::uid(&node.metadata).to_owned(), cidrs);
                Err(error.into())
            }
        }
    }
}

fn assigned(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    let mut cidrs: Vec<IpNet> = all.filter_map(|text| text.parse().ok()).collect();
    cidrs.dedup();
    cidrs
}
