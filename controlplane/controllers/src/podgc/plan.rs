//! Which pods go.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, Pod};

use crate::pods;
use crate::taints::OUT_OF_SERVICE;

/// Why a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its node does not exist.
    NodeMissing,
    /// It was never placed, and is being deleted.
    Unplaced,
    /// It is being deleted on a machine that is off.
    OutOfService,
    /// It is finished, and one of too many.
    TooMany,
}

impl Fault {
    /// What the pod's condition `DisruptionTarget` says, if it did not end by itself.
    pub(super) fn message(self) -> Option<&'static str> {
        match self {
            Self::NodeMissing => Some("PodGC: node no longer exists"),
            Self::OutOfService => Some("PodGC: node is out of service"),
            Self::Unplaced | Self::TooMany => None,
        }
    }
}

pub(super) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.into_iter();
    taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.into_iter();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What is wrong with a pod, if anything; `node` is the one that it names.
pub(super) fn fault(pod: &Pod, node: Option<&Node>) -> Option<Fault> {
    match (pods::node_name(pod), node) {
        (None, _) => pods::is_terminating(pod).then_some(Fault::Unplaced),
        (Some(_), None) => Some(Fault::NodeMissing),
        (Some(_), Some(node)) => {
            let dead = pods::is_terminating(pod) && is_out_of_service(node) && !is_ready(node);
            dead.then_some(Fault::OutOfService)
        }
    }
}

/// The finished pods beyond the threshold: evicted ones first, then the oldest. Zero: none ever.
pub(super) fn surplus(mut finished: Vec<Arc<Pod>>, threshold: usize) -> Vec<Arc<Pod>> {
    if threshold == 0 || finished.len() <= threshold {
        return Vec::new();
    }
    let evicted = |pod: &Pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        pods::phase(pod) == "Failed" && reason == Some("Evicted")
    };
    let rank = |pod: &Arc<Pod>| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!evicted(pod), created, pod.metadata.name.clone())
    };
    finished.sort_by_cached_key(rank);
    finished.truncate(finished.len() - threshold);
    finished
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: Option<&str>, deleted: Option<&str>, status: serde_json::Value) -> Pod {
        let created = format!("2026-01-01T00:00:0{}Z", name.len());
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created, "deletionTimestamp": deleted},
            "spec": {"nodeName": node, "containers": []}, "status": status,
        }))
        .unwrap()
    }

    fn node(ready: &str, taint: &str) -> Node {
        serde_json::from_value(json!({
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn pods_that_nobody_else_ends_are_found() {
        let now = Some("2026-01-01T00:00:00Z");
        let dead = node("Unknown", OUT_OF_SERVICE);
        let cases = [
            (pod("a", None, None, json!({})), None, None),
            (pod("a", None, now, json!({})), None, Some(Fault::Unplaced)),
            (pod("a", Some("n"), None, json!({})), None, Some(Fault::NodeMissing)),
            (
                pod("a", Some("n"), now, json!({})),
                Some(&dead),
                Some(Fault::OutOfService),
            ),
            (pod("a", Some("n"), None, json!({})), Some(&dead), None),
            (
                pod("a", Some("n"), now, json!({})),
                Some(&node("True", OUT_OF_SERVICE)),
                None,
            ),
            (
                pod("a", Some("n"), now, json!({})),
                Some(&node("Unknown", "other")),
                None,
            ),
        ];
        for (pod, node, expected) in cases {
            assert_eq!(fault(&pod, node), expected);
        }
    }

    #[test]
    fn of_too_many_the_evicted_and_then_the_oldest_go() {
        let finished = |name: &str, status| Arc::new(pod(name, None, None, status));
        let all = vec![
            finished("a", json!({"phase": "Succeeded"})),
            finished("bb", json!({"phase": "Failed"})),
            finished("ccc", json!({"phase": "Failed", "reason": "Evicted"})),
            finished("dddd", json!({"phase": "Succeeded"})),
        ];
        let names = |threshold: usize| -> Vec<String> {
            let gone = surplus(all.clone(), threshold);
            gone.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(2), ["ccc", "a"]);
        assert!(names(4).is_empty());
        assert!(names(0).is_empty());
    }
}
