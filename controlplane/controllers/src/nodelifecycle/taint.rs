//! From a node's conditions to its taints.

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Node, Taint};
use minato_api::meta_v1::Time;

use super::health::{condition, ready};
use crate::taints::{
    DISK_PRESSURE, MEMORY_PRESSURE, NETWORK_UNAVAILABLE, NO_EXECUTE, NO_SCHEDULE, NOT_READY, PID_PRESSURE, UNREACHABLE,
    UNSCHEDULABLE,
};

const BY_CONDITION: [(&str, &str); 4] = [
    ("MemoryPressure", MEMORY_PRESSURE),
    ("DiskPressure", DISK_PRESSURE),
    ("PIDPressure", PID_PRESSURE),
    ("NetworkUnavailable", NETWORK_UNAVAILABLE),
];

/// What the controller may do about pods that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// Put the taint on if it is due.
    Now,
    /// It is due, but not its turn yet.
    Later,
    /// Take it off: when nothing at all answers, the fault is more likely ours.
    Never,
}

/// The key of the taint that moves pods away, if the node should have it.
pub(super) fn evicting(node: &Node) -> Option<&'static str> {
    match ready(node)? {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    }
}

fn is(taint: &Taint, key: &str, effect: &str) -> bool {
    taint.key == key && taint.effect == effect
}

/// Whether any of the two taints that move pods away is there.
pub(super) fn is_evicting(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.into_iter();
    taints.any(|taint| is(taint, NOT_READY, NO_EXECUTE) || is(taint, UNREACHABLE, NO_EXECUTE))
}

fn unwanted(node: &Node) -> Vec<&'static str> {
    let mut keys = Vec::new();
    keys.extend(evicting(node));
    for (type_, key) in BY_CONDITION {
        if condition(node, type_).is_some_and(|condition| condition.status == "True") {
            keys.push(key);
        }
    }
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

/// The taints that a node should have; none when it has them. Those of others are left as they are.
pub(super) fn desired(node: &Node, eviction: Eviction, now: Timestamp) -> Option<Vec<Taint>> {
    let present: Vec<Taint> = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = unwanted(node).into_iter().map(|key| (key, NO_SCHEDULE)).collect();
    if eviction == Eviction::Now {
        wanted.extend(evicting(node).map(|key| (key, NO_EXECUTE)));
    }
    let ours = |taint: &Taint| {
        let moves = [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
        let keeps_out = moves || taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, key)| *key == taint.key);
        (taint.effect == NO_SCHEDULE && keeps_out) || (taint.effect == NO_EXECUTE && moves)
    };
    let mut next: Vec<Taint> = Vec::new();
    for taint in &present {
        if !ours(taint) || wanted.iter().any(|(key, effect)| is(taint, key, effect)) {
            next.push(taint.clone());
        }
    }
    for (key, effect) in wanted {
        if !next.iter().any(|taint| is(taint, key, effect)) {
            next.push(Taint {
                key: key.to_owned(),
                value: None,
                effect: effect.to_owned(),
                time_added: Some(Time(now)),
            });
        }
    }
    (next != present).then_some(next)
}
