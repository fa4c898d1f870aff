//! Sums: no await, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::apimachinery::pkg::api::resource::Quantity as Text;
use minato_api::k8s::core::v1::{ResourceQuota, ResourceQuotaStatus};
use minato_meta::{GroupResource, Quantity, QuantityFormat};
use minato_rules::quota::{self, Amounts};
use serde::Serialize;
use serde_json::Value;

use crate::error::Result;

/// The kinds whose objects make up the limited amounts.
pub(super) fn sources(hard: &Amounts) -> BTreeSet<GroupResource> {
    hard.keys().filter_map(|name| quota::source(name)).collect()
}

/// What an object uses; nothing when it cannot be written as JSON, which no object is.
pub(super) fn usage_of<K: Serialize>(resource: &GroupResource, object: &K, now: Timestamp) -> Amounts {
    let tree = serde_json::to_value(object).unwrap_or_default();
    quota::usage(resource, &tree, now)
}

/// What the objects that the quota is about use together.
pub(super) fn sum<K: Serialize>(
    tree: &Value,
    resource: &GroupResource,
    objects: &[Arc<K>],
    now: Timestamp,
) -> Result<Amounts> {
    let mut total = Amounts::new();
    for object in objects {
        let object = serde_json::to_value(object.as_ref())?;
        if quota::selects(tree, resource, &object) {
            quota::add(&mut total, &quota::usage(resource, &object, now));
        }
    }
    Ok(total)
}

/// What so many objects use of which each counts for one.
pub(super) fn times(one: Amounts, count: usize) -> Amounts {
    let count = Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX), QuantityFormat::DecimalSi);
    one.into_keys().map(|name| (name, count)).collect()
}

/// The quota with that status; none when it has it. Amounts are compared by value, not by how they are written.
pub(super) fn with_status(current: &ResourceQuota, hard: &Amounts, used: &Amounts) -> Option<ResourceQuota> {
    let parsed = |list: &Option<BTreeMap<String, Text>>| -> Amounts {
        let list = list.iter().flatten();
        list.filter_map(|(name, text)| Some((name.clone(), text.0.parse().ok()?)))
            .collect()
    };
    let status = current.status.clone().unwrap_or_default();
    if parsed(&status.hard) == *hard && parsed(&status.used) == *used {
        return None;
    }
    let written = |amounts: &Amounts| -> BTreeMap<String, Text> {
        amounts
            .iter()
            .map(|(name, amount)| (name.clone(), Text(amount.to_string())))
            .collect()
    };
    let mut changed = current.clone();
    changed.status = Some(ResourceQuotaStatus {
        hard: Some(written(hard)),
        used: Some(written(used)),
    });
    Some(changed)
}
