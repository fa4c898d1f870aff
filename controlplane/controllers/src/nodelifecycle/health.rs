//! Which nodes still give signs of life. Times are our own clock's: a heartbeat counts from when it was seen, whatever
//! the node's clock says.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::{Node, NodeCondition};
use minato_api::meta_v1::Time;
use tokio::time::Instant;

use crate::ops;

/// Conditions that nobody knows when the kubelet is silent.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
pub(super) const READY: &str = "Ready";

pub(super) fn condition<'n>(node: &'n Node, type_: &str) -> Option<&'n NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// `True`, `False` or `Unknown`; none for a node that never reported.
pub(super) fn ready(node: &Node) -> Option<&str> {
    condition(node, READY).map(|ready| ready.status.as_str())
}

struct Beat {
    uid: String,
    at: Instant,
    reported: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

/// The last sign of life of every node.
#[derive(Default)]
pub(super) struct Beats {
    nodes: HashMap<String, Beat>,
}

impl Beats {
    /// Takes a node's report into account.
    pub(super) fn node(&mut self, node: &Node, now: Instant) {
        let reported = condition(node, READY).and_then(|ready| Some(ready.last_heartbeat_time.as_ref()?.0));
        let fresh = || Beat {
            uid: ops::uid(&node.metadata).to_owned(),
            at: now,
            reported,
            renewed: None,
        };
        let beat = self
            .nodes
            .entry(ops::name(&node.metadata).to_owned())
            .or_insert_with(fresh);
        if beat.uid != ops::uid(&node.metadata) {
            *beat = fresh();
        } else if beat.reported != reported {
            beat.reported = reported;
            beat.at = now;
        }
    }

    /// Takes a renewal into account.
    pub(super) fn lease(&mut self, lease: &Lease, now: Instant) {
        let renewed = lease.spec.as_ref().and_then(|spec| Some(spec.renew_time.as_ref()?.0));
        if let Some(beat) = self.nodes.get_mut(ops::name(&lease.metadata))
            && renewed > beat.renewed
        {
            beat.renewed = renewed;
            beat.at = now;
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Counts all as alive just now.
    pub(super) fn reset(&mut self, now: Instant) {
        self.nodes.values_mut().for_each(|beat| beat.at = now);
    }

    /// How much of its grace a node has left; zero when it is silent.
    pub(super) fn left(&self, name: &str, grace: Duration, now: Instant) -> Duration {
        let at = self.nodes.get(name).map_or(now, |beat| beat.at);
        (at + grace).saturating_duration_since(now)
    }
}

/// The conditions of a node whose kubelet is silent; none when they say so already.
pub(super) fn unknown(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let status = node.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut changed = false;
    for type_ in REPORTED {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
                changed = true;
            }
            None => {
                conditions.push(NodeCondition {
                    type_: type_.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(Time(now)),
                });
                changed = true;
            }
        }
    }
    changed.then_some(conditions)
}
