//! `PodTopologySpread`: even numbers of alike pods over the values of a node label.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>.

use std::collections::HashMap;

use minato_api::k8s::core::v1::TopologySpreadConstraint;
use minato_meta::LabelSelector;

use super::{node_affinity, taints};
use crate::cache::{Cache, NodeInfo};
use crate::framework::{CycleState, Event, MAX_SCORE, Plugin, Rejection};
use crate::owners::Owners;
use crate::pod::PodInfo;

const NAME: &str = "PodTopologySpread";
const SCORE: &str = "PodTopologySpread/Score";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Score of a node that soft constraints cannot speak of.
const IGNORED: i64 = -1;

const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) struct PodTopologySpread {
    /// Where pods belong together, by which those without constraints are spread; `None` not to.
    pub(super) owners: Option<Owners>,
}

impl PodTopologySpread {
    /// Constraints of a pod that has none of its own: upstream's `System` defaults.
    fn defaults(&self, pod: &PodInfo) -> Vec<Constraint> {
        let own = pod.spec().and_then(|spec| spec.topology_spread_constraints.as_ref());
        if own.is_some_and(|own| !own.is_empty()) {
            return Vec::new();
        }
        let Some(selector) = self.owners.as_ref().and_then(|owners| owners.selector_of(pod)) else {
            return Vec::new();
        };
        let constraint = |key: &str, max_skew: i64| Constraint {
            key: key.to_owned(),
            max_skew,
            min_domains: 1,
            any_affinity: false,
            any_taints: true,
            self_match: selector.matches_map(&pod.labels),
            selector: selector.clone(),
            counts: HashMap::new(),
            weight: 0.0,
        };
        vec![constraint(HOSTNAME, 3), constraint(ZONE, 5)]
    }
}

/// One constraint of a pod.
#[derive(Clone)]
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: i64,
    selector: LabelSelector,
    /// Whether nodes count that the pod's own node affinity keeps it from.
    any_affinity: bool,
    /// Whether nodes count whose taints the pod does not tolerate.
    any_taints: bool,
    /// Whether the pod counts itself.
    self_match: bool,
    /// Pods by value of the key.
    counts: HashMap<String, i64>,
    /// How much it weighs in scores: the more domains, the more.
    weight: f64,
}

#[derive(Clone)]
struct Hard(Vec<Constraint>);
#[derive(Clone)]
struct Soft {
    constraints: Vec<Constraint>,
    namespace: String,
    /// Whether nodes outside of a constraint's domains are out of the question. They are not for defaults.
    strict: bool,
}

impl Constraint {
    fn new(spec: &TopologySpreadConstraint, pod: &PodInfo) -> Self {
        let mut selector = spec.label_selector.clone().unwrap_or_default();
        for key in spec.match_label_keys.iter().flatten() {
            if let Some(value) = pod.labels.get(key) {
                selector
                    .match_labels
                    .get_or_insert_default()
                    .insert(key.clone(), value.clone());
            }
        }
        let nothing = spec.label_selector.is_none();
        let selector = match LabelSelector::from_typed(Some(&selector)) {
            Ok(selector) if !nothing => selector,
            _ => LabelSelector::nothing(),
        };
        Self {
            key: spec.topology_key.clone(),
            max_skew: i64::from(spec.max_skew),
            min_domains: i64::from(spec.min_domains.unwrap_or(1)),
            any_affinity: spec.node_affinity_policy.as_deref() == Some("Ignore"),
            any_taints: spec.node_taints_policy.as_deref() != Some("Honor"),
            self_match: selector.matches_map(&pod.labels),
            selector,
            counts: HashMap::new(),
            weight: 0.0,
        }
    }

    /// Whether the node's pods count: by default, nodes that the pod could not go to for their labels do not.
    fn includes(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (self.any_affinity || node_affinity::matches_required(pod, node))
            && (self.any_taints || taints::untolerated(pod, node, &["NoSchedule", "NoExecute"]).is_none())
    }

    fn is_alike(&self, namespace: &str, other: &PodInfo) -> bool {
        other.key.namespace == namespace
            && other.pod.metadata.deletion_timestamp.is_none()
            && self.selector.matches_map(&other.labels)
    }

    fn alike(&self, namespace: &str, node: &NodeInfo) -> i64 {
        let alike = node.pods.iter().filter(|other| self.is_alike(namespace, other));
        i64::try_from(alike.count()).unwrap_or(i64::MAX)
    }

    /// The least number of pods of a domain; zero while there are too few domains.
    fn least(&self) -> i64 {
        if i64::try_from(self.counts.len()).unwrap_or(i64::MAX) < self.min_domains {
            return 0;
        }
        self.counts.values().copied().min().unwrap_or(0)
    }
}

fn constraints(pod: &PodInfo, when: &str) -> Vec<Constraint> {
    let all = pod
        .spec()
        .into_iter()
        .flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    all.filter(|spec| spec.when_unsatisfiable == when)
        .map(|spec| Constraint::new(spec, pod))
        .collect()
}

/// Whether the node is in a domain of every constraint. One that is not counts for none of them.
fn has_all_keys(constraints: &[Constraint], node: &NodeInfo) -> bool {
    constraints
        .iter()
        .all(|constraint| node.labels.contains_key(&constraint.key))
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cache: &Cache) -> Result<(), Rejection> {
        let mut all = constraints(pod, "DoNotSchedule");
        if !all.is_empty() {
            let nodes: Vec<&NodeInfo> = cache.nodes().filter(|node| has_all_keys(&all, node)).collect();
            for constraint in &mut all {
                for node in &nodes {
                    if !constraint.includes(pod, node) {
                        continue;
                    }
                    let alike = constraint.alike(&pod.key.namespace, node);
                    let value = node.labels.get(&constraint.key).cloned().unwrap_or_default();
                    *constraint.counts.entry(value).or_insert(0) += alike;
                }
            }
        }
        state.put(NAME, Hard(all));
        Ok(())
    }

    fn shift(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        let Some(Hard(constraints)) = state.get_mut::<Hard>(NAME) else {
            return;
        };
        if !has_all_keys(constraints, node) {
            return;
        }
        for constraint in constraints {
            if constraint.includes(pod, node)
                && constraint.is_alike(&pod.key.namespace, other)
                && let Some(value) = node.labels.get(&constraint.key)
                && let Some(count) = constraint.counts.get_mut(value)
            {
                *count += by;
            }
        }
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(Hard(constraints)) = state.get::<Hard>(NAME) else {
            return Ok(());
        };
        for constraint in constraints {
            let Some(value) = node.labels.get(&constraint.key) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::unresolvable(reason));
            };
            let there = constraint.counts.get(value).copied().unwrap_or(0);
            let skew = there + i64::from(constraint.self_match) - constraint.least();
            if skew > constraint.max_skew {
                return Err(Rejection::new("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    /// Domains are those of the nodes that are left; the pods of all nodes in them count.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[&NodeInfo], cache: &Cache) {
        let mut all = self.defaults(pod);
        let strict = all.is_empty();
        if strict {
            all = constraints(pod, "ScheduleAnyway");
        }
        if !all.is_empty() {
            let known: Vec<&NodeInfo> = cache
                .nodes()
                .filter(|node| !strict || has_all_keys(&all, node))
                .collect();
            let left: Vec<&&NodeInfo> = nodes
                .iter()
                .filter(|node| !strict || has_all_keys(&all, node))
                .collect();
            for constraint in &mut all {
                // Each node is a domain of its own, and is counted when it is scored.
                let domains = if constraint.key == HOSTNAME {
                    left.len()
                } else {
                    let values = left.iter().filter_map(|node| node.labels.get(&constraint.key));
                    constraint.counts = values.map(|value| (value.clone(), 0)).collect();
                    for node in &known {
                        if !constraint.includes(pod, node) {
                            continue;
                        }
                        let alike = constraint.alike(&pod.key.namespace, node);
                        let value = node.labels.get(&constraint.key);
                        if let Some(count) = value.and_then(|value| constraint.counts.get_mut(value)) {
                            *count += alike;
                        }
                    }
                    constraint.counts.len()
                };
                constraint.weight = f64::from(u32::try_from(domains).unwrap_or(u32::MAX)) + 2.0;
                constraint.weight = constraint.weight.ln();
            }
        }
        let namespace = pod.key.namespace.clone();
        let constraints = all;
        state.put(
            SCORE,
            Soft {
                constraints,
                namespace,
                strict,
            },
        );
    }

    /// The number of alike pods in the node's domains, weighed; the fewer, the better.
    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Soft {
            constraints,
            namespace,
            strict,
        } = state.get::<Soft>(SCORE)?;
        if constraints.is_empty() {
            return Some(0);
        }
        if *strict && !has_all_keys(constraints, node) {
            return Some(IGNORED);
        }
        let speaking = constraints
            .iter()
            .filter(|constraint| node.labels.contains_key(&constraint.key));
        let cost = speaking.map(|constraint| {
            let there = if constraint.key == HOSTNAME {
                constraint.alike(namespace, node)
            } else {
                let value = node.labels.get(&constraint.key);
                value
                    .and_then(|value| constraint.counts.get(value))
                    .copied()
                    .unwrap_or(0)
            };
            #[expect(clippy::cast_precision_loss, reason = "numbers of pods are small")]
            let weighed = there as f64 * constraint.weight + (constraint.max_skew - 1) as f64;
            weighed
        });
        #[expect(clippy::cast_possible_truncation, reason = "numbers of pods are small")]
        let cost = cost.sum::<f64>().round() as i64;
        Some(cost)
    }

    fn normalize(&self, scores: &mut [i64]) {
        let known = || scores.iter().copied().filter(|score| *score != IGNORED);
        let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
        for score in scores {
            *score = if *score == IGNORED {
                0
            } else if most == 0 {
                MAX_SCORE
            } else {
                MAX_SCORE * (most + least - *score) / most
            };
        }
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        event != Event::NamespaceChanged
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, fitting, pod, scores};
    use super::*;

    fn plugin() -> PodTopologySpread {
        PodTopologySpread { owners: None }
    }

    fn alike(name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": "w"}}, "spec": {"containers": []}})
    }

    fn incoming(when: &str, extra: Value) -> PodInfo {
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "w"}},
        });
        if let (Some(fields), Value::Object(extra)) = (constraint.as_object_mut(), extra) {
            fields.extend(extra);
        }
        let mut value = alike("p");
        value["spec"]["topologySpreadConstraints"] = json!([constraint]);
        pod(value)
    }

    fn zones(placed: &[(&str, &str)]) -> Cache {
        let node = |name: &str, zone: &str| json!({"metadata": {"name": name, "labels": {"zone": zone, ZONE: zone}}});
        let nodes = [
            node("a1", "a"),
            node("a2", "a"),
            node("b1", "b"),
            json!({"metadata": {"name": "x"}}),
        ];
        let placed: Vec<(&str, Value)> = placed.iter().map(|(node, name)| (*node, alike(name))).collect();
        cache(&nodes, &placed)
    }

    #[test]
    fn no_zone_gets_ahead_by_more_than_the_skew() {
        let pod = incoming("DoNotSchedule", json!({}));
        assert_eq!(fitting(&plugin(), &pod, &zones(&[])), ["a1", "a2", "b1"]);
        assert_eq!(fitting(&plugin(), &pod, &zones(&[("a1", "1")])), ["b1"]);
        assert_eq!(
            fitting(&plugin(), &pod, &zones(&[("a1", "1"), ("b1", "2")])),
            ["a1", "a2", "b1"]
        );
        // With three domains wanted and two there, the least is zero.
        let three = incoming("DoNotSchedule", json!({"minDomains": 3}));
        assert_eq!(
            fitting(&plugin(), &three, &zones(&[("a1", "1"), ("b1", "2")])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn soft_constraints_prefer_the_emptier_zone() {
        let pod = incoming("ScheduleAnyway", json!({}));
        let all = scores(&plugin(), &pod, &zones(&[("a1", "1"), ("a2", "2")]));
        assert!(all[2] > all[0] && all[0] == all[1], "{all:?}");
    }

    #[test]
    fn nodes_without_the_key_of_another_constraint_do_not_count() {
        let constraint = |key: &str| {
            json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "w"}}})
        };
        let mut value = alike("p");
        value["spec"]["topologySpreadConstraints"] = json!([constraint("zone"), constraint("rack")]);
        let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
        let nodes = [
            node("a", json!({"zone": "a", "rack": "1"})),
            node("b", json!({"zone": "b", "rack": "2"})),
            node("c", json!({"zone": "c"})),
        ];
        // Zone c has no pod, but cannot take one either: it must not keep zones a and b at one.
        let cache = cache(&nodes, &[("a", alike("1")), ("b", alike("2"))]);
        assert_eq!(fitting(&plugin(), &pod(value), &cache), ["a", "b"]);
    }

    #[test]
    fn tainted_and_unwanted_nodes_count_as_the_policies_say() {
        let node = |name: &str, extra: Value| json!({"metadata": {"name": name, "labels": {"zone": name, "disk": name}}, "spec": extra});
        let tainted = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let nodes = [node("a", json!({})), node("b", json!({})), node("c", tainted)];
        let cache = cache(&nodes, &[("a", alike("1")), ("b", alike("2"))]);
        let nowhere: [&str; 0] = [];
        // Only the empty zone c is within the skew, whether or not its taint lets the pod in.
        assert_eq!(fitting(&plugin(), &incoming("DoNotSchedule", json!({})), &cache), ["c"]);
        let honour = incoming("DoNotSchedule", json!({"nodeTaintsPolicy": "Honor"}));
        assert_eq!(fitting(&plugin(), &honour, &cache), ["a", "b", "c"]);
        // Affinity to a and b: c does not count by default, and does if the policy says so.
        let on_a_or_b = |extra: Value| {
            let mut value = serde_json::to_value(incoming("DoNotSchedule", extra).pod.as_ref()).unwrap_or_default();
            value["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["a", "b"]}]}]}}});
            pod(value)
        };
        assert!(fitting(&plugin(), &on_a_or_b(json!({})), &cache).contains(&"a".to_owned()));
        let ignore = on_a_or_b(json!({"nodeAffinityPolicy": "Ignore"}));
        assert!(!fitting(&plugin(), &ignore, &cache).contains(&"a".to_owned()));
        assert_ne!(fitting(&plugin(), &ignore, &cache), nowhere);
    }

    #[test]
    fn alike_pods_of_another_revision_do_not_count_with_its_label_key() {
        let mut value = serde_json::to_value(
            incoming("DoNotSchedule", json!({"matchLabelKeys": ["rev"]}))
                .pod
                .as_ref(),
        )
        .unwrap_or_default();
        value["metadata"]["labels"]["rev"] = json!("2");
        // All that is there is of no revision.
        let fits = fitting(&plugin(), &pod(value), &zones(&[("a1", "1")]));
        assert_eq!(fits, ["a1", "a2", "b1"]);
    }

    #[test]
    fn soft_constraints_ignore_nodes_without_their_key() {
        let pod = incoming("ScheduleAnyway", json!({}));
        // Zone a has two, b none, and x is in no zone. Two domains: each pod costs ln 4 = 1.386, so 3 (rounded) and 0.
        let all = scores(&plugin(), &pod, &zones(&[("a1", "1"), ("a2", "2")]));
        assert_eq!(all, [0, 0, 100, 0]);
    }

    #[test]
    fn pods_of_a_service_are_spread_by_default() {
        let (owners, services) = Owners::detached();
        let by_default = PodTopologySpread { owners: Some(owners) };
        let cache = zones(&[("a1", "1")]);
        let incoming = pod(alike("p"));
        // Nobody says that they belong together.
        let all = scores(&by_default, &incoming, &cache);
        assert!(all.iter().all(|score| *score == all[0]), "{all:?}");
        let service = json!({"metadata": {"name": "s", "namespace": "d"}, "spec": {"selector": {"app": "w"}}});
        services.feed(vec![serde_json::from_value(service).unwrap_or_default()]);
        // By zone: ln 4 for the one in zone a, and 4 for the allowed skew: 5 (rounded) against 4 for b and 0 for x.
        assert_eq!(scores(&by_default, &incoming, &cache), [0, 0, 20, 100]);
    }
}
