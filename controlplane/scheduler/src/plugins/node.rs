//! `NodeName`, `NodeUnschedulable` and `NodePorts`.

use super::taints;
use crate::cache::NodeInfo;
use crate::framework::{CycleState, Event, Plugin, Rejection};
use crate::pod::PodInfo;

/// A pod that asks for a node by name goes nowhere else.
pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match pod.node_name() {
            Some(name) if name != node.name => {
                Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
            }
            _ => Ok(()),
        }
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        event == Event::NodeAdded
    }
}

/// Cordoned nodes take only pods that tolerate it.
pub(super) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if node.unschedulable && !taints::tolerates(pod, "node.kubernetes.io/unschedulable", "", "NoSchedule") {
            return Err(Rejection::unresolvable("node(s) were unschedulable"));
        }
        Ok(())
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded | Event::NodeChanged)
    }
}

/// Two pods of a node cannot have the same port of it.
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if pod.ports.is_empty() {
            return Ok(());
        }
        let mut taken = node.pods.iter().flat_map(|other| &other.ports);
        if taken.any(|taken| pod.ports.iter().any(|port| port.clashes(taken))) {
            return Err(Rejection::new(
                "node(s) didn't have free ports for the requested pod ports",
            ));
        }
        Ok(())
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded | Event::PodGone)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, filtered, fitting, pod};
    use super::*;

    fn with_port(name: &str, ip: &str, port: i32) -> Value {
        json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port, "hostIP": ip}]}]},
        })
    }

    #[test]
    fn ports_clash_by_address_protocol_and_number() {
        let nodes = [json!({"metadata": {"name": "n"}})];
        let cache = cache(&nodes, &[("n", with_port("a", "10.0.0.1", 8080))]);
        let fits = |ip, port| !fitting(&NodePorts, &pod(with_port("b", ip, port)), &cache).is_empty();
        assert!(!fits("10.0.0.1", 8080) && !fits("", 8080) && !fits("0.0.0.0", 8080));
        assert!(fits("10.0.0.2", 8080) && fits("10.0.0.1", 8081));
    }

    #[test]
    fn cordoned_nodes_take_who_tolerates_it() {
        let nodes = [json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}})];
        let cache = cache(&nodes, &[]);
        let plain = pod(json!({"spec": {"containers": []}}));
        let result = &filtered(&NodeUnschedulable, &plain, &cache)[0].1;
        assert_eq!(result, &Err(Rejection::unresolvable("node(s) were unschedulable")));
        let tolerant = pod(json!({"spec": {"containers": [], "tolerations": [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        ]}}));
        assert_eq!(fitting(&NodeUnschedulable, &tolerant, &cache), ["n"]);
    }
}
