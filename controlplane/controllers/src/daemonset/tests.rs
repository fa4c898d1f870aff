//! Plans of DaemonSets.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::DaemonSet;
use minato_api::k8s::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::model::Model;
use super::plan::{self, Plan};
use super::status;

const NOW: i64 = 10_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn set(strategy: Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 3},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
        },
    }))
    .unwrap()
}

fn rolling(unavailable: i32, surge: i32) -> DaemonSet {
    let limits = json!({"maxUnavailable": unavailable, "maxSurge": surge});
    set(json!({"type": "RollingUpdate", "rollingUpdate": limits}))
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    let node = |name: &&str| {
        let (name, taint) = name.split_once('!').unwrap_or((name, ""));
        let taints = json!([{"key": "t", "effect": taint}]);
        let taints = if taint.is_empty() { json!([]) } else { taints };
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap())
    };
    names.iter().map(node).collect()
}

/// A pod on a node, of revision `new` or another, that is ready or not; ages follow the names.
fn pod(name: &str, node: &str, revision: &str, ready: bool) -> Pod {
    let condition =
        json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": at(9_000)});
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "labels": {"controller-revision-hash": revision},
            "creationTimestamp": at(i64::from(name.as_bytes()[0])),
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": [condition]},
    }))
    .unwrap()
}

fn ended(mut pod: Pod, phase: &str) -> Pod {
    pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
    pod
}

fn deleted(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(at(NOW)));
    pod
}

fn model<'a>(set: &'a DaemonSet, names: &[&str], pods: Vec<Pod>) -> Model<'a> {
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    Model::new(set, set.spec.as_ref().unwrap(), "new", &nodes(names), &pods, at(NOW))
}

fn planned(set: &DaemonSet, names: &[&str], pods: Vec<Pod>) -> Plan {
    plan::plan(&model(set, names, pods), &|_| None).unwrap()
}

/// Names of nodes that get a pod, and of pods that go.
fn moves(plan: &Plan) -> (String, String) {
    let pods = plan.delete.iter().map(|pod| pod.metadata.name.as_deref().unwrap());
    (plan.create.join(" "), pods.collect::<Vec<_>>().join(" "))
}

fn these(create: &str, delete: &str) -> (String, String) {
    (create.to_owned(), delete.to_owned())
}

#[test]
fn each_node_that_is_meant_has_one_pod() {
    let set = rolling(1, 0);
    let names = ["n1", "n2", "n3!NoSchedule", "n4!NoExecute", "n5!NoSchedule"];
    let pods = vec![
        pod("b", "n1", "new", true),
        pod("a", "n1", "new", true),
        pod("c", "n3", "new", true),
        pod("d", "n4", "new", true),
        pod("e", "gone", "new", true),
    ];
    // The younger of two goes; what only keeps new ones away drives nobody out.
    assert_eq!(moves(&planned(&set, &names, pods)), these("n2", "b d"));
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_gone_goes() {
    let set = rolling(1, 0);
    let mut waiting = pod("a", "", "new", false);
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["gone"]});
    let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    waiting.spec.as_mut().unwrap().affinity = serde_json::from_value(affinity).unwrap();
    assert_eq!(moves(&planned(&set, &["n1"], vec![waiting])), these("n1", "a"));
}

#[test]
fn ended_pods_are_taken_away_and_failed_ones_only_after_a_wait() {
    let set = rolling(1, 0);
    let pods = || {
        vec![
            ended(pod("a", "n1", "new", false), "Failed"),
            ended(pod("b", "n2", "new", false), "Succeeded"),
        ]
    };
    let plan = planned(&set, &["n1", "n2"], pods());
    assert_eq!((moves(&plan), plan.failed), (these("", "a b"), vec!["n1".to_owned()]));
    assert_eq!(plan.notes[0].1, "FailedDaemonPod");
    let wait = |node: &str| (node == "n1").then_some(Duration::from_secs(7));
    let plan = plan::plan(&model(&set, &["n1", "n2"], pods()), &wait).unwrap();
    assert_eq!(
        (moves(&plan), plan.wake),
        (these("", "b"), Some(Duration::from_secs(7)))
    );
    // One that is already on its way out makes room for the next.
    let leaving = deleted(ended(pod("a", "n1", "new", false), "Failed"));
    assert_eq!(moves(&planned(&set, &["n1"], vec![leaving])), these("n1", ""));
    assert_eq!(
        moves(&planned(&set, &["n1"], vec![deleted(pod("a", "n1", "new", true))])),
        these("", "")
    );
}

#[test]
fn a_rollout_keeps_enough_pods_available() {
    let names = ["n1", "n2", "n3", "n4"];
    let old = |name: &str, node: &str| pod(name, node, "old", true);
    let all = vec![old("a", "n1"), old("b", "n2"), old("c", "n3"), old("d", "n4")];
    assert_eq!(moves(&planned(&rolling(2, 0), &names, all.clone())), these("", "a b"));
    // A new one that is not available yet counts, and so does one that is leaving.
    let some = vec![
        pod("a", "n1", "new", false),
        old("b", "n2"),
        old("c", "n3"),
        old("d", "n4"),
    ];
    assert_eq!(moves(&planned(&rolling(2, 0), &names, some)), these("", "b"));
    let some = vec![deleted(old("a", "n1")), old("b", "n2"), old("c", "n3"), old("d", "n4")];
    assert_eq!(moves(&planned(&rolling(1, 0), &names, some)), these("", ""));
    // Nothing is lost with old ones that serve nobody.
    let some = vec![
        pod("a", "n1", "new", false),
        pod("b", "n2", "old", false),
        old("c", "n3"),
        old("d", "n4"),
    ];
    assert_eq!(moves(&planned(&rolling(1, 0), &names, some)), these("", "b"));
    let on_delete = set(json!({"type": "OnDelete"}));
    assert_eq!(moves(&planned(&on_delete, &names, all.clone())), these("", ""));
    let percent = set(json!({"rollingUpdate": {"maxUnavailable": "30%"}}));
    assert_eq!(moves(&planned(&percent, &names, all)), these("", "a b"));
}

#[test]
fn a_rollout_may_let_old_and_new_overlap() {
    let names = ["n1", "n2", "n3"];
    let old = |name: &str, node: &str| pod(name, node, "old", true);
    let set = rolling(0, 1);
    let all = vec![old("a", "n1"), old("b", "n2"), old("c", "n3")];
    assert_eq!(moves(&planned(&set, &names, all.clone())), these("n1", ""));
    let mut some = all.clone();
    some.push(pod("d", "n1", "new", false));
    assert_eq!(moves(&planned(&set, &names, some)), these("", ""));
    let mut some = all.clone();
    some.push(pod("d", "n1", "new", true));
    assert_eq!(moves(&planned(&set, &names, some)), these("", "a"));
    // An old one that serves nobody has its successor at once, beyond the limit.
    let some = vec![pod("a", "n1", "old", false), old("b", "n2"), old("c", "n3")];
    assert_eq!(moves(&planned(&set, &names, some)), these("n1 n2", ""));
}

#[test]
fn time_makes_pods_available() {
    let mut set = rolling(1, 0);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(1_030);
    let plan = planned(&set, &["n1"], vec![pod("a", "n1", "new", true)]);
    assert_eq!(plan.wake, Some(Duration::from_secs(30)));
}

#[test]
fn a_status_counts_nodes() {
    let set = rolling(1, 0);
    let names = ["n1", "n2", "n3", "n4!NoSchedule"];
    let pods = vec![
        pod("a", "n1", "new", true),
        pod("b", "n2", "old", false),
        pod("c", "n4", "new", true),
    ];
    let status = status::status(&model(&set, &names, pods), 0, true);
    assert_eq!(
        serde_json::to_value(status).unwrap(),
        json!({
            "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 1, "numberReady": 1,
            "numberAvailable": 1, "numberUnavailable": 2, "updatedNumberScheduled": 1, "observedGeneration": 3,
        })
    );
    let unsettled = status::status(&model(&set, &names, vec![]), 2, false);
    assert_eq!(
        (unsettled.observed_generation, unsettled.collision_count),
        (None, Some(2))
    );
}
