//! What a pod uses.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use minato_meta::Quantity;
use serde_json::Value;

use super::{Amounts, one, quantity, text};

/// Resources that a quota also names without `requests.`.
const BARE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Whether pods' containers make up the amount of that name.
pub(super) fn is_computed(name: &str) -> bool {
    let prefixed = ["requests.", "limits."].iter().any(|prefix| name.starts_with(prefix));
    BARE.contains(&name) || prefixed || name.starts_with("hugepages-")
}

/// Whether the pod still uses anything: it is not finished, nor overdue to be gone.
pub(super) fn counts(object: &Value, now: Timestamp) -> bool {
    if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
        return false;
    }
    let deleted: Option<Timestamp> = text(object, "/metadata/deletionTimestamp").parse().ok();
    let grace = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    match (deleted, grace) {
        (Some(deleted), Some(grace)) => {
            let end = deleted.checked_add(SignedDuration::from_secs(grace.max(0)));
            end.is_err() || end.is_ok_and(|end| now <= end)
        }
        _ => true,
    }
}

pub(super) fn usage(object: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    amounts.insert("pods".to_owned(), one());
    for name in names(object, "requests") {
        if let Some(amount) = total(object, "requests", &name) {
            if BARE.contains(&name.as_str()) || name.starts_with("hugepages-") {
                amounts.insert(name.clone(), amount);
            }
            amounts.insert(format!("requests.{name}"), amount);
        }
    }
    for name in names(object, "limits") {
        if let Some(amount) = total(object, "limits", &name).filter(|_| BARE.contains(&name.as_str())) {
            amounts.insert(format!("limits.{name}"), amount);
        }
    }
    amounts
}

/// Names that every container must state an amount for where a quota limits them.
const TO_STATE: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

/// What the containers of a pod leave open of the limited names, in upstream's words:
/// `limits.cpu for: a,b; limits.memory for: b`. None where everything is stated.
pub fn unstated(object: &Value, limited: &[&str]) -> Option<String> {
    let states = |resources: &Value, name: &str| {
        let (kind, resource) = match name.split_once('.') {
            Some((kind, resource)) => (kind, resource),
            None => ("requests", name),
        };
        resources.pointer(&format!("/{kind}/{resource}")).is_some()
    };
    let none = Value::Null;
    let resources = |of: &Value| of.get("resources").cloned().unwrap_or_default();
    let of_pod = object.pointer("/spec/resources").unwrap_or(&none);
    let mut open = Vec::new();
    for name in TO_STATE.iter().filter(|name| limited.contains(name)) {
        if states(of_pod, name) {
            continue;
        }
        let containers = list(object, "/spec/containers").chain(list(object, "/spec/initContainers"));
        let silent = containers.filter(|container| !states(&resources(container), name));
        let silent: BTreeSet<&str> = silent.map(|container| text(container, "/name")).collect();
        if !silent.is_empty() {
            let silent: Vec<&str> = silent.into_iter().collect();
            open.push(format!("{name} for: {}", silent.join(",")));
        }
    }
    (!open.is_empty()).then(|| open.join("; "))
}

fn list<'v>(object: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn keys(object: Option<&Value>) -> impl Iterator<Item = String> {
    object
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.keys().cloned())
}

/// The resources that anything in the pod names.
fn names(object: &Value, kind: &str) -> BTreeSet<String> {
    let containers = list(object, "/spec/containers").chain(list(object, "/spec/initContainers"));
    let of_containers = containers.flat_map(|container| keys(container.pointer(&format!("/resources/{kind}"))));
    let of_pod = keys(object.pointer(&format!("/spec/resources/{kind}")));
    let overhead = keys(object.pointer("/spec/overhead"));
    of_containers.chain(of_pod).chain(overhead).collect()
}

/// The whole of one resource: containers side by side add up, the others take turns; what the pod itself says goes
/// before; the overhead comes on top.
fn total(object: &Value, kind: &str, name: &str) -> Option<Quantity> {
    let field = format!("/resources/{kind}/{}", name.replace('~', "~0").replace('/', "~1"));
    let of = |container: &Value| container.pointer(&field).and_then(quantity);
    let plus = |a: Option<Quantity>, b: Option<Quantity>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let together = list(object, "/spec/containers").fold(None, |sum, container| plus(sum, of(container)));
    let (mut side_cars, mut peak) = (None, None);
    for container in list(object, "/spec/initContainers") {
        if text(container, "/restartPolicy") == "Always" {
            side_cars = plus(side_cars, of(container));
            peak = peak.max(side_cars);
        } else {
            peak = peak.max(plus(side_cars, of(container)));
        }
    }
    let of_containers = plus(together, side_cars).max(peak);
    let whole = object.pointer("/spec").and_then(of).or(of_containers);
    let escaped = name.replace('~', "~0").replace('/', "~1");
    let overhead = object.pointer(&format!("/spec/overhead/{escaped}")).and_then(quantity);
    // Without a limit there is none, whatever the overhead.
    match kind {
        "limits" if whole.is_none() => None,
        _ => plus(whole, overhead),
    }
}
