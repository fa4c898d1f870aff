//! A definition into the descriptors of its versions. Pure.

use std::sync::Arc;

use minato_meta::{GroupResource, GroupVersionKind, GroupVersionResource};
use minato_rules::{ResourceInfo, Subresource, Verb};
use minato_schema::Schema;
use serde_json::{Value, json};

use super::strategy::Custom;
use super::{is_on, is_terminating, list, text};
use crate::registry::CustomKind;

const ON_OBJECT: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
/// A kind that goes takes no new objects.
const TERMINATING: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

/// Where the objects of a definition are stored.
pub(super) fn storage(definition: &Value) -> GroupResource {
    GroupResource::new(text(definition, "/spec/group"), text(definition, "/spec/names/plural"))
}

/// The kinds that a definition serves. Versions whose schema cannot be read are left out: validation refuses them, so
/// that they come from another server's store.
pub(super) fn served(definition: &Value) -> Vec<CustomKind> {
    let versions = list(definition, "/spec/versions").iter();
    let served = versions.filter(|version| is_on(version, "/served"));
    served.filter_map(|version| of_version(definition, version)).collect()
}

/// The kind in the version in which its objects are stored, served or not.
pub(super) fn stored(definition: &Value) -> Option<CustomKind> {
    let mut versions = list(definition, "/spec/versions").iter();
    versions
        .find(|version| is_on(version, "/storage"))
        .and_then(|version| of_version(definition, version))
}

fn of_version(definition: &Value, version: &Value) -> Option<CustomKind> {
    let names = definition
        .pointer("/status/acceptedNames")
        .filter(|names| !text(names, "/plural").is_empty());
    let names = names.or_else(|| definition.pointer("/spec/names"))?;
    let (group, name) = (text(definition, "/spec/group"), text(version, "/name"));
    let kind = text(definition, "/spec/names/kind");
    let gvk = GroupVersionKind::new(group, name, kind);
    let stated = version
        .pointer("/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or_else(|| json!({}));
    let schema = match Schema::custom_resource(&stated, gvk.clone()) {
        Ok(schema) => schema,
        Err(error) => {
            tracing::warn!(%group, %kind, version = name, %error, "a stored definition has a schema that cannot be read");
            return None;
        }
    };
    let storage_version = list(definition, "/spec/versions").iter().find(|v| is_on(v, "/storage"));
    let texts = |pointer: &str| -> Vec<String> {
        let all = list(names, pointer).iter().filter_map(Value::as_str);
        all.map(str::to_owned).collect()
    };
    let info = ResourceInfo {
        gvr: GroupVersionResource::new(group, name, text(definition, "/spec/names/plural")),
        list_kind: text(definition, "/spec/names/listKind").to_owned(),
        singular: text(names, "/singular").to_owned(),
        short_names: texts("/shortNames"),
        categories: texts("/categories"),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        verbs: if is_terminating(definition) {
            TERMINATING
        } else {
            Verb::ALL
        },
        subresources: subresources(version),
        definition: definition_name(&gvk),
        storage: storage(definition),
        storage_version: text(storage_version?, "/name").to_owned(),
        strategy: Arc::new(Custom::of_version(version, deprecation(definition, version))),
        gvk,
    };
    Some(CustomKind {
        document: Some(Arc::new(document(stated, &info.gvk))),
        info: Arc::new(info),
        schema: schema.into(),
    })
}

fn subresources(version: &Value) -> Vec<Subresource> {
    let is_there = |name: &str| {
        version
            .pointer(&format!("/subresources/{name}"))
            .is_some_and(|s| !s.is_null())
    };
    let mut all = Vec::new();
    if is_there("status") {
        all.push(Subresource {
            name: "status",
            kind: None,
            verbs: ON_OBJECT,
        });
    }
    if is_there("scale") {
        all.push(Subresource {
            name: "scale",
            kind: Some(GroupVersionKind::new("autoscaling", "v1", "Scale")),
            verbs: ON_OBJECT,
        });
    }
    all
}

/// Name in OpenAPI documents: `com.example.stable.v1.CronTab`.
fn definition_name(gvk: &GroupVersionKind) -> String {
    let mut group: Vec<&str> = gvk.group.split('.').collect();
    group.reverse();
    format!("{}.{}.{}", group.join("."), gvk.version, gvk.kind)
}

/// The schema as OpenAPI publishes it: with what every object has.
fn document(mut stated: Value, gvk: &GroupVersionKind) -> Value {
    let preserves = is_on(&stated, "/x-kubernetes-preserve-unknown-fields");
    let Some(fields) = stated.as_object_mut() else {
        return stated;
    };
    fields.insert("type".to_owned(), json!("object"));
    fields.insert(
        "x-kubernetes-group-version-kind".to_owned(),
        json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}]),
    );
    let is_open = preserves && !fields.contains_key("properties");
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        let text = |about: &str| json!({"type": "string", "description": about});
        properties.insert(
            "apiVersion".to_owned(),
            text("Group and version of the schema that this object is written in."),
        );
        properties.insert(
            "kind".to_owned(),
            text("Kind of the object, in CamelCase. Cannot change."),
        );
        properties.insert(
            "metadata".to_owned(),
            json!({
                "description": "Name, labels and what else every object has.",
                "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
            }),
        );
    }
    if is_open {
        fields.insert("additionalProperties".to_owned(), json!(true));
    }
    stated
}

/// What clients of a deprecated version are told.
fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if !is_on(version, "/deprecated") {
        return None;
    }
    let own = text(version, "/deprecationWarning");
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let (group, kind) = (text(definition, "/spec/group"), text(definition, "/spec/names/kind"));
    let name = text(version, "/name");
    let newer = list(definition, "/spec/versions").iter().find(|other| {
        let priority = crate::discovery::priority;
        is_on(other, "/served") && !is_on(other, "/deprecated") && priority(text(other, "/name")) > priority(name)
    });
    let instead = newer.map(|newer| format!("; use {group}/{} {kind}", text(newer, "/name")));
    Some(format!(
        "{group}/{name} {kind} is deprecated{}",
        instead.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_kinds() {
        let definition = json!({
            "spec": {"group": "stable.example.com", "scope": "Namespaced",
                "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"},
                "versions": [
                    {"name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                        "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {
                            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}},
                    {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                ]},
            "status": {"acceptedNames": {"plural": "crontabs", "singular": "crontab", "shortNames": ["ct"]}},
        });
        let kinds = served(&definition);
        let [old, new] = kinds.as_slice() else {
            panic!("two are served")
        };
        assert_eq!(
            old.info.strategy.deprecation(),
            Some("stable.example.com/v1beta1 CronTab is deprecated; use stable.example.com/v1 CronTab")
        );
        assert_eq!(
            (old.info.storage_version.as_str(), new.info.short_names.as_slice()),
            ("v1", &["ct".to_owned()][..])
        );
        assert_eq!(new.info.definition, "com.example.stable.v1.CronTab");
        assert!(new.info.has_status() && new.info.subresource("scale").is_some() && !old.info.has_status());
        let document = new.document.as_ref().unwrap();
        assert_eq!(document["properties"]["kind"]["type"], "string");
        assert_eq!(stored(&definition).unwrap().info.gvr.version, "v1");
    }
}
