//! What budgets allow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Pod;
use minato_api::k8s::policy::v1::PodDisruptionBudget;
use minato_api::meta_v1::Time;
use serde_json::{Value, json};

use super::plan::{self, Counts};
use super::stale;
use crate::pods::tests::pod;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let budget = json!({"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status});
    serde_json::from_value(budget).unwrap()
}

fn of(spec: Value) -> PodDisruptionBudget {
    budget(
        spec,
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    )
}

#[test]
fn shares_are_rounded_up_and_numbers_taken_as_they_are() {
    for (spec, expected, desired, scale) in [
        (json!({"minAvailable": 2}), 3, 2, false),
        (json!({"minAvailable": 5}), 3, 5, false),
        (json!({"minAvailable": "50%"}), 7, 4, true),
        (json!({"minAvailable": "100%"}), 7, 7, true),
        (json!({"maxUnavailable": 1}), 3, 2, true),
        (json!({"maxUnavailable": 5}), 3, 0, true),
        // A third of seven is 2.1: three may go.
        (json!({"maxUnavailable": "30%"}), 7, 4, true),
        (json!({"maxUnavailable": "0%"}), 7, 7, true),
        (json!({}), 7, 0, false),
    ] {
        let budget = of(spec.clone());
        assert_eq!(plan::desired(&budget, expected).unwrap(), desired, "{spec}");
        assert_eq!(plan::needs_scale(&budget), scale, "{spec}");
    }
    assert!(plan::desired(&of(json!({"minAvailable": "half"})), 3).is_err());
}

fn counted(healthy: i32, desired: i32, expected: i32) -> Value {
    let counts = Counts {
        expected,
        desired,
        healthy,
    };
    let status = plan::status(&of(json!({})), &counts, BTreeMap::new(), at(100));
    serde_json::to_value(status).unwrap()
}

#[test]
fn what_is_beyond_the_need_may_go() {
    assert_eq!(
        counted(3, 2, 3),
        json!({"currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "disruptionsAllowed": 1,
               "observedGeneration": 3, "conditions": [{
                    "type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                    "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:01:40Z"}]})
    );
    assert_eq!(counted(1, 2, 3)["disruptionsAllowed"], 0);
    assert_eq!(counted(2, 2, 3)["conditions"][0]["reason"], "InsufficientPods");
    // Before the first pods were looked at, none may go.
    assert_eq!(counted(2, 0, 0)["disruptionsAllowed"], 0);
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let counts = |healthy| Counts {
        expected: 3,
        desired: 2,
        healthy,
    };
    let time = |status: &minato_api::k8s::policy::v1::PodDisruptionBudgetStatus| {
        status.conditions.as_ref().unwrap()[0].last_transition_time.0
    };
    let mut budget = of(json!({}));
    budget.status = Some(plan::status(&budget, &counts(3), BTreeMap::new(), at(100)));
    let same = plan::status(&budget, &counts(4), BTreeMap::new(), at(200));
    assert_eq!(time(&same), at(100));
    let other = plan::status(&budget, &counts(1), BTreeMap::new(), at(200));
    assert_eq!(time(&other), at(200));
    let failed = plan::failed(&budget, "why", at(300));
    assert_eq!((failed.disruptions_allowed, failed.current_healthy), (Some(0), Some(3)));
    let condition = &failed.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("SyncFailed", "why")
    );
}

fn ready(name: &str) -> Pod {
    pod(name, Some("n"), Some(1))
}

#[test]
fn evicted_pods_do_not_count_until_they_are_overdue() {
    let mut going = ready("going");
    going.metadata.deletion_timestamp = Some(Time(at(990)));
    let pods = [
        ready("stays"),
        ready("evicted"),
        ready("overdue"),
        going,
        pod("ill", Some("n"), None),
    ]
    .map(Arc::new);
    let status = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        "disruptedPods": {
            "evicted": "1970-01-01T00:15:00Z", "overdue": "1970-01-01T00:14:00Z",
            "going": "1970-01-01T00:15:00Z", "gone": "1970-01-01T00:15:00Z"}});
    // Evicted at 900, at 840; two minutes later than that is 1020, 960.
    let found = plan::disrupted(&budget(json!({}), status), &pods, at(1000));
    assert_eq!(found.pods.keys().collect::<Vec<_>>(), ["evicted"]);
    assert_eq!(found.overdue, [pods[2].clone()]);
    assert_eq!(found.recheck, Some(Duration::from_secs(20)));
    assert_eq!(plan::healthy(&pods, &found.pods), 2);
    assert_eq!(
        plan::disrupted(&of(json!({})), &pods, at(1000)),
        plan::Disrupted::default()
    );
}

#[test]
fn a_pod_that_was_told_to_go_and_stays_is_told_so() {
    let told = |reason: &str, phase: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"phase": phase, "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}}))
        .unwrap()
    };
    let pod = told("EvictionByEvictionAPI", "Running");
    assert_eq!(stale::stale_in(&pod, at(20)), Some(Duration::from_secs(100)));
    assert_eq!(stale::stale_in(&pod, at(500)), Some(Duration::ZERO));
    assert_eq!(stale::stale_in(&told("TerminationByKubelet", "Running"), at(500)), None);
    assert_eq!(
        stale::stale_in(&told("DeletionByTaintManager", "Failed"), at(500)),
        None
    );
    assert_eq!(stale::stale_in(&ready("p"), at(500)), None);
}
