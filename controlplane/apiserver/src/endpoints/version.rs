//! Objects between the version of the request and the version of the store.
//!
//! Most kinds have one version. Events are one kind with two groups, and autoscalers one with two versions: what one
//! version cannot say is kept for the other.

use std::sync::Arc;

use minato_meta::{GroupVersion, GroupVersionResource};
use minato_rules::ResourceInfo;
use serde_json::{Map, Value, json};

use super::Target;
use crate::registry::Registry;

/// Whether a kind is stored in the version in which it is served here.
pub(crate) fn is_stored_version(resource: &ResourceInfo) -> bool {
    resource.gvr.group == resource.storage.group && resource.gvr.version == resource.storage_version
}

/// The target as the store knows it: the pipeline works on the stored version, by that version's rules.
pub(crate) fn stored_target(registry: &Registry, target: &Target) -> Target {
    let resource = &target.resource;
    if is_stored_version(resource) {
        return target.clone();
    }
    let storage = &resource.storage;
    let gvr = GroupVersionResource::new(&storage.group, &resource.storage_version, &storage.resource);
    Target {
        resource: registry.get(&gvr).unwrap_or_else(|| Arc::clone(resource)),
        ..target.clone()
    }
}

/// Turns an object of the request's version into one of the stored version.
pub(crate) fn to_storage(resource: &ResourceInfo, object: &mut Value) {
    if !is_stored_version(resource) {
        let stored = GroupVersion::new(&resource.storage.group, &resource.storage_version);
        convert(&resource.gvk.kind, &resource.gvk.group_version(), &stored, object);
    }
}

/// Turns a stored object into one of the request's version.
pub(crate) fn from_storage(resource: &ResourceInfo, object: &mut Value) {
    if !is_stored_version(resource) {
        let stored = GroupVersion::new(&resource.storage.group, &resource.storage_version);
        convert(&resource.gvk.kind, &stored, &resource.gvk.group_version(), object);
    } else if !names_version(resource, object) {
        // Written when another version was the stored one.
        let version = resource.gvk.group_version().to_string();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::String(version));
        }
    }
}

/// Whether an object says that it is of the resource's version.
pub(crate) fn names_version(resource: &ResourceInfo, object: &Value) -> bool {
    let version = resource.gvk.group_version().to_string();
    object.get("apiVersion").and_then(Value::as_str) == Some(version.as_str())
}

fn convert(kind: &str, from: &GroupVersion, to: &GroupVersion, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match (kind, from.group.as_str(), from.version.as_str()) {
        ("Event", "", _) => rename(fields, false),
        ("Event", ..) => rename(fields, true),
        ("HorizontalPodAutoscaler", _, "v2") if to.version == "v1" => autoscaler_to_v1(fields),
        ("HorizontalPodAutoscaler", _, "v1") if to.version == "v2" => autoscaler_to_v2(fields),
        _ => {}
    }
    fields.insert("apiVersion".to_owned(), Value::String(to.to_string()));
}

/// Fields of core events and of `events.k8s.io`, which mean the same.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(fields: &mut Map<String, Value>, to_core: bool) {
    for (core, newer) in EVENT_FIELDS {
        let (from, to) = if to_core { (newer, core) } else { (core, newer) };
        if let Some(value) = fields.remove(*from) {
            fields.insert((*to).to_owned(), value);
        }
    }
}

/// Where `autoscaling/v1` keeps what only `v2` can say.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

fn is_cpu(metric: &Value) -> bool {
    metric.pointer("/resource/name") == Some(&json!("cpu"))
}

fn part<'f>(fields: &'f mut Map<String, Value>, name: &str) -> Option<&'f mut Map<String, Value>> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

fn autoscaler_to_v1(fields: &mut Map<String, Value>) {
    let mut kept = Vec::new();
    if let Some(spec) = part(fields, "spec") {
        let mut metrics = into_list(spec.remove("metrics"));
        let utilization = |m: &Value| m.pointer("/resource/target/averageUtilization").cloned();
        if let Some(at) = metrics.iter().position(|m| is_cpu(m) && utilization(m).is_some()) {
            let cpu = utilization(&metrics.remove(at)).unwrap_or_default();
            spec.insert("targetCPUUtilizationPercentage".to_owned(), cpu);
        }
        kept.push((METRICS, Value::Array(metrics)));
        kept.push((BEHAVIOR, spec.remove("behavior").unwrap_or_default()));
    }
    if let Some(status) = part(fields, "status") {
        let mut metrics = into_list(status.remove("currentMetrics"));
        let utilization = |m: &Value| m.pointer("/resource/current/averageUtilization").cloned();
        if let Some(at) = metrics.iter().position(|m| is_cpu(m) && utilization(m).is_some()) {
            let cpu = utilization(&metrics.remove(at)).unwrap_or_default();
            status.insert("currentCPUUtilizationPercentage".to_owned(), cpu);
        }
        kept.push((CURRENT_METRICS, Value::Array(metrics)));
        kept.push((CONDITIONS, status.remove("conditions").unwrap_or_default()));
    }
    let kept = kept
        .into_iter()
        .filter(|(_, v)| !v.is_null() && *v != json!([]) && *v != json!({}));
    for (key, value) in kept {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        metadata["annotations"][key] = Value::String(value.to_string());
    }
}

fn autoscaler_to_v2(fields: &mut Map<String, Value>) {
    let mut kept = |key: &str| -> Option<Value> {
        let annotations = part(fields, "metadata")?.get_mut("annotations")?.as_object_mut()?;
        let text = annotations.remove(key)?;
        // Written by a client by hand, it may be anything: then it says nothing.
        serde_json::from_str(text.as_str()?).ok()
    };
    let (metrics, behavior) = (kept(METRICS), kept(BEHAVIOR));
    let (current, conditions) = (kept(CURRENT_METRICS), kept(CONDITIONS));
    if let Some(annotations) = part(fields, "metadata").and_then(|m| m.get("annotations"))
        && *annotations == json!({})
        && let Some(metadata) = part(fields, "metadata")
    {
        metadata.remove("annotations");
    }
    let cpu = |value: Value, holder: &str| {
        let mut metric = json!({"type": "Resource", "resource": {"name": "cpu"}});
        metric["resource"][holder]["averageUtilization"] = value;
        metric
    };
    if let Some(spec) = part(fields, "spec") {
        let mut list = into_list(metrics);
        if let Some(target) = spec.remove("targetCPUUtilizationPercentage").filter(|v| !v.is_null()) {
            let mut metric = cpu(target, "target");
            metric["resource"]["target"]["type"] = json!("Utilization");
            list.insert(0, metric);
        }
        put(spec, "metrics", list);
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = part(fields, "status") {
        let mut list = into_list(current);
        if let Some(value) = status
            .remove("currentCPUUtilizationPercentage")
            .filter(|v| !v.is_null())
        {
            list.insert(0, cpu(value, "current"));
        }
        put(status, "currentMetrics", list);
        put(status, "conditions", into_list(conditions));
    }
}

fn into_list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn put(fields: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        fields.insert(name.to_owned(), Value::Array(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> GroupVersion {
        GroupVersion::parse(text).unwrap()
    }

    fn there_and_back(kind: &str, from: &str, to: &str, object: &Value) -> Value {
        let mut there = object.clone();
        convert(kind, &version(from), &version(to), &mut there);
        let mut back = there.clone();
        convert(kind, &version(to), &version(from), &mut back);
        assert_eq!(back, *object);
        there
    }

    #[test]
    fn events_of_both_groups_say_the_same() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "m", "source": {"component": "c"}, "count": 2,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z",
            "reportingComponent": "r", "reason": "Why", "type": "Normal",
        });
        let newer = there_and_back("Event", "v1", "events.k8s.io/v1", &core);
        assert_eq!(newer["apiVersion"], "events.k8s.io/v1");
        assert_eq!(
            (&newer["regarding"], &newer["note"]),
            (&json!({"kind": "Pod"}), &json!("m"))
        );
        assert_eq!(newer["reportingController"], "r");
    }

    #[test]
    fn autoscalers_lose_nothing() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"metric": {"name": "x"}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
            },
            "status": {"currentReplicas": 1, "conditions": [{"type": "AbleToScale"}]},
        });
        let v1 = there_and_back("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1", &v2);
        assert_eq!(
            v1["spec"],
            json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80})
        );
        assert_eq!(v1["status"], json!({"currentReplicas": 1}));
    }
}
