//! What objects use of a ResourceQuota: the one reckoning that admission and the controller share.
//!
//! ```text
//!  source(name)  whose objects make up an amount        usage(object)  what one object uses, by name
//!  selects       whether a quota's scopes include it    exceeded       what would be too much
//! ```
//!
//! Source: <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

mod pod;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use minato_meta::{GroupResource, Quantity, QuantityFormat};
use serde_json::Value;

pub use pod::unstated;
pub use scope::selects;

/// Amounts by resource name, as in `spec.hard`.
pub type Amounts = BTreeMap<String, Quantity>;

const COUNT: &str = "count/";
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Core kinds that may be limited by their plain name.
const PLAIN: [&str; 7] = [
    "pods",
    "services",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "configmaps",
    "secrets",
];

fn one() -> Quantity {
    Quantity::from_units(1, QuantityFormat::DecimalSi)
}

fn core(resource: &str) -> GroupResource {
    GroupResource::new("", resource)
}

/// The kind whose objects make up the amount of that name; none for names that mean nothing.
pub fn source(name: &str) -> Option<GroupResource> {
    if let Some(counted) = name.strip_prefix(COUNT) {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        return (!resource.is_empty()).then(|| GroupResource::new(group, resource));
    }
    if PLAIN.contains(&name) {
        return Some(core(name));
    }
    if name.starts_with("services.") {
        return Some(core("services"));
    }
    if name == "requests.storage" || name.contains(STORAGE_CLASS) {
        return Some(core("persistentvolumeclaims"));
    }
    pod::is_computed(name).then(|| core("pods"))
}

/// The amounts of `spec.hard`. Values that are no quantities are left out: validation refuses them.
pub fn hard(quota: &Value) -> Amounts {
    amounts(quota.pointer("/spec/hard"))
}

/// The amounts of `status.hard`: the limits in force, which follow `spec.hard` once what is used is known.
pub fn in_force(quota: &Value) -> Amounts {
    amounts(quota.pointer("/status/hard"))
}

/// The amounts of `status.used`.
pub fn used(quota: &Value) -> Amounts {
    amounts(quota.pointer("/status/used"))
}

fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), quantity(value)?)))
        .collect()
}

/// A quantity, which JSON may write as a number.
fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Adds amounts to others.
pub fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = into.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = *sum + *amount;
    }
}

/// What `after` uses more than `before`; names of which it uses less or as much are left out.
pub fn increase(before: &Amounts, after: &Amounts) -> Amounts {
    let more = |(name, amount): (&String, &Quantity)| {
        let difference = *amount - before.get(name).copied().unwrap_or(Quantity::ZERO);
        (difference.signum() > 0).then(|| (name.clone(), difference))
    };
    after.iter().filter_map(more).collect()
}

/// The names among these that objects of a kind make up.
pub fn of_kind<'a>(names: impl IntoIterator<Item = &'a String>, resource: &GroupResource) -> Vec<&'a str> {
    let names = names.into_iter().map(String::as_str);
    names.filter(|name| source(name).as_ref() == Some(resource)).collect()
}

/// Only the amounts of these names.
pub fn only(amounts: &Amounts, names: &[impl AsRef<str>]) -> Amounts {
    let wanted = |name: &str| names.iter().any(|n| n.as_ref() == name);
    let kept = amounts.iter().filter(|(name, _)| wanted(name));
    kept.map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// The limited names of which `used` and `more` together are too much.
pub fn exceeded(hard: &Amounts, used: &Amounts, more: &Amounts) -> Vec<String> {
    let too_much = |(name, limit): (&String, &Quantity)| {
        let more = more.get(name).filter(|more| more.signum() > 0)?;
        let total = used.get(name).copied().unwrap_or(Quantity::ZERO) + *more;
        (total > *limit).then(|| name.clone())
    };
    hard.iter().filter_map(too_much).collect()
}

/// What an object of `resource` uses, under every name that a quota may limit. Pods that are finished use nothing but
/// their count.
pub fn usage(resource: &GroupResource, object: &Value, now: Timestamp) -> Amounts {
    let mut amounts = Amounts::new();
    let group = match resource.group.as_str() {
        "" => String::new(),
        group => format!(".{group}"),
    };
    amounts.insert(format!("{COUNT}{}{group}", resource.resource), one());
    if !resource.group.is_empty() {
        return amounts;
    }
    match resource.resource.as_str() {
        "pods" => amounts.extend(if pod::counts(object, now) {
            pod::usage(object)
        } else {
            Amounts::new()
        }),
        "services" => service(object, &mut amounts),
        "persistentvolumeclaims" => claim(object, &mut amounts),
        plain if PLAIN.contains(&plain) => drop(amounts.insert(plain.to_owned(), one())),
        _ => {}
    }
    amounts
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn service(object: &Value, amounts: &mut Amounts) {
    amounts.insert("services".to_owned(), one());
    let ports = object.pointer("/spec/ports").and_then(Value::as_array);
    let ports: Vec<&Value> = ports.into_iter().flatten().collect();
    let count =
        |number: usize| Quantity::from_units(i64::try_from(number).unwrap_or(i64::MAX), QuantityFormat::DecimalSi);
    let with_number = ports
        .iter()
        .filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0);
    match text(object, "/spec/type") {
        "NodePort" => drop(amounts.insert("services.nodeports".to_owned(), count(ports.len()))),
        "LoadBalancer" => {
            let allocates = object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
            let node_ports = if allocates { ports.len() } else { with_number.count() };
            amounts.insert("services.nodeports".to_owned(), count(node_ports));
            amounts.insert("services.loadbalancers".to_owned(), one());
        }
        _ => {}
    }
}

fn claim(object: &Value, amounts: &mut Amounts) {
    let asked = object.pointer("/spec/resources/requests/storage").and_then(quantity);
    // While it grows or shrinks, the larger counts.
    let allocated = object.pointer("/status/allocatedResources/storage").and_then(quantity);
    let storage = asked.max(allocated);
    let annotation = text(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    let class = match annotation {
        "" => text(object, "/spec/storageClassName"),
        class => class,
    };
    let mut insert = |name: String, amount: Quantity| {
        amounts.insert(name, amount);
    };
    insert("persistentvolumeclaims".to_owned(), one());
    if !class.is_empty() {
        insert(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), one());
    }
    if let Some(storage) = storage {
        insert("requests.storage".to_owned(), storage);
        if !class.is_empty() {
            insert(format!("{class}{STORAGE_CLASS}requests.storage"), storage);
        }
    }
}
