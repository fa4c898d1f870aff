//! `DefaultPreemption`: whether taking less important pods away from a node makes room for a pod, and from which node.
//!
//! Pure: looks at the cache, changes nothing. Source:
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>.

use std::sync::Arc;

use minato_api::k8s::policy::v1::PodDisruptionBudget;
use minato_meta::LabelSelector;

use crate::cache::{Cache, NodeInfo};
use crate::framework::{CycleState, Profile, Unschedulable};
use crate::pod::PodInfo;

/// Reason of the condition `DisruptionTarget` of a pod that has to go.
pub(crate) const REASON: &str = "PreemptionByScheduler";

/// What came of it.
pub(crate) enum Outcome {
    /// Nothing is to be done now; a node that was picked before stays picked. Says why.
    Wait(String),
    /// It would not help anywhere. Says why.
    Hopeless(String),
    /// Room is made on a node.
    Room(Plan),
}

/// A node, and who has to go, most important first.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) node: String,
    pub(crate) victims: Vec<Arc<PodInfo>>,
    /// Victims whose disruption budgets do not allow it.
    violations: usize,
}

/// A disruption budget as far as it matters here.
pub(crate) struct Budget {
    namespace: String,
    selector: LabelSelector,
    allowed: i64,
    /// Pods whose eviction is counted already.
    disrupted: Vec<String>,
}

impl Budget {
    pub(crate) fn new(budget: &PodDisruptionBudget) -> Self {
        let spec = budget.spec.clone().unwrap_or_default();
        let selector = LabelSelector::from_typed(spec.selector.as_ref());
        let status = budget.status.clone().unwrap_or_default();
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            // One that selects everything is not heeded here, as upstream.
            selector: selector
                .ok()
                .filter(|selector| !selector.is_everything())
                .unwrap_or_else(LabelSelector::nothing),
            allowed: i64::from(status.disruptions_allowed.unwrap_or(0)),
            disrupted: status
                .disrupted_pods
                .into_iter()
                .flatten()
                .map(|(name, _)| name)
                .collect(),
        }
    }
}

/// Looks for a node on which room can be made. `state` is that of the attempt that failed, `why` how it failed.
pub(crate) fn evaluate(
    profile: &Profile,
    pod: &PodInfo,
    cache: &Cache,
    state: &CycleState,
    why: &Unschedulable,
    budgets: &[Budget],
) -> Outcome {
    if pod.spec().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Outcome::Wait("preemption: not eligible due to preemptionPolicy=Never.".to_owned());
    }
    let nominated = cache.nominated_node(&pod.uid);
    if let Some(node) = nominated.filter(|node| why.candidates.iter().any(|name| name == node))
        && cache.node(node).is_some_and(|node| still_leaving(node, pod))
    {
        return Outcome::Wait("preemption: not eligible due to terminating pod on the nominated node.".to_owned());
    }
    let mut failed = Unschedulable {
        nodes: why.nodes,
        ..Unschedulable::default()
    };
    let unhelpful = why.nodes.saturating_sub(why.candidates.len());
    if unhelpful > 0 {
        let text = "Preemption is not helpful for scheduling".to_owned();
        failed.reasons.insert(text, unhelpful);
    }
    let Some(least) = profile.preemption else {
        return Outcome::Wait(String::new());
    };
    let plans = candidates(profile, pod, cache, state, &why.candidates, budgets, least, &mut failed);
    match plans.into_iter().reduce(better) {
        Some(plan) => Outcome::Room(plan),
        None => Outcome::Hopeless(format!("preemption: {}", failed.message())),
    }
}

/// Whether a less important pod of the node has been told to go and is not gone.
fn still_leaving(node: &NodeInfo, pod: &PodInfo) -> bool {
    node.pods.iter().any(|other| {
        let conditions = other
            .pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let mut told = conditions.filter(|condition| {
            condition.type_ == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason.as_deref() == Some(REASON)
        });
        other.priority < pod.priority && other.pod.metadata.deletion_timestamp.is_some() && told.next().is_some()
    })
}

/// Plans for some of the nodes, beginning anywhere: enough to choose from, one of them without violations if there is one.
fn candidates(
    profile: &Profile,
    pod: &PodInfo,
    cache: &Cache,
    state: &CycleState,
    names: &[String],
    budgets: &[Budget],
    (percent, number): (usize, usize),
    failed: &mut Unschedulable,
) -> Vec<Plan> {
    let enough = (names.len() * percent / 100).max(number).min(names.len());
    let start = if names.is_empty() {
        0
    } else {
        rand::random_range(0..names.len())
    };
    let mut plans: Vec<Plan> = Vec::new();
    for name in names[start..].iter().chain(&names[..start]) {
        if plans.len() >= enough && plans.iter().any(|plan| plan.violations == 0) {
            break;
        }
        let Some(node) = cache.node(name) else { continue };
        match victims_on(profile, pod, cache, state, node, budgets) {
            Ok(plan) => plans.push(plan),
            Err(reasons) => {
                for reason in reasons {
                    *failed.reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    plans
}

/// The fewest that have to go so that the pod fits: all less important ones leave, then as many as fit come back, first
/// those whose budgets would be violated, each time the most important first.
fn victims_on(
    profile: &Profile,
    pod: &PodInfo,
    cache: &Cache,
    state: &CycleState,
    node: &NodeInfo,
    budgets: &[Budget],
) -> Result<Plan, Vec<String>> {
    let mut lesser: Vec<Arc<PodInfo>> = node
        .pods
        .iter()
        .filter(|other| other.priority < pod.priority)
        .cloned()
        .collect();
    if lesser.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    let (mut state, mut node) = (state.clone(), node.clone());
    for other in &lesser {
        node.remove(&other.uid);
        profile.shift(&mut state, pod, other, &node, -1);
    }
    profile
        .filter_nominated(&state, pod, &node, cache)
        .map_err(|(_, rejection)| rejection.reasons)?;
    lesser.sort_by_key(importance);
    let (violating, allowed) = by_budget(&lesser, budgets);
    let mut victims = Vec::new();
    let mut violations = 0;
    for (others, violates) in [(violating, true), (allowed, false)] {
        for other in others {
            node.add(other.clone());
            profile.shift(&mut state, pod, &other, &node, 1);
            if profile.filter_nominated(&state, pod, &node, cache).is_err() {
                node.remove(&other.uid);
                profile.shift(&mut state, pod, &other, &node, -1);
                violations += usize::from(violates);
                victims.push(other);
            }
        }
    }
    victims.sort_by_key(importance);
    Ok(Plan {
        node: node.name,
        victims,
        violations,
    })
}

/// Sorts the most important first: by priority, then who has run longest.
fn importance(pod: &Arc<PodInfo>) -> (std::cmp::Reverse<i32>, jiff::Timestamp) {
    (std::cmp::Reverse(pod.priority), started(pod))
}

/// A pod that has not started counts as starting now, later than all that have.
fn started(pod: &PodInfo) -> jiff::Timestamp {
    let time = pod.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    time.map_or(jiff::Timestamp::MAX, |time| time.0)
}

/// Those whose going would violate a budget, and the others, in their order.
fn by_budget(pods: &[Arc<PodInfo>], budgets: &[Budget]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().cloned().partition(|pod| {
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if pod.labels.is_empty()
                || budget.namespace != pod.key.namespace
                || !budget.selector.matches_map(&pod.labels)
                || budget.disrupted.contains(&pod.key.name)
            {
                continue;
            }
            *left -= 1;
            violates |= *left < 0;
        }
        violates
    })
}

/// The plan that costs less; the first if they cost the same.
fn better(a: Plan, b: Plan) -> Plan {
    if cost(&b) < cost(&a) { b } else { a }
}

/// Upstream's criteria in order: violated budgets, the most important victim, the sum of priorities, the number of
/// victims; last, the victims of the highest priority should not have run for long.
fn cost(plan: &Plan) -> (usize, i64, i64, usize, std::cmp::Reverse<jiff::Timestamp>) {
    let highest = plan.victims.iter().map(|pod| pod.priority).max();
    // Shifted to be positive, so that more victims of negative priority do not come to less.
    let weight = |pod: &Arc<PodInfo>| i64::from(pod.priority) + i64::from(i32::MAX) + 1;
    let of_highest = plan.victims.iter().filter(|pod| Some(pod.priority) == highest);
    (
        plan.violations,
        highest.map_or(i64::MIN, i64::from),
        plan.victims.iter().map(weight).sum(),
        plan.victims.len(),
        std::cmp::Reverse(of_highest.map(|pod| started(pod)).min().unwrap_or(jiff::Timestamp::MAX)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cycle;
    use crate::plugins::{default_profile, testing::cache};

    fn node(name: &str, cpu: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"zone": name}},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}})
    }

    fn pod(name: &str, priority: i32, cpu: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": name}},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn info(value: Value) -> PodInfo {
        crate::plugins::testing::pod(value)
    }

    fn budget(app: &str, allowed: i32) -> Budget {
        let value = json!({"metadata": {"name": app, "namespace": "d"}, "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        Budget::new(&serde_json::from_value(value).unwrap_or_default())
    }

    fn outcome(pod: &PodInfo, cache: &Cache, budgets: &[Budget]) -> Outcome {
        let (profile, mut state) = (default_profile(), CycleState::default());
        match cycle::decide(&profile, pod, cache, &mut state) {
            Ok(_) => panic!("it fits"),
            Err(why) => evaluate(&profile, pod, cache, &state, &why, budgets),
        }
    }

    fn plan(pod: &PodInfo, cache: &Cache, budgets: &[Budget]) -> (String, Vec<String>) {
        match outcome(pod, cache, budgets) {
            Outcome::Room(plan) => {
                let victims = plan.victims.iter().map(|pod| pod.key.name.clone());
                (plan.node, victims.collect())
            }
            Outcome::Wait(text) | Outcome::Hopeless(text) => (text, Vec::new()),
        }
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_those_go_that_must() {
        // Of 4 CPUs, 2 are wanted: the larger of the lesser pods goes, as the more important ones come back first.
        let there = [
            ("n", pod("a", 5, "1")),
            ("n", pod("b", 3, "1")),
            ("n", pod("c", 1, "2")),
        ];
        let cache = cache(&[node("n", "4")], &there);
        assert_eq!(
            plan(&info(pod("p", 10, "2")), &cache, &[]),
            ("n".to_owned(), names(&["c"]))
        );
        assert_eq!(
            plan(&info(pod("p", 4, "3")), &cache, &[]),
            ("n".to_owned(), names(&["b", "c"]))
        );
        // Not those of its own priority.
        let (text, victims) = plan(&info(pod("p", 1, "2")), &cache, &[]);
        assert!(victims.is_empty());
        assert_eq!(
            text,
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
    }

    #[test]
    fn budgets_are_kept_where_possible() {
        let there = [("n", pod("a", 5, "1")), ("n", pod("b", 3, "1"))];
        let one = cache(&[node("n", "2")], &there);
        // By priority b would go; its budget saves it.
        let wanted = info(pod("p", 10, "1"));
        assert_eq!(plan(&wanted, &one, &[]).1, names(&["b"]));
        assert_eq!(plan(&wanted, &one, &[budget("b", 0)]).1, names(&["a"]));
        assert_eq!(plan(&wanted, &one, &[budget("b", 1)]).1, names(&["b"]));
        // A node without violations is better than one with a lesser victim.
        let two = cache(
            &[node("m", "1"), node("n", "1")],
            &[("m", pod("a", 5, "1")), ("n", pod("b", 3, "1"))],
        );
        assert_eq!(plan(&wanted, &two, &[]).0, "n");
        assert_eq!(plan(&wanted, &two, &[budget("b", 0)]).0, "m");
        // When nothing else helps, budgets do not.
        assert_eq!(plan(&wanted, &two, &[budget("b", 0), budget("a", 0)]).0, "n");
    }

    #[test]
    fn the_node_that_costs_least_is_chosen() {
        let on = |m: &[Value], n: &[Value]| {
            let placed: Vec<(&str, Value)> = m
                .iter()
                .map(|pod| ("m", pod.clone()))
                .chain(n.iter().map(|pod| ("n", pod.clone())))
                .collect();
            plan(
                &info(pod("p", 10, "2")),
                &cache(&[node("m", "2"), node("n", "2")], &placed),
                &[],
            )
            .0
        };
        // The lowest highest priority; then the smallest sum; then the fewest.
        assert_eq!(on(&[pod("a", 5, "2")], &[pod("b", 4, "1"), pod("c", 4, "1")]), "n");
        assert_eq!(
            on(
                &[pod("a", 5, "1"), pod("b", 1, "1")],
                &[pod("c", 5, "1"), pod("d", 2, "1")]
            ),
            "m"
        );
        assert_eq!(on(&[pod("a", -5, "1"), pod("b", -5, "1")], &[pod("c", -5, "2")]), "n");
        let since = |name: &str, time: &str| {
            let mut value = pod(name, 5, "2");
            value["status"] = json!({"startTime": time});
            value
        };
        let (old, new) = (since("a", "2026-01-01T00:00:00Z"), since("b", "2026-01-02T00:00:00Z"));
        let (old, new) = ([old], [new]);
        assert_eq!(on(&old, &new), "n");
        assert_eq!(on(&new, &old), "m");
    }

    #[test]
    fn it_is_not_tried_where_it_cannot_help_or_is_not_wanted() {
        let mut tainted = node("n", "1");
        tainted["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let there = [("n", pod("a", 0, "1"))];
        let cold = cache(&[tainted], &there);
        assert_eq!(
            plan(&info(pod("p", 10, "1")), &cold, &[]).0,
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        );
        let mut polite = pod("p", 10, "1");
        polite["spec"]["preemptionPolicy"] = json!("Never");
        let warm = cache(&[node("n", "1")], &there);
        assert!(matches!(outcome(&info(polite), &warm, &[]), Outcome::Wait(_)));
    }

    #[test]
    fn nobody_else_goes_while_room_is_being_made() {
        let mut leaving = pod("a", 0, "1");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        leaving["status"] = json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": REASON}]});
        let nodes = [node("m", "1"), node("n", "1")];
        let mut cache = cache(&nodes, &[("m", leaving), ("n", pod("b", 0, "1"))]);
        let wanted = Arc::new(info(pod("p", 10, "1")));
        cache.nominate(wanted.clone(), "m");
        assert!(matches!(outcome(&wanted, &cache, &[]), Outcome::Wait(_)));
        // Once it is gone, the room is the pod's: one that matters less does not get it, one that matters more does.
        cache.remove_pod("a");
        let profile = default_profile();
        let decide = |pod: &PodInfo| cycle::decide(&profile, pod, &cache, &mut CycleState::default()).ok();
        assert_eq!(decide(&wanted).as_deref(), Some("m"));
        assert_eq!(decide(&info(pod("q", 9, "1"))), None);
        assert_eq!(decide(&info(pod("q", 11, "1"))).as_deref(), Some("m"));
    }

    #[test]
    fn who_keeps_the_pod_away_by_affinity_goes_too() {
        let mut loner = pod("a", 0, "1");
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "p"}}});
        loner["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let cache = cache(&[node("n", "4")], &[("n", loner), ("n", pod("b", 0, "1"))]);
        assert_eq!(plan(&info(pod("p", 10, "1")), &cache, &[]).1, names(&["a"]));
    }
}
