//! How many replicas, and how fast.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior};
use minato_api::k8s::core::v1::Pod;
use serde_json::{Value, json};

use super::need::{Measured, Need, Sample, Target, Tolerance};
use super::pace::{self, Goal, History};
use super::tell::{self, Telling};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A pod that started and became ready long ago, and asked for 1000 thousandths.
fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "startTime": "1970-01-01T00:00:00Z", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]},
    }))
    .unwrap()
}

fn pending(name: &str) -> Pod {
    let mut pod = pod(name);
    pod.status.as_mut().unwrap().phase = Some("Pending".to_owned());
    pod
}

/// Pods and what those use that are measured.
fn need(pods: &[(Pod, Option<i64>)], target: Target) -> Result<Measured, String> {
    let samples = pods.iter().filter_map(|(pod, milli)| {
        let sample = Sample {
            milli: (*milli)?,
            at: at(9_990),
            window: Duration::from_secs(60),
        };
        Some((pod.metadata.name.clone().unwrap(), sample))
    });
    let all: Vec<Arc<Pod>> = pods.iter().map(|(pod, _)| Arc::new(pod.clone())).collect();
    let need = Need {
        pods: &all,
        samples: &samples.collect(),
        resource: "cpu",
        container: None,
        current: i32::try_from(pods.len()).unwrap(),
        target,
        tolerance: Tolerance { up: 0.1, down: 0.1 },
        now: at(10_000),
    };
    need.replicas()
}

fn replicas(pods: &[(Pod, Option<i64>)], percent: i64) -> i32 {
    need(pods, Target::Utilization(percent)).unwrap().replicas
}

#[test]
fn replicas_follow_use_outside_of_the_tolerance() {
    let two = |a, b| [(pod("a"), Some(a)), (pod("b"), Some(b))];
    // 90 of 100 percent on average, 50 wanted: 1.8 times two is 3.6.
    let found = need(&two(800, 1000), Target::Utilization(50)).unwrap();
    let expected = Measured {
        replicas: 4,
        utilization: Some(90),
        average_milli: 900,
    };
    assert_eq!(found, expected);
    assert_eq!(replicas(&two(540, 550), 50), 2, "within the tolerance");
    assert_eq!(replicas(&two(100, 100), 50), 1);
    let found = need(&two(800, 1000), Target::Average(300)).unwrap();
    assert_eq!((found.replicas, found.utilization), (6, None));
}

#[test]
fn of_whom_nothing_is_known_the_least_change_is_assumed() {
    // Three times too much on the one measured; the silent one is taken for idle: 1.5 times two.
    assert_eq!(replicas(&[(pod("a"), Some(1500)), (pod("b"), None)], 50), 3);
    // A tenth; the silent one is taken for fully used: (100 + 1000) of 2000 is 55 percent, above the target.
    assert_eq!(replicas(&[(pod("a"), Some(100)), (pod("b"), None)], 50), 2);
    // Pending pods are idle when rising, and no matter when falling.
    assert_eq!(replicas(&[(pod("a"), Some(1500)), (pending("b"), None)], 50), 3);
    assert_eq!(replicas(&[(pod("a"), Some(100)), (pending("b"), None)], 50), 1);
}

#[test]
fn a_starting_pod_says_nothing_about_the_processor() {
    let mut young = pod("b");
    let status = young.status.as_mut().unwrap();
    status.start_time.as_mut().unwrap().0 = at(9_900);
    status.conditions.as_mut().unwrap()[0]
        .last_transition_time
        .as_mut()
        .unwrap()
        .0 = at(9_950);
    // Its window began before it was ready.
    assert_eq!(replicas(&[(pod("a"), Some(500)), (young, Some(5000))], 50), 2);
}

#[test]
fn what_is_missing_is_told() {
    let mut bare = pod("a");
    bare.spec.as_mut().unwrap().containers[0].resources = None;
    let why = |pods: &[(Pod, Option<i64>)]| need(pods, Target::Utilization(50)).unwrap_err();
    assert_eq!(
        why(&[(bare, Some(1))]),
        "missing request for cpu in container c of Pod a"
    );
    assert_eq!(why(&[]), "no pods returned by selector while calculating replica count");
    assert!(why(&[(pod("a"), None)]).starts_with("did not receive metrics"));
}

fn paced(
    goal: (i32, i32),
    behavior: Option<Value>,
    history: &mut History,
    now: i64,
) -> (i32, &'static str, &'static str) {
    let behavior: Option<HorizontalPodAutoscalerBehavior> = behavior.map(|b| serde_json::from_value(b).unwrap());
    let goal = Goal {
        current: goal.0,
        desired: goal.1,
        least: 1,
        most: 50,
    };
    let paced = pace::pace(&goal, behavior.as_ref(), history, at(now));
    (paced.replicas, paced.stabilized.0, paced.limited.1)
}

#[test]
fn without_rules_it_doubles_at_most_and_falls_after_five_minutes() {
    let history = &mut History::default();
    history.begin(at(0), 1);
    assert_eq!(
        paced((1, 20), None, history, 1),
        (4, "ReadyForNewScale", "ScaleUpLimit")
    );
    assert_eq!(
        paced((4, 20), None, history, 16),
        (8, "ReadyForNewScale", "ScaleUpLimit")
    );
    assert_eq!(
        paced((20, 3), None, history, 100),
        (20, "ScaleDownStabilized", "DesiredWithinRange")
    );
    assert_eq!(
        paced((20, 3), None, history, 317),
        (3, "ReadyForNewScale", "DesiredWithinRange")
    );
    let high = paced((40, 90), None, &mut History::default(), 1000);
    assert_eq!(high, (50, "ReadyForNewScale", "TooManyReplicas"));
    let low = paced((4, 0), None, &mut History::default(), 1000);
    assert_eq!(low, (1, "ReadyForNewScale", "TooFewReplicas"));
}

#[test]
fn rules_bound_the_change_of_a_period() {
    let behavior = |select: &str| {
        Some(json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 60}]},
        }))
    };
    let fresh = |goal, select| paced(goal, behavior(select), &mut History::default(), 1000);
    assert_eq!(fresh((20, 40), "Max"), (24, "ReadyForNewScale", "ScaleUpLimit"));
    assert_eq!(fresh((20, 40), "Min"), (22, "ReadyForNewScale", "ScaleUpLimit"));
    assert_eq!(fresh((20, 40), "Disabled"), (20, "ReadyForNewScale", "ScaleUpLimit"));
    assert_eq!(fresh((25, 2), "Max"), (21, "ReadyForNewScale", "ScaleDownLimit"));
    // A tenth of 25 is 2.5, so that 22.5 are left: no more than 22.
    assert_eq!(fresh((25, 2), "Min"), (22, "ReadyForNewScale", "ScaleDownLimit"));
    assert_eq!(fresh((20, 21), "Max"), (21, "ReadyForNewScale", "DesiredWithinRange"));
    // What was added within the period counts.
    let history = &mut History::default();
    history.scaled(at(970), 3);
    assert_eq!(paced((20, 40), behavior("Max"), history, 1000).0, 21);
    assert_eq!(paced((20, 40), behavior("Max"), history, 1031).0, 24);
}

#[test]
fn windows_hold_both_ways() {
    let behavior =
        Some(json!({"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 60}}));
    let history = &mut History::default();
    history.begin(at(0), 5);
    // Only lately was less enough, and lately more was needed.
    assert_eq!(paced((5, 9), behavior.clone(), history, 30).1, "ScaleUpStabilized");
    assert_eq!(
        paced((5, 2), behavior, history, 45),
        (5, "ScaleDownStabilized", "DesiredWithinRange")
    );
}

#[test]
fn a_status_is_told_once() {
    let mut scaler = HorizontalPodAutoscaler::default();
    let tell = |scaler: &HorizontalPodAutoscaler, now: i64| {
        let mut telling = Telling::new(scaler, at(now));
        telling.current = 2;
        telling.desired = Some(3);
        telling.rescaled = now == 10;
        telling.condition(tell::ABLE, true, "SucceededRescale", "x");
        telling.status(scaler)
    };
    scaler.status = tell(&scaler, 10);
    let status = scaler.status.clone().unwrap();
    assert_eq!((status.current_replicas, status.desired_replicas), (Some(2), 3));
    assert_eq!(status.last_scale_time.unwrap().0, at(0) + SignedDuration::from_secs(10));
    assert_eq!(tell(&scaler, 20), None);
}
