//! What controllers ask about pods.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Pod, PodCondition, PodTemplateSpec};
use minato_api::kube::Api;
use minato_api::meta_v1::{ObjectMeta, OwnerReference, Time};
use minato_runtime::Informer;
use serde_json::json;

use crate::error::{Result, is_not_found};
use crate::{names, ops};

/// Condition of a pod that goes for no fault of its own.
pub(crate) const DISRUPTION: &str = "DisruptionTarget";

/// Whether and when a pod counts as available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    Yes,
    /// It is ready, and will be available after this time if it stays so.
    In(Duration),
    No,
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

/// Succeeded or failed: no container runs or will run again.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Neither finished nor on its way out: it counts as a replica.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// A pod is available when it has been ready for `min_ready_seconds`.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    let Some(ready) = condition(pod, "Ready").filter(|condition| condition.status == "True") else {
        return Availability::No;
    };
    if min_ready_seconds <= 0 {
        return Availability::Yes;
    }
    let Some(Time(since)) = ready.last_transition_time else {
        return Availability::No;
    };
    let needed = jiff::SignedDuration::from_secs(i64::from(min_ready_seconds));
    let left = needed - now.duration_since(since);
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => Availability::In(left),
        _ => Availability::Yes,
    }
}

pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

/// How often containers of a pod were started again, all together.
pub(crate) fn all_restarts(pod: &Pod) -> i64 {
    let status = pod.status.iter();
    let statuses = status.flat_map(|status| [&status.container_statuses, &status.init_container_statuses]);
    let statuses = statuses.flat_map(|statuses| statuses.iter().flatten());
    statuses.map(|status| i64::from(status.restart_count)).sum()
}

/// A pod of `template`, controlled by `owner`. The API server completes the name.
pub(crate) fn from_template(template: &PodTemplateSpec, namespace: &str, prefix: &str, owner: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(prefix)),
            namespace: Some(namespace.to_owned()),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// `prefix-`, unless that would leave no valid name.
fn name_prefix(prefix: &str) -> String {
    format!("{prefix}-")
}

/// Sorts pods so that those whose deletion does least harm come first: not placed, not running, not ready, cheap,
/// doubled up on a node, ready for less long, restarted more often, younger.
pub(crate) fn sort_for_deletion(pods: &mut [Arc<Pod>], now: Timestamp) {
    let mut on_node: HashMap<String, usize> = HashMap::new();
    for pod in pods.iter().filter(|pod| is_active(pod)) {
        if let Some(node) = node_name(pod) {
            *on_node.entry(node.to_owned()).or_default() += 1;
        }
    }
    let rank = |pod: &Pod| node_name(pod).and_then(|node| on_node.get(node)).copied().unwrap_or(0);
    pods.sort_by(|a, b| compare_for_deletion(a, b, now, &rank));
}

fn compare_for_deletion(a: &Pod, b: &Pod, now: Timestamp, rank: &dyn Fn(&Pod) -> usize) -> Ordering {
    let placed = |pod: &Pod| node_name(pod).is_some();
    let stage = |pod: &Pod| match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    placed(a)
        .cmp(&placed(b))
        .then_with(|| stage(a).cmp(&stage(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| rank(b).cmp(&rank(a)))
        .then_with(|| age_class(ready_since(a), now).cmp(&age_class(ready_since(b), now)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| age_class(created(a), now).cmp(&age_class(created(b), now)))
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

fn deletion_cost(pod: &Pod) -> i32 {
    let cost = ops::annotation(&pod.metadata, names::POD_DELETION_COST);
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Ages compare by order of magnitude (base 2), so that among pods of like age the choice is spread by uid. Without a
/// time a pod counts as youngest.
fn age_class(since: Option<Timestamp>, now: Timestamp) -> u32 {
    let Some(since) = since else { return 0 };
    let age = now.duration_since(since).as_secs().max(0);
    1 + u64::try_from(age).unwrap_or(0).checked_ilog2().map_or(0, |log| log + 1)
}

/// Index of pods by the node that they are on.
const BY_NODE: &str = "node";

/// Adds the index that [`on_node`] reads.
pub(crate) fn index_by_node(informer: &Informer<Pod>) {
    informer.add_index(BY_NODE, |pod| node_name(pod).map(str::to_owned).into_iter().collect());
}

/// The pods of a node.
pub(crate) fn on_node(informer: &Informer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    informer.indexed(BY_NODE, node)
}

/// Says in a pod's status that it goes for no fault of its own, and if `failed`, that it has ended.
pub(crate) async fn disrupt(api: &Api<Pod>, pod: &Pod, reason: &str, message: &str, failed: bool) -> Result<()> {
    let mut conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let told = condition(pod, DISRUPTION).is_some_and(|condition| condition.status == "True");
    let fails = failed && !is_finished(pod);
    if told && !fails {
        return Ok(());
    }
    if !told {
        conditions.retain(|condition| condition.type_ != DISRUPTION);
        conditions.push(PodCondition {
            type_: DISRUPTION.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(Timestamp::now())),
            ..PodCondition::default()
        });
    }
    let mut status = json!({"conditions": conditions});
    if fails {
        status["phase"] = json!("Failed");
    }
    settle(ops::merge_status(api, &pod.metadata, json!({"status": status})).await)
}

/// Says that a pod has ended, of which nobody will hear again.
pub(crate) async fn fail(api: &Api<Pod>, pod: &Pod) -> Result<()> {
    settle(ops::merge_status(api, &pod.metadata, json!({"status": {"phase": "Failed"}})).await)
}

fn settle(sent: std::result::Result<Pod, minato_api::kube::Error>) -> Result<()> {
    match sent {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use minato_api::k8s::core::v1::{PodSpec, PodStatus};

    use super::*;

    /// A pod that runs on `node` and is ready since `ready`, in seconds of 1970.
    pub(crate) fn pod(name: &str, node: Option<&str>, ready: Option<i64>) -> Pod {
        let condition = PodCondition {
            type_: "Ready".to_owned(),
            status: if ready.is_some() { "True" } else { "False" }.to_owned(),
            last_transition_time: ready.map(|ready| Time(Timestamp::from_second(ready).unwrap())),
            ..PodCondition::default()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                uid: Some(format!("uid-{name}")),
                creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                node_name: node.map(str::to_owned),
                ..PodSpec::default()
            }),
            status: Some(PodStatus {
                phase: Some(if node.is_some() { "Running" } else { "Pending" }.to_owned()),
                conditions: Some(vec![condition]),
                ..PodStatus::default()
            }),
        }
    }

    #[test]
    fn availability_needs_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let ready = pod("a", Some("n"), Some(100));
        assert_eq!(availability(&ready, 0, at(100)), Availability::Yes);
        assert_eq!(
            availability(&ready, 30, at(110)),
            Availability::In(Duration::from_secs(20))
        );
        assert_eq!(availability(&ready, 30, at(130)), Availability::Yes);
        assert_eq!(availability(&pod("b", Some("n"), None), 0, at(130)), Availability::No);
    }

    #[test]
    fn the_least_harmful_deletions_come_first() {
        let now = Timestamp::from_second(10_000).unwrap();
        let mut cheap = pod("cheap", Some("n1"), Some(100));
        cheap.metadata.annotations = Some([(names::POD_DELETION_COST.to_owned(), "-5".to_owned())].into());
        let mut pods: Vec<_> = [
            pod("old", Some("n1"), Some(100)),
            pod("alone", Some("n2"), Some(100)),
            pod("young", Some("n1"), Some(9_990)),
            cheap,
            pod("unready", Some("n2"), None),
            pod("unplaced", None, None),
        ]
        .map(Arc::new)
        .into();
        sort_for_deletion(&mut pods, now);
        let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        // `alone` shares n2 with one other, the n1 pods share with two.
        assert_eq!(names, ["unplaced", "unready", "cheap", "young", "old", "alone"]);
    }
}
