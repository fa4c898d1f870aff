//! Whether the node takes a pod that was bound to it: it may have been bound by hand, or by a scheduler with an older view.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

use crate::context::Context;
use crate::pods::{is_terminal, spec};
use crate::resources::{milli, pod_request, units};
use crate::status::Outcome;

fn refuse(reason: &str, message: String) -> Option<Outcome> {
    Some(Outcome {
        reason: reason.to_owned(),
        message,
    })
}

/// Why the pod cannot run here, if it cannot. `others` are the pods that have workers, this one among them.
pub(super) fn admit(context: &Context, pod: &Pod, others: &[Arc<Pod>]) -> Option<Outcome> {
    let node = context.node.get_cluster(&context.settings.node_name)?;
    if !selects(pod, &node) {
        return refuse(
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed".to_owned(),
        );
    }
    let uid = &pod.metadata.uid;
    let active = others
        .iter()
        .filter(|other| other.metadata.uid != *uid && !is_terminal(other));
    let capacity = &context.facts.capacity;
    let (mut count, mut cpu, mut memory) = (1_u32, 0_i64, 0_i64);
    for other in active {
        count = count.saturating_add(1);
        cpu = cpu.saturating_add(pod_request(spec(other), "cpu", milli));
        memory = memory.saturating_add(pod_request(spec(other), "memory", units));
    }
    let over = |name: &str, asked: i64, used: i64, has: i64| {
        refuse(
            &format!("OutOf{name}"),
            format!(
                "Pod was rejected: Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {has}"
            ),
        )
    };
    if count > capacity.pods {
        return over("pods", 1, i64::from(count) - 1, i64::from(capacity.pods));
    }
    let asked = pod_request(spec(pod), "cpu", milli);
    if asked > 0 && cpu.saturating_add(asked) > capacity.milli_cpu {
        return over("cpu", asked, cpu, capacity.milli_cpu);
    }
    let asked = pod_request(spec(pod), "memory", units);
    if asked > 0 && memory.saturating_add(asked) > capacity.memory {
        return over("memory", asked, memory, capacity.memory);
    }
    None
}

fn selects(pod: &Pod, node: &Node) -> bool {
    let label = |key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let simple = spec(pod)
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| label(key) == Some(value));
    let affinity = spec(pod).affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref();
    simple
        && required.is_none_or(|selector| {
            selector
                .node_selector_terms
                .iter()
                .any(|term| term_fits(term, &label, name))
        })
}

fn term_fits<'a>(term: &NodeSelectorTerm, label: &dyn Fn(&str) -> Option<&'a str>, name: Option<&str>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| requirement_fits(r, label(&r.key)))
        && fields
            .iter()
            .all(|r| r.key == "metadata.name" && requirement_fits(r, name))
}

fn requirement_fits(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let compared = |greater: bool| {
        let pair = value
            .and_then(|v| v.parse::<i64>().ok())
            .zip(values.first().and_then(|v| v.parse::<i64>().ok()));
        pair.is_some_and(|(have, bound)| if greater { have > bound } else { have < bound })
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(true),
        "Lt" => compared(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_and_affinity_decide() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"disk": "ssd", "cores": "8"}}}))
                .unwrap();
        let with = |spec: serde_json::Value| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let term = |expressions: serde_json::Value| {
            with(
                json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}}),
            )
        };
        assert!(selects(
            &with(json!({"containers": [], "nodeSelector": {"disk": "ssd"}})),
            &node
        ));
        assert!(!selects(
            &with(json!({"containers": [], "nodeSelector": {"disk": "hdd"}})),
            &node
        ));
        assert!(selects(
            &term(json!([{"key": "cores", "operator": "Gt", "values": ["4"]}])),
            &node
        ));
        assert!(!selects(
            &term(json!([{"key": "cores", "operator": "Lt", "values": ["4"]}])),
            &node
        ));
        assert!(selects(
            &term(json!([{"key": "disk", "operator": "NotIn", "values": ["hdd"]}])),
            &node
        ));
        assert!(!selects(&term(json!([])), &node), "an empty term selects nothing");
    }
}
