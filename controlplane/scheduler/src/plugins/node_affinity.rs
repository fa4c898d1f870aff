//! `NodeAffinity`: `nodeSelector`, and required and preferred node affinity.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>.

use minato_api::k8s::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use minato_meta::{Operator, Requirement};

use crate::cache::NodeInfo;
use crate::framework::{CycleState, Event, Plugin, Rejection, normalize};
use crate::pod::PodInfo;

pub(super) struct NodeAffinity;

/// Whether the pod's required rules let it onto the node.
pub(super) fn matches_required(pod: &PodInfo, node: &NodeInfo) -> bool {
    let Some(spec) = pod.spec() else { return true };
    let selector = spec.node_selector.iter().flatten();
    if !selector
        .into_iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
    {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// All of a term must hold; a term without anything in it matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let (expressions, fields) = (term.match_expressions.as_ref(), term.match_fields.as_ref());
    if expressions.is_none_or(Vec::is_empty) && fields.is_none_or(Vec::is_empty) {
        return false;
    }
    let labels = |requirement: &NodeSelectorRequirement| {
        holds(requirement, node.labels.get(&requirement.key).map(String::as_str))
    };
    let names = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && holds(requirement, Some(node.name.as_str()))
    };
    expressions.into_iter().flatten().all(labels) && fields.into_iter().flatten().all(names)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return false,
    };
    let values = requirement.values.clone().unwrap_or_default();
    // One that cannot be read matches nothing; validation lets none through.
    Requirement::new(&requirement.key, operator, values).is_ok_and(|requirement| requirement.matches(value))
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if matches_required(pod, node) {
            return Ok(());
        }
        Err(Rejection::unresolvable(
            "node(s) didn't match Pod's node affinity/selector",
        ))
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let affinity = pod
            .spec()?
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let terms = preferred.into_iter().flatten();
        Some(
            terms
                .filter(|term| term_matches(&term.preference, node))
                .map(|term| i64::from(term.weight))
                .sum(),
        )
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, false);
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded | Event::NodeChanged)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, fitting, pod, scores};
    use super::*;

    fn nodes() -> crate::cache::Cache {
        let node = |name: &str, disk: &str, size: &str| json!({"metadata": {"name": name, "labels": {"disk": disk, "size": size}}});
        cache(
            &[
                node("a", "ssd", "3"),
                node("b", "hdd", "8"),
                json!({"metadata": {"name": "c"}}),
            ],
            &[],
        )
    }

    fn required(terms: Value) -> PodInfo {
        pod(json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}}}))
    }

    #[test]
    fn terms_are_alternatives_and_their_parts_are_not() {
        let fits = |terms| fitting(&NodeAffinity, &required(terms), &nodes());
        assert_eq!(
            fits(json!([{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]}])),
            ["b"]
        );
        let both = json!([
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}, {"key": "size", "operator": "Lt", "values": ["3"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]},
        ]);
        assert_eq!(fits(both), ["c"]);
        assert_eq!(
            fits(json!([{"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}])),
            ["b", "c"]
        );
        assert_eq!(fits(json!([{}])), Vec::<String>::new());
    }

    #[test]
    fn preferences_are_weighed() {
        let term = |weight: i32, value: &str| {
            json!({"weight": weight, "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}],
            }})
        };
        let pod = pod(json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [term(10, "ssd"), term(40, "hdd")],
        }}}}));
        assert_eq!(scores(&NodeAffinity, &pod, &nodes()), [25, 100, 0]);
    }
}
