use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::Node;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::health::{Beats, unknown};
use super::taint::{Eviction, desired};
use super::zones::{Pace, Shift, Zones};

fn node(name: &str, zone: &str, conditions: Value, spec: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "labels": {"topology.kubernetes.io/zone": zone},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec, "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn ready(name: &str, zone: &str, status: &str) -> Node {
    node(name, zone, json!([{"type": "Ready", "status": status}]), json!({}))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_or_a_report_is_a_sign_of_life_by_our_clock() {
    let mut beats = Beats::default();
    let grace = Duration::from_secs(40);
    let start = Instant::now();
    let report = |time: &str| {
        node(
            "n",
            "",
            json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]),
            json!({}),
        )
    };
    let lease = |time: &str| -> Lease {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"renewTime": time}})).unwrap()
    };
    let after = |seconds: u64| start + Duration::from_secs(seconds);
    beats.node(&report("2020-01-01T00:00:00Z"), start);
    assert_eq!(beats.left("n", grace, after(10)).as_secs(), 30);
    // The same report again says nothing new.
    beats.node(&report("2020-01-01T00:00:00Z"), after(10));
    assert_eq!(beats.left("n", grace, after(10)).as_secs(), 30);
    beats.node(&report("2020-01-01T00:00:01Z"), after(10));
    assert_eq!(beats.left("n", grace, after(10)).as_secs(), 40);
    beats.lease(&lease("1999-01-01T00:00:00.000000Z"), after(20));
    assert_eq!(beats.left("n", grace, after(20)).as_secs(), 40);
    beats.lease(&lease("1998-01-01T00:00:00.000000Z"), after(30));
    assert_eq!(beats.left("n", grace, after(60)), Duration::ZERO);
}

#[test]
fn all_that_a_silent_kubelet_reported_becomes_unknown() {
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]);
    let silent = unknown(&node("n", "", conditions, json!({})), at(5)).unwrap();
    let found: Vec<_> = silent
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref()))
        .collect();
    let never = Some("NodeStatusNeverUpdated");
    assert_eq!(
        found,
        [
            ("Ready", "Unknown", Some("NodeStatusUnknown")),
            ("Other", "True", None),
            ("MemoryPressure", "Unknown", never),
            ("DiskPressure", "Unknown", never),
            ("PIDPressure", "Unknown", never),
        ]
    );
    let mut again = node("n", "", json!([]), json!({}));
    again.status.get_or_insert_default().conditions = Some(silent);
    assert_eq!(unknown(&again, at(6)), None);
}

#[test]
fn conditions_become_taints() {
    let keys = |node: &Node, eviction| -> Option<Vec<String>> {
        let taints = desired(node, eviction, at(5))?;
        Some(
            taints
                .iter()
                .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
                .collect(),
        )
    };
    assert_eq!(keys(&ready("n", "", "True"), Eviction::Now), None);
    let down = ready("n", "", "Unknown");
    assert_eq!(
        keys(&down, Eviction::Now).unwrap(),
        ["unreachable:NoSchedule", "unreachable:NoExecute"]
    );
    assert_eq!(keys(&down, Eviction::Later).unwrap(), ["unreachable:NoSchedule"]);
    // From not ready to unreachable; others' taints stay.
    let spec = json!({"unschedulable": true, "taints": [
        {"key": "mine", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
    ]});
    let conditions = json!([
        {"type": "Ready", "status": "Unknown"}, {"type": "MemoryPressure", "status": "True"},
        {"type": "DiskPressure", "status": "False"}, {"type": "NetworkUnavailable", "status": "True"},
    ]);
    assert_eq!(
        keys(&node("n", "", conditions, spec), Eviction::Now).unwrap(),
        [
            "mine:NoExecute",
            "unreachable:NoSchedule",
            "memory-pressure:NoSchedule",
            "network-unavailable:NoSchedule",
            "unschedulable:NoSchedule",
            "unreachable:NoExecute",
        ]
    );
    // What is there keeps its time, and is no reason to write.
    let taints = json!({"taints": [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
    ]});
    let known = node("n", "", json!([{"type": "Ready", "status": "Unknown"}]), taints);
    assert_eq!(keys(&known, Eviction::Now), None);
    assert_eq!(keys(&known, Eviction::Never).unwrap(), ["unreachable:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn a_zone_is_emptied_the_slower_the_more_of_it_is_down() {
    let mut zones = Zones::new(Pace {
        normal: 0.1,
        slow: 0.01,
        large: 4,
        threshold: 0.55,
    });
    let set = |zones: &mut Zones, zone: &str, up: usize, down: usize| {
        for i in 0..up + down {
            zones.observe(&ready(
                &format!("{zone}{i}"),
                zone,
                if i < up { "True" } else { "Unknown" },
            ));
        }
        zones.assess()
    };
    assert_eq!(set(&mut zones, "a", 5, 1), Shift::Same);
    assert_eq!(zones.take_turn(":a"), Ok(()));
    assert_eq!(zones.take_turn(":a"), Err(Some(Duration::from_secs(10))));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(zones.take_turn(":a"), Ok(()));
    // Four of six are more than 55 %: partly down, and large, so slowly.
    assert_eq!(set(&mut zones, "a", 2, 4), Shift::Changed);
    tokio::time::advance(Duration::from_secs(50)).await;
    assert_eq!(zones.take_turn(":a"), Err(Some(Duration::from_secs(60))));
    // In a small one not at all.
    assert_eq!(set(&mut zones, "b", 1, 3), Shift::Changed);
    assert_eq!(zones.take_turn(":b"), Err(None));
    // With nothing left in either, the fault is ours.
    assert_eq!(set(&mut zones, "b", 0, 4), Shift::Changed);
    assert!(!zones.all_down());
    assert_eq!(set(&mut zones, "a", 0, 6), Shift::Changed);
    assert!(zones.all_down());
    assert_eq!(set(&mut zones, "a", 1, 5), Shift::Recovered);
    assert!(!zones.all_down());
}
