//! The built-in kinds: a table of facts, and the behaviour of those that have any of their own.
//!
//! Thin as yet: of the API's defaulting and validation only what is in this file is there.

mod table;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use minato_meta::{GroupResource, GroupVersionKind, GroupVersionResource, names};
use serde_json::{Value, json};

use crate::resource::{Column, ResourceInfo, Strategy, Subresource, Verb};
use table::{ROWS, Row};

/// What sets a kind apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Plain,
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Pod,
    Rbac,
    /// Created and never stored.
    Review,
    Secret,
    Service,
}

/// All built-in kinds.
pub fn builtin() -> Vec<ResourceInfo> {
    ROWS.iter().map(info).collect()
}

fn info(row: &Row) -> ResourceInfo {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    ResourceInfo {
        gvr: GroupVersionResource::new(row.group, row.version, row.plural),
        gvk: GroupVersionKind::new(row.group, row.version, row.kind),
        list_kind: format!("{}List", row.kind),
        singular: row.kind.to_lowercase(),
        short_names: owned(row.short),
        categories: owned(row.categories),
        namespaced: row.namespaced,
        verbs: if row.behaviour == Behaviour::Review {
            Verb::CREATE_ONLY
        } else {
            Verb::ALL
        },
        subresources: row.subresources.iter().map(|name| subresource(name)).collect(),
        definition: format!("{}.{}", row.package, row.kind),
        storage: GroupResource::new(row.group, row.plural),
        storage_version: row.version.to_owned(),
        strategy: Arc::new(Builtin {
            behaviour: row.behaviour,
        }),
    }
}

fn subresource(name: &'static str) -> Subresource {
    let gvk = |group: &str, version: &str, kind: &str| Some(GroupVersionKind::new(group, version, kind));
    let (kind, verbs): (_, &'static [Verb]) = match name {
        "scale" => (
            gvk("autoscaling", "v1", "Scale"),
            &[Verb::Get, Verb::Patch, Verb::Update],
        ),
        "eviction" => (gvk("policy", "v1", "Eviction"), &[Verb::Create]),
        "token" => (gvk("authentication.k8s.io", "v1", "TokenRequest"), &[Verb::Create]),
        "binding" => (gvk("", "v1", "Binding"), &[Verb::Create]),
        "attach" => (gvk("", "v1", "PodAttachOptions"), &[Verb::Create, Verb::Get]),
        "exec" => (gvk("", "v1", "PodExecOptions"), &[Verb::Create, Verb::Get]),
        "portforward" => (gvk("", "v1", "PodPortForwardOptions"), &[Verb::Create, Verb::Get]),
        "proxy" => (
            None,
            &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        ),
        "log" => (None, &[Verb::Get]),
        "finalize" => (None, &[Verb::Update]),
        _ => (None, &[Verb::Get, Verb::Patch, Verb::Update]),
    };
    Subresource { name, kind, verbs }
}

struct Builtin {
    behaviour: Behaviour,
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a member of an object unless it is there.
fn fill(object: &mut Value, parent: &str, key: &str, value: Value) {
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.entry(key).or_insert(value);
    }
}

/// `stringData` is a way to write `data` without encoding it; it is never stored.
fn fold_string_data(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = fields.remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    let data = fields.entry("data").or_insert_with(|| json!({}));
    if let Some(data) = data.as_object_mut() {
        for (key, value) in plain {
            data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or_default())));
        }
    }
}

impl Strategy for Builtin {
    fn default(&self, object: &mut Value) {
        match self.behaviour {
            Behaviour::Namespace => {
                let name = text(object, "/metadata/name").to_owned();
                if !name.is_empty() {
                    fill(object, "/metadata", "labels", json!({}));
                    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                        labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
                    }
                }
            }
            Behaviour::Secret => {
                fold_string_data(object);
                fill(object, "", "type", json!("Opaque"));
            }
            Behaviour::Service => {
                fill(object, "/spec", "type", json!("ClusterIP"));
                fill(object, "/spec", "sessionAffinity", json!("None"));
                let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
                for port in ports.into_iter().flatten() {
                    let number = port.get("port").cloned();
                    fill(port, "", "protocol", json!("TCP"));
                    if let Some(number) = number {
                        fill(port, "", "targetPort", number);
                    }
                }
            }
            Behaviour::Pod => {
                for (key, value) in [
                    ("restartPolicy", json!("Always")),
                    ("dnsPolicy", json!("ClusterFirst")),
                    ("terminationGracePeriodSeconds", json!(30)),
                    ("schedulerName", json!("default-scheduler")),
                    ("securityContext", json!({})),
                    ("enableServiceLinks", json!(true)),
                ] {
                    fill(object, "/spec", key, value);
                }
            }
            _ => {}
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        match self.behaviour {
            Behaviour::Namespace => {
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("status".to_owned(), json!({"phase": "Active"}));
                    fields.entry("spec").or_insert_with(|| json!({}));
                }
                fill(object, "/spec", "finalizers", json!(["kubernetes"]));
            }
            Behaviour::Pod => {
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("status".to_owned(), json!({"phase": "Pending"}));
                }
            }
            _ => {}
        }
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        match self.behaviour {
            Behaviour::Namespace => names::dns1123_label(name),
            Behaviour::Service => names::dns1035_label(name),
            Behaviour::Rbac => names::path_segment(name),
            _ => names::dns1123_subdomain(name),
        }
    }

    fn allow_create_on_update(&self) -> bool {
        matches!(self.behaviour, Behaviour::Lease | Behaviour::Event)
    }

    fn has_generation(&self) -> bool {
        matches!(self.behaviour, Behaviour::Plain | Behaviour::Pod)
    }

    fn graceful_deletion_seconds(&self, object: &Value) -> Option<u64> {
        if self.behaviour != Behaviour::Pod {
            return None;
        }
        let finished = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        if finished || text(object, "/spec/nodeName").is_empty() {
            return Some(0);
        }
        Some(
            object
                .pointer("/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_u64)
                .unwrap_or(30),
        )
    }

    fn ttl_seconds(&self) -> Option<u64> {
        (self.behaviour == Behaviour::Event).then_some(3600)
    }

    fn field_labels(&self) -> &[&str] {
        match self.behaviour {
            Behaviour::Pod => &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ],
            Behaviour::Namespace => &["status.phase"],
            Behaviour::Secret => &["type"],
            Behaviour::Event => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "reason",
                "type",
            ],
            _ => &[],
        }
    }

    fn field(&self, object: &Value, label: &str) -> String {
        text(object, &format!("/{}", label.replace('.', "/"))).to_owned()
    }

    fn columns(&self) -> Vec<Column> {
        let column = |name: &str, column_type: &str, format: &str, description: &str| Column {
            name: name.to_owned(),
            column_type: column_type.to_owned(),
            format: format.to_owned(),
            description: description.to_owned(),
            priority: 0,
        };
        vec![
            column("Name", "string", "name", "Name of the object, unique in its namespace."),
            column("Age", "string", "", "Time since the object was created."),
        ]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let age = text(object, "/metadata/creationTimestamp")
            .parse::<Timestamp>()
            .map_or_else(
                |_| "<unknown>".to_owned(),
                |made| age(now.as_second() - made.as_second()),
            );
        vec![json!(text(object, "/metadata/name")), json!(age)]
    }
}

/// A duration as kubectl's users read it: two units at most, the second only while it tells something.
fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_a_known_one() {
        for info in builtin() {
            assert!(
                minato_schema::builtin().get(&info.definition).is_some(),
                "{}",
                info.definition
            );
        }
    }

    #[test]
    fn defaulting_twice_changes_nothing_and_odd_trees_do_no_harm() {
        let samples = [
            json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "spec": {"ports": [{"port": 80}, 1, null]}}),
            json!(null),
            json!({"metadata": [], "spec": "x", "stringData": 1}),
        ];
        for info in builtin() {
            for sample in &samples {
                let mut once = sample.clone();
                info.strategy.default(&mut once);
                let mut twice = once.clone();
                info.strategy.default(&mut twice);
                assert_eq!(once, twice);
                let cells = info.strategy.cells(&once, Timestamp::UNIX_EPOCH);
                assert_eq!(cells.len(), info.strategy.columns().len());
            }
        }
    }

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"stringData": {"k": "v"}, "data": {"a": "YQ=="}});
        Builtin {
            behaviour: Behaviour::Secret,
        }
        .default(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "YQ==", "k": "dg=="}, "type": "Opaque"}));
    }

    #[test]
    fn ages_read_as_users_know_them() {
        let table = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_800, "3h"),
            (100_000, "27h"),
            (180_000, "2d2h"),
        ];
        for (seconds, text) in table {
            assert_eq!(age(seconds), text);
        }
    }
}
