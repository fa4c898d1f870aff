//! The pods of a DaemonSet: each is meant for one node, and bears what is wrong with it.

use minato_api::k8s::apps::v1::DaemonSet;
use minato_api::k8s::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec, Toleration,
};

use crate::names::{CONTROLLER_REVISION_HASH, POD_TEMPLATE_GENERATION, TEMPLATE_GENERATION};
use crate::taints::{
    DISK_PRESSURE, MEMORY_PRESSURE, NETWORK_UNAVAILABLE, NO_EXECUTE, NO_SCHEDULE, NOT_READY, PID_PRESSURE, UNREACHABLE,
    UNSCHEDULABLE,
};
use crate::{ops, ownership, pods};

/// What every pod of a DaemonSet bears, so that it runs even where little else does.
const TOLERATED: [(&str, &str); 6] = [
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_EXECUTE),
    (DISK_PRESSURE, NO_SCHEDULE),
    (MEMORY_PRESSURE, NO_SCHEDULE),
    (PID_PRESSURE, NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
];

/// The specification of the pods, but for the node.
pub(super) fn spec(template: &PodTemplateSpec) -> PodSpec {
    let mut spec = template.spec.clone().unwrap_or_default();
    let network = (spec.host_network == Some(true)).then_some((NETWORK_UNAVAILABLE, NO_SCHEDULE));
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec
}

/// The pod for a node.
pub(super) fn make(set: &DaemonSet, template: &PodTemplateSpec, spec: &PodSpec, node: &str, hash: &str) -> Pod {
    let (namespace, name) = (ops::namespace(&set.metadata), ops::name(&set.metadata));
    let mut pod = pods::from_template(template, namespace, name, ownership::reference(set));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(CONTROLLER_REVISION_HASH.to_owned(), hash.to_owned());
    if let Some(generation) = ops::annotation(&set.metadata, TEMPLATE_GENERATION) {
        labels.insert(POD_TEMPLATE_GENERATION.to_owned(), generation.to_owned());
    }
    pod.spec = Some(meant_for(spec.clone(), node));
    pod
}

/// Narrows each term of the node affinity down to one node: the scheduler places the pod, and nowhere else.
fn meant_for(mut spec: PodSpec, node: &str) -> PodSpec {
    let affinity = spec
        .affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default();
    let required = &mut affinity.required_during_scheduling_ignored_during_execution;
    let NodeSelector { node_selector_terms } = required.get_or_insert_default();
    if node_selector_terms.is_empty() {
        node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in node_selector_terms {
        term.match_fields = Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]);
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::eligible::target;
    use super::*;

    #[test]
    fn a_pod_is_meant_for_its_node_and_bears_its_troubles() {
        let mut set: DaemonSet = serde_json::from_value(json!({
            "metadata": {
                "name": "d", "namespace": "n", "uid": "u",
                "annotations": {"deprecated.daemonset.template.generation": "4"},
            },
            "spec": {"selector": {}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"hostNetwork": true, "containers": [], "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, {"matchFields": []},
                    ]},
                }}},
            }},
        }))
        .unwrap();
        let template = set.spec.take().unwrap().template;
        let spec = spec(&template);
        let pod = make(&set, &template, &spec, "n1", "abc");
        assert_eq!(target(&pod), Some("n1"));
        let value = serde_json::to_value(&pod).unwrap();
        assert_eq!(
            value["metadata"]["labels"],
            json!({"a": "b", "controller-revision-hash": "abc", "pod-template-generation": "4"})
        );
        let here = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
        let required = &value["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            required["nodeSelectorTerms"],
            json!([
                {"matchExpressions": [{"key": "disk", "operator": "Exists"}], "matchFields": here},
                {"matchFields": here},
            ])
        );
        let tolerated: Vec<_> = spec
            .tolerations
            .unwrap()
            .into_iter()
            .filter_map(|known| known.key)
            .collect();
        assert_eq!(
            tolerated.join(" ").replace("node.kubernetes.io/", ""),
            "not-ready unreachable disk-pressure memory-pressure pid-pressure unschedulable network-unavailable"
        );
    }
}
