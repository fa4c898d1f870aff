//! `InterPodAffinity`: near to, or away from, other pods.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{Cache, NodeInfo};
use crate::config::Arguments;
use crate::framework::{CycleState, MAX_SCORE, Plugin, Rejection};
use crate::pod::{Namespaces, PodInfo, Term};

const NAME: &str = "InterPodAffinity";
const SCORE: &str = "InterPodAffinity/Score";

pub(super) struct InterPodAffinity {
    /// Weight of a required term of a pod that is there, when others are scored.
    hard_weight: i64,
    /// Whether what pods that are there prefer does not count for pods without preferences.
    ignore_others: bool,
}

impl InterPodAffinity {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self {
            hard_weight: arguments.hard_affinity_weight,
            ignore_others: arguments.ignore_preferences_of_others,
        }
    }
}

/// Counts by label key and value.
type Counts = HashMap<(String, String), i64>;

#[derive(Clone, Default)]
struct Required {
    /// For each of the pod's own terms, where matching pods are. For affinity, those that match all of the terms.
    affinity: Vec<Counts>,
    anti_affinity: Vec<Counts>,
    /// Where pods are that do not want this one near.
    unwelcome: Counts,
    /// The pod matches its own terms: it may be the first of its kind.
    matches_itself: bool,
    namespaces: Arc<Namespaces>,
}

impl Required {
    /// Counts another pod that is on the node.
    fn count(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        let namespaces = &self.namespaces;
        let affinity = &pod.affinity.required;
        if !affinity.is_empty() && affinity.iter().all(|term| term.matches(other, namespaces)) {
            for (term, counts) in affinity.iter().zip(&mut self.affinity) {
                add(counts, &term.topology_key, node, by);
            }
        }
        for (term, counts) in pod.anti_affinity.required.iter().zip(&mut self.anti_affinity) {
            if term.matches(other, namespaces) {
                add(counts, &term.topology_key, node, by);
            }
        }
        for term in &other.anti_affinity.required {
            if term.matches(pod, namespaces) {
                add(&mut self.unwelcome, &term.topology_key, node, by);
            }
        }
    }

    /// Nobody matches yet, and the pod itself does.
    fn first(&self) -> bool {
        self.matches_itself && self.affinity.iter().all(Counts::is_empty)
    }
}

#[derive(Clone)]
struct Scores(Counts);

/// Adds up; what comes to nothing is no entry.
fn add(counts: &mut Counts, key: &str, node: &NodeInfo, amount: i64) {
    let Some(value) = node.labels.get(key) else { return };
    let entry = (key.to_owned(), value.clone());
    let sum = counts.get(&entry).copied().unwrap_or(0) + amount;
    if sum == 0 {
        counts.remove(&entry);
    } else {
        counts.insert(entry, sum);
    }
}

fn count(counts: &Counts, key: &str, node: &NodeInfo) -> i64 {
    let Some(value) = node.labels.get(key) else { return 0 };
    counts.get(&(key.to_owned(), value.clone())).copied().unwrap_or(0)
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cache: &Cache) -> Result<(), Rejection> {
        let own = &pod.affinity.required;
        let mut required = Required {
            affinity: vec![Counts::new(); own.len()],
            anti_affinity: vec![Counts::new(); pod.anti_affinity.required.len()],
            matches_itself: own.iter().all(|term| term.matches(pod, cache.namespaces())),
            namespaces: cache.namespaces().clone(),
            ..Required::default()
        };
        // Where nobody is choosy there is nothing to count: most clusters, most of the time.
        for node in cache.nodes().filter(|node| pod.is_choosy() || node.choosy > 0) {
            for other in &node.pods {
                required.count(pod, other, node, 1);
            }
        }
        state.put(NAME, required);
        Ok(())
    }

    fn shift(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        if let Some(required) = state.get_mut::<Required>(NAME) {
            required.count(pod, other, node, by);
        }
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(required) = state.get::<Required>(NAME) else {
            return Ok(());
        };
        let terms = &pod.affinity.required;
        let labelled = terms.iter().all(|term| node.labels.contains_key(&term.topology_key));
        let all_near = terms
            .iter()
            .zip(&required.affinity)
            .all(|(term, counts)| count(counts, &term.topology_key, node) > 0);
        if !labelled || !all_near && !required.first() {
            return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let any_near = |term: &Term, counts: &Counts| count(counts, &term.topology_key, node) > 0;
        if pod
            .anti_affinity
            .required
            .iter()
            .zip(&required.anti_affinity)
            .any(|(term, counts)| any_near(term, counts))
        {
            return Err(Rejection::new("node(s) didn't match pod anti-affinity rules"));
        }
        let unwelcome = required
            .unwelcome
            .keys()
            .any(|(key, value)| node.labels.get(key) == Some(value));
        if unwelcome {
            return Err(Rejection::new(
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        Ok(())
    }

    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _nodes: &[&NodeInfo], cache: &Cache) {
        let mut scores = Counts::new();
        let namespaces = cache.namespaces();
        // Where nobody is choosy there is nothing to weigh: most clusters, most of the time.
        let prefers = !pod.affinity.preferred.is_empty() || !pod.anti_affinity.preferred.is_empty();
        if self.ignore_others && !prefers {
            return state.put(SCORE, Scores(scores));
        }
        for node in cache.nodes().filter(|node| pod.is_choosy() || node.choosy > 0) {
            for other in &node.pods {
                for (terms, sign) in [(&pod.affinity.preferred, 1), (&pod.anti_affinity.preferred, -1)] {
                    for term in terms.iter().filter(|term| term.matches(other, namespaces)) {
                        add(&mut scores, &term.topology_key, node, sign * i64::from(term.weight));
                    }
                }
                for (terms, sign) in [(&other.affinity.preferred, 1), (&other.anti_affinity.preferred, -1)] {
                    for term in terms.iter().filter(|term| term.matches(pod, namespaces)) {
                        add(&mut scores, &term.topology_key, node, sign * i64::from(term.weight));
                    }
                }
                let hard = other.affinity.required.iter();
                for term in hard.filter(|term| term.matches(pod, namespaces)) {
                    add(&mut scores, &term.topology_key, node, self.hard_weight);
                }
            }
        }
        state.put(SCORE, Scores(scores));
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Scores(scores) = state.get::<Scores>(SCORE)?;
        let near = scores
            .iter()
            .filter(|((key, value), _)| node.labels.get(key) == Some(value));
        Some(near.map(|(_, score)| score).sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        let (least, most) = (
            scores.iter().copied().min().unwrap_or(0),
            scores.iter().copied().max().unwrap_or(0),
        );
        for score in scores {
            *score = if most == least {
                0
            } else {
                MAX_SCORE * (*score - least) / (most - least)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, fitting, pod, scores};
    use super::*;

    fn plugin() -> InterPodAffinity {
        InterPodAffinity::new(&Arguments::default())
    }

    fn labelled(name: &str, app: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": app}}, "spec": {"containers": []}})
    }

    fn wanting(name: &str, app: &str, kind: &str, other: &str) -> Value {
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": other}}});
        let mut value = labelled(name, app);
        value["spec"]["affinity"] = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        value
    }

    fn zones(placed: &[(&str, Value)]) -> Cache {
        let node = |name: &str, zone: &str| json!({"metadata": {"name": name, "labels": {"zone": zone}}});
        cache(&[node("a1", "a"), node("a2", "a"), node("b1", "b")], placed)
    }

    #[test]
    fn near_and_away_by_zone() {
        let cache = zones(&[("a1", labelled("db", "db"))]);
        let near = pod(wanting("p", "web", "podAffinity", "db"));
        assert_eq!(fitting(&plugin(), &near, &cache), ["a1", "a2"]);
        let away = pod(wanting("p", "web", "podAntiAffinity", "db"));
        assert_eq!(fitting(&plugin(), &away, &cache), ["b1"]);
        let alone = pod(wanting("p", "web", "podAffinity", "cache"));
        assert_eq!(fitting(&plugin(), &alone, &cache), Vec::<String>::new());
        // The first of a group that wants to be together may go anywhere.
        let group = pod(wanting("p", "web", "podAffinity", "web"));
        assert_eq!(fitting(&plugin(), &group, &cache), ["a1", "a2", "b1"]);
    }

    #[test]
    fn who_is_there_may_not_want_company() {
        let cache = zones(&[("b1", wanting("loner", "x", "podAntiAffinity", "web"))]);
        assert_eq!(fitting(&plugin(), &pod(labelled("p", "web")), &cache), ["a1", "a2"]);
        assert_eq!(
            fitting(&plugin(), &pod(labelled("p", "db")), &cache),
            ["a1", "a2", "b1"]
        );
    }

    #[test]
    fn preferences_draw_near() {
        let mut value = labelled("p", "web");
        value["spec"]["affinity"] = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}},
        ]}});
        let cache = zones(&[("b1", labelled("db", "db"))]);
        assert_eq!(scores(&plugin(), &pod(value), &cache), [0, 0, 100]);
    }

    #[test]
    fn namespaces_are_chosen_by_name_and_by_label() {
        let mut cache = zones(&[("a1", labelled("db", "db"))]);
        let with = |kind: &str, extra: Value| {
            let mut value = wanting("p", "web", kind, "db");
            value["metadata"]["namespace"] = json!("other");
            let terms = &mut value["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"];
            for (name, part) in extra.as_object().into_iter().flatten() {
                terms[0][name] = part.clone();
            }
            pod(value)
        };
        let team = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
        let nowhere: [&str; 0] = [];
        // Its own namespace alone; then all.
        assert_eq!(fitting(&plugin(), &with("podAffinity", json!({})), &cache), nowhere);
        let all = with("podAffinity", json!({"namespaceSelector": {}}));
        assert_eq!(fitting(&plugin(), &all, &cache), ["a1", "a2"]);
        assert_eq!(fitting(&plugin(), &with("podAffinity", team.clone()), &cache), nowhere);
        // Names add to what labels select.
        let named = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}, "namespaces": ["d"]});
        assert_eq!(fitting(&plugin(), &with("podAffinity", named), &cache), ["a1", "a2"]);
        cache.set_namespace("d", [("team".to_owned(), "x".to_owned())].into());
        assert_eq!(
            fitting(&plugin(), &with("podAffinity", team.clone()), &cache),
            ["a1", "a2"]
        );
        assert_eq!(
            fitting(&plugin(), &with("podAntiAffinity", team.clone()), &cache),
            ["b1"]
        );
        cache.remove_namespace("d");
        assert_eq!(fitting(&plugin(), &with("podAffinity", team), &cache), nowhere);
    }
}
