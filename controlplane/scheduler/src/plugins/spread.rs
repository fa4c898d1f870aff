//! `PodTopologySpread`: even numbers of alike pods over the values of a node label.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>.

use std::collections::HashMap;

use minato_api::k8s::core::v1::TopologySpreadConstraint;
use minato_meta::LabelSelector;

use super::{node_affinity, taints};
use crate::cache::{Cache, NodeInfo};
use crate::framework::{CycleState, MAX_SCORE, Plugin, Rejection};
use crate::pod::PodInfo;

const NAME: &str = "PodTopologySpread";

pub(super) struct PodTopologySpread;

/// One constraint with its counts.
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: i64,
    /// Whether the pod counts itself.
    self_match: bool,
    /// Pods by value of the key.
    counts: HashMap<String, i64>,
}

struct Hard(Vec<Constraint>);
struct Soft(Vec<Constraint>);

impl Constraint {
    fn new(spec: &TopologySpreadConstraint, pod: &PodInfo, cache: &Cache) -> Self {
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
        let mut counts = HashMap::new();
        for node in cache.nodes().filter(|node| counted(spec, pod, node)) {
            let Some(value) = node.labels.get(&spec.topology_key) else {
                continue;
            };
            let alike = node.pods.iter().filter(|other| {
                other.key.namespace == pod.key.namespace
                    && other.pod.metadata.deletion_timestamp.is_none()
                    && selector.matches_map(&other.labels)
            });
            *counts.entry(value.clone()).or_insert(0) += i64::try_from(alike.count()).unwrap_or(i64::MAX);
        }
        Self {
            key: spec.topology_key.clone(),
            max_skew: i64::from(spec.max_skew),
            min_domains: i64::from(spec.min_domains.unwrap_or(1)),
            self_match: selector.matches_map(&pod.labels),
            counts,
        }
    }

    /// The least number of pods of a domain; zero while there are too few domains.
    fn least(&self) -> i64 {
        if i64::try_from(self.counts.len()).unwrap_or(i64::MAX) < self.min_domains {
            return 0;
        }
        self.counts.values().copied().min().unwrap_or(0)
    }
}

/// Whether a node's pods count: by default, nodes that the pod could not go to for their labels do not.
fn counted(spec: &TopologySpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    let affinity = spec.node_affinity_policy.as_deref() != Some("Ignore");
    let taint = spec.node_taints_policy.as_deref() == Some("Honor");
    (!affinity || node_affinity::matches_required(pod, node))
        && (!taint || taints::untolerated(pod, node, &["NoSchedule", "NoExecute"]).is_none())
}

fn constraints(pod: &PodInfo, when: &str, cache: &Cache) -> Vec<Constraint> {
    let all = pod
        .spec()
        .into_iter()
        .flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    all.filter(|spec| spec.when_unsatisfiable == when)
        .map(|spec| Constraint::new(spec, pod, cache))
        .collect()
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cache: &Cache) -> Result<(), Rejection> {
        state.put(NAME, Hard(constraints(pod, "DoNotSchedule", cache)));
        Ok(())
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

    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _nodes: &[&NodeInfo], cache: &Cache) {
        state.put(
            "PodTopologySpread/Score",
            Soft(constraints(pod, "ScheduleAnyway", cache)),
        );
    }

    /// The number of alike pods, less where the allowed skew is larger; the fewer, the better.
    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Soft(constraints) = state.get::<Soft>("PodTopologySpread/Score")?;
        let cost = constraints.iter().map(|constraint| {
            let there = node
                .labels
                .get(&constraint.key)
                .and_then(|value| constraint.counts.get(value));
            there.map_or(i64::from(i32::MAX), |there| {
                there * MAX_SCORE / constraint.max_skew.max(1)
            })
        });
        Some(cost.sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        let (least, most) = (
            scores.iter().copied().min().unwrap_or(0),
            scores.iter().copied().max().unwrap_or(0),
        );
        for score in scores {
            *score = if most == 0 {
                MAX_SCORE
            } else {
                MAX_SCORE * (most + least - *score) / most
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, fitting, pod, scores};
    use super::*;

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
        let node = |name: &str, zone: &str| json!({"metadata": {"name": name, "labels": {"zone": zone}}});
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
        assert_eq!(fitting(&PodTopologySpread, &pod, &zones(&[])), ["a1", "a2", "b1"]);
        assert_eq!(fitting(&PodTopologySpread, &pod, &zones(&[("a1", "1")])), ["b1"]);
        assert_eq!(
            fitting(&PodTopologySpread, &pod, &zones(&[("a1", "1"), ("b1", "2")])),
            ["a1", "a2", "b1"]
        );
        // With three domains wanted and two there, the least is zero.
        let three = incoming("DoNotSchedule", json!({"minDomains": 3}));
        assert_eq!(
            fitting(&PodTopologySpread, &three, &zones(&[("a1", "1"), ("b1", "2")])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn soft_constraints_prefer_the_emptier_zone() {
        let pod = incoming("ScheduleAnyway", json!({}));
        let all = scores(&PodTopologySpread, &pod, &zones(&[("a1", "1"), ("a2", "2")]));
        assert!(all[2] > all[0] && all[0] == all[1], "{all:?}");
    }
}
