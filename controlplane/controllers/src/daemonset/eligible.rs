//! Which nodes are to run a pod of a DaemonSet, by the rules that the scheduler will judge the pod by.

use minato_api::k8s::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};
use minato_meta::{Operator, Requirement};

use crate::taints::{NO_EXECUTE, NO_SCHEDULE, tolerates};
use crate::{ops, pods};

/// What a DaemonSet wants of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eligible {
    /// A pod is to run there.
    Yes,
    /// One that is there may stay, and none is to come.
    MayStay,
    No,
}

/// What is wanted of `node`. `spec` is that of the pods, with all their tolerations.
pub(super) fn eligible(spec: &PodSpec, node: &Node) -> Eligible {
    let name = ops::name(&node.metadata);
    let named = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if named.is_some_and(|named| named != name) || !selects(spec, node) {
        return Eligible::No;
    }
    if !bears(spec, node, &[NO_EXECUTE]) {
        return Eligible::No;
    }
    match bears(spec, node, &[NO_SCHEDULE]) {
        true => Eligible::Yes,
        false => Eligible::MayStay,
    }
}

/// Whether the pods tolerate all taints of these effects.
fn bears(spec: &PodSpec, node: &Node, effects: &[&str]) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.filter(|taint| effects.contains(&taint.effect.as_str()));
    taints.all(|taint| {
        spec.tolerations
            .iter()
            .flatten()
            .any(|toleration| tolerates(toleration, taint))
    })
}

fn selects(spec: &PodSpec, node: &Node) -> bool {
    let label = |key: &String| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    if !spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| label(key) == Some(value))
    {
        return false;
    }
    required(spec).is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
}

fn required(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

/// All of a term must hold; a term without anything in it matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (
        term.match_expressions.iter().flatten(),
        term.match_fields.iter().flatten(),
    );
    if labels.clone().chain(fields.clone()).next().is_none() {
        return false;
    }
    let of_label = |wanted: &NodeSelectorRequirement| {
        let labels = node.metadata.labels.as_ref();
        holds(
            wanted,
            labels.and_then(|labels| labels.get(&wanted.key)).map(String::as_str),
        )
    };
    let of_field = |wanted: &NodeSelectorRequirement| {
        wanted.key == "metadata.name" && holds(wanted, Some(ops::name(&node.metadata)))
    };
    labels.into_iter().all(of_label) && fields.into_iter().all(of_field)
}

fn holds(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let operator = match wanted.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return false,
    };
    let values = wanted.values.clone().unwrap_or_default();
    Requirement::new(&wanted.key, operator, values).is_ok_and(|wanted| wanted.matches(value))
}

/// The node that a pod is on, or is meant for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    pods::node_name(pod).or_else(|| {
        let fields = required(pod.spec.as_ref()?)?
            .iter()
            .flat_map(|term| term.match_fields.iter().flatten());
        let mut fields = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        match fields.next()?.values.as_deref()? {
            [name] => Some(name.as_str()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: &Value) -> Node {
        let metadata = json!({"name": "n1", "labels": {"disk": "ssd", "size": "5"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap()
    }

    fn judge(spec: &Value, taints: &Value) -> Eligible {
        let mut all = json!({"containers": []});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        eligible(&serde_json::from_value(all).unwrap(), &node(taints))
    }

    fn affinity(terms: Value) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    #[test]
    fn names_labels_and_affinity_choose_nodes() {
        for (spec, expected) in [
            (json!({}), Eligible::Yes),
            (json!({"nodeName": "n1"}), Eligible::Yes),
            (json!({"nodeName": "n2"}), Eligible::No),
            (json!({"nodeSelector": {"disk": "ssd"}}), Eligible::Yes),
            (json!({"nodeSelector": {"disk": "hdd"}}), Eligible::No),
            (
                affinity(json!([{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["4"]}]}])),
                Eligible::Yes,
            ),
            (
                affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}])),
                Eligible::No,
            ),
            (
                affinity(json!([{}, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}])),
                Eligible::Yes,
            ),
            (affinity(json!([{}])), Eligible::No),
        ] {
            assert_eq!(judge(&spec, &json!([])), expected, "{spec}");
        }
    }

    #[test]
    fn what_is_not_tolerated_keeps_pods_away_or_drives_them_out() {
        let (schedule, execute) = (
            json!([{"key": "a", "effect": "NoSchedule"}]),
            json!([{"key": "a", "effect": "NoExecute"}]),
        );
        let soft = json!([{"key": "a", "effect": "PreferNoSchedule"}]);
        assert_eq!(judge(&json!({}), &schedule), Eligible::MayStay);
        assert_eq!(judge(&json!({}), &execute), Eligible::No);
        assert_eq!(judge(&json!({}), &soft), Eligible::Yes);
        let bearing = json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]});
        assert_eq!(judge(&bearing, &schedule), Eligible::Yes);
        assert_eq!(judge(&bearing, &execute), Eligible::No);
    }
}
