//! `NodePool`: defaults, validation, columns.

use jiff::Timestamp;
use minato_meta::{FieldError, FieldErrors, names};
use minato_rules::{Column, Strategy, age};
use serde_json::{Value, json};

use super::{column, conditions, fill, integer, string, text, unchanged};

/// Largest pool. A cluster may have any number of pools.
const MAX_REPLICAS: i64 = 1000;

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "description": "A group of alike worker nodes of one cluster.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "What is wanted.",
                "required": ["clusterName"],
                "properties": {
                    "clusterName": string("Name of the Cluster, in the same namespace. Cannot change."),
                    "replicas": integer("Number of nodes."),
                    "instanceType": string("Instance type or flavor; for new machines."),
                    "zone": string("Zone; empty for any. For new machines."),
                    "image": string("Image; empty for the provider's default. For new machines."),
                    "labels": {
                        "type": "object",
                        "description": "Labels of the nodes; changes reach nodes that exist.",
                        "additionalProperties": {"type": "string"},
                    },
                    "taints": {
                        "type": "array",
                        "description": "Taints that new nodes register with.",
                        "x-kubernetes-list-type": "atomic",
                        "items": {
                            "type": "object",
                            "required": ["key", "effect"],
                            "properties": {
                                "key": string("Key."),
                                "value": string("Value."),
                                "effect": string("NoSchedule, PreferNoSchedule or NoExecute."),
                                "timeAdded": {"type": "string", "format": "date-time", "description": "Set by the cluster."},
                            },
                        },
                    },
                },
            },
            "status": {
                "type": "object",
                "description": "What is observed.",
                "properties": {
                    "replicas": integer("Machines that exist."),
                    "readyReplicas": integer("Nodes that are Ready."),
                    "selector": string("Label selector of the pool's Nodes."),
                    "machines": {
                        "type": "array",
                        "description": "The machines, each written here before the cloud is asked for it.",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name", "phase"],
                            "properties": {
                                "name": string("Host name, and name of the Node."),
                                "providerId": string("The cloud's id of it, once known."),
                                "phase": string("Creating, Created, Draining or Deleting."),
                                "since": {"type": "string", "format": "date-time", "description": "When the phase began."},
                            },
                        },
                    },
                    "conditions": conditions(),
                    "observedGeneration": integer("Generation that this status is about."),
                },
            },
        },
    })
}

pub(super) struct NodePools;

impl Strategy for NodePools {
    fn default(&self, object: &mut Value) {
        fill(object, &["replicas"], json!(0));
        fill(object, &["instanceType"], json!("m1.small"));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let cluster = text(object, "/spec/clusterName");
        if cluster.is_empty() {
            errors.push(FieldError::required(
                "spec.clusterName",
                "name the Cluster that the nodes belong to",
            ));
        }
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if !(0..=MAX_REPLICAS).contains(&replicas) {
            let why = format!("must be between 0 and {MAX_REPLICAS}");
            errors.push(FieldError::invalid("spec.replicas", replicas, why));
        }
        for (key, value) in object
            .pointer("/spec/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            for why in names::qualified_name(key) {
                errors.push(FieldError::invalid("spec.labels", key.as_str(), why));
            }
            let value = value.as_str().unwrap_or_default();
            for why in names::label_value(value) {
                errors.push(FieldError::invalid(format!("spec.labels[{key}]"), value, why));
            }
            if let Some(why) = kubelet_may_not_set(key) {
                errors.push(FieldError::forbidden(format!("spec.labels[{key}]"), why));
            }
        }
        let taints = object.pointer("/spec/taints").and_then(Value::as_array);
        for (index, taint) in taints.into_iter().flatten().enumerate() {
            let key = text(taint, "/key");
            for why in names::qualified_name(key) {
                errors.push(FieldError::invalid(format!("spec.taints[{index}].key"), key, why));
            }
            let effect = text(taint, "/effect");
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            if !effects.contains(&effect) {
                errors.push(FieldError::not_supported(
                    format!("spec.taints[{index}].effect"),
                    effect,
                    &effects,
                ));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        unchanged(&mut errors, object, old, "spec.clusterName");
        errors
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::dns1123_label(name)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            column("Name", "string", "Name of the pool."),
            column("Cluster", "string", "Name of its cluster."),
            column("Desired", "integer", "Nodes that are wanted."),
            column("Machines", "integer", "Machines that exist."),
            column("Ready", "integer", "Nodes that are Ready."),
            column("Age", "string", "Time since the pool was created."),
        ]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let number = |pointer: &str| json!(object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0));
        vec![
            json!(text(object, "/metadata/name")),
            json!(text(object, "/spec/clusterName")),
            number("/spec/replicas"),
            number("/status/replicas"),
            number("/status/readyReplicas"),
            age(object, now),
        ]
    }
}

/// Nodes register with these labels, and a node may not give itself every label of Kubernetes' own.
/// Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>.
fn kubelet_may_not_set(key: &str) -> Option<&'static str> {
    let (prefix, _) = key.split_once('/')?;
    let within = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
        return None;
    }
    (within("kubernetes.io") || within("k8s.io"))
        .then_some("labels of kubernetes.io and k8s.io cannot be given by a pool; use a prefix of your own")
}
