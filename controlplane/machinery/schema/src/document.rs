//! Built-in definitions as OpenAPI documents: the facts of the table, with descriptions from wherever the caller has them.
//!
//! Sources: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>; the `x-kubernetes-`
//! extensions are listed at <https://kubernetes.io/docs/reference/using-api/api-concepts/>.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::table::builtin;
use crate::types::{Field, IntegerFormat, ListType, PatchStrategy, Schema, SchemaRef, Shape};

/// Which OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 2.0: `#/definitions/`.
    V2,
    /// 3.0: `#/components/schemas/`.
    V3,
}

impl Dialect {
    fn reference(self, definition: &str) -> Value {
        let prefix = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!(format!("{prefix}{definition}"))
    }
}

/// Gives the description of a definition, or of a field of it when the field is not empty.
pub type Describe<'a> = &'a dyn Fn(&str, &str) -> Option<String>;

/// The schema of a built-in definition as OpenAPI text has it. `None` when there is no such definition.
pub fn openapi_definition(definition: &str, dialect: Dialect, describe: Describe<'_>) -> Option<Value> {
    let schema = builtin().get(definition)?;
    let mut out = shape(schema, dialect);
    if let Some(text) = describe(definition, "") {
        out.insert("description".to_owned(), Value::String(text));
    }
    if !schema.fields().is_empty() {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in schema.fields() {
            let property = property(field, dialect, describe(definition, &field.name));
            properties.insert(field.name.to_string(), Value::Object(property));
            if field.required {
                required.push(Value::from(field.name.as_ref()));
            }
        }
        out.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
    }
    if !schema.kinds.is_empty() {
        let kinds = schema
            .kinds
            .iter()
            .map(|k| json!({"group": k.group, "version": k.version, "kind": k.kind}))
            .collect();
        out.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(kinds));
    }
    Some(Value::Object(out))
}

/// Adds a definition and all that it refers to, directly or not.
pub fn add_references(definition: &str, found: &mut BTreeSet<String>) {
    let mut waiting = vec![definition.to_owned()];
    while let Some(name) = waiting.pop() {
        let Some(schema) = builtin().get(&name) else { continue };
        if found.insert(name) {
            waiting.extend(schema.fields().iter().filter_map(|f| named_below(&f.schema)));
        }
    }
}

fn named_below(schema: &SchemaRef) -> Option<String> {
    match &schema.shape {
        _ if !schema.name.is_empty() => schema.definition(),
        Shape::List(inner) | Shape::Map(inner) => named_below(inner),
        _ => None,
    }
}

fn property(field: &Field, dialect: Dialect, description: Option<String>) -> Map<String, Value> {
    let mut out = value(&field.schema, dialect);
    if dialect == Dialect::V3 && out.contains_key("$ref") {
        // Siblings of `$ref` are ignored in 3.0, so the reference goes into `allOf`.
        out = Map::from_iter([("allOf".to_owned(), json!([out]))]);
    }
    if let Some(text) = description {
        out.insert("description".to_owned(), Value::String(text));
    }
    if let Some(default) = &field.default {
        out.insert("default".to_owned(), (**default).clone());
    }
    if let Some(patch) = &field.patch {
        out.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy(patch)));
        if let Some(key) = &patch.merge_key {
            out.insert("x-kubernetes-patch-merge-key".to_owned(), json!(key));
        }
    }
    out
}

fn strategy(patch: &PatchStrategy) -> &'static str {
    match (patch.merge, patch.retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) => "replace",
    }
}

/// A value in a field, list or map: a reference where it has a name.
fn value(schema: &SchemaRef, dialect: Dialect) -> Map<String, Value> {
    match schema.definition() {
        Some(definition) => Map::from_iter([("$ref".to_owned(), dialect.reference(&definition))]),
        None => shape(schema, dialect),
    }
}

fn shape(schema: &Schema, dialect: Dialect) -> Map<String, Value> {
    let typed = |kind: &str| json!({"type": kind});
    let formatted = |kind: &str, format: &str| json!({"type": kind, "format": format});
    let mut out = match &schema.shape {
        Shape::Any => json!({}),
        Shape::Boolean => typed("boolean"),
        Shape::Integer(IntegerFormat::Int32) => formatted("integer", "int32"),
        Shape::Integer(IntegerFormat::Int64) => formatted("integer", "int64"),
        Shape::Number => formatted("number", "double"),
        Shape::String => typed("string"),
        Shape::Bytes => formatted("string", "byte"),
        Shape::Time | Shape::MicroTime => formatted("string", "date-time"),
        Shape::Quantity if dialect == Dialect::V2 => typed("string"),
        Shape::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::IntOrString if dialect == Dialect::V2 => formatted("string", "int-or-string"),
        Shape::IntOrString => json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
        Shape::Raw | Shape::FieldsV1 | Shape::Object(_) => typed("object"),
        Shape::List(items) => json!({"type": "array", "items": value(items, dialect)}),
        Shape::Map(values) => json!({"type": "object", "additionalProperties": value(values, dialect)}),
    };
    if let Value::Object(out) = &mut out {
        if matches!(schema.shape, Shape::List(_)) {
            let list_type = match &schema.list_type {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map(keys) => {
                    out.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
                    "map"
                }
            };
            out.insert("x-kubernetes-list-type".to_owned(), json!(list_type));
        }
        if schema.atomic {
            out.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
    }
    match out {
        Value::Object(out) => out,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_in_both_dialects() {
        let describe = |definition: &str, field: &str| Some(format!("about {definition} {field}"));
        let spec = openapi_definition("io.k8s.api.core.v1.ServiceSpec", Dialect::V3, &describe).unwrap();
        assert_eq!(
            spec["properties"]["ports"],
            json!({
                "type": "array", "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.ServicePort"},
                "description": "about io.k8s.api.core.v1.ServiceSpec ports",
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "port"
            })
        );
        assert_eq!(
            spec["properties"]["sessionAffinityConfig"]["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.SessionAffinityConfig"}])
        );
        let pod = openapi_definition("io.k8s.api.core.v1.Pod", Dialect::V2, &|_, _| None).unwrap();
        assert_eq!(
            pod["properties"]["spec"],
            json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"})
        );
        assert_eq!(
            pod["x-kubernetes-group-version-kind"],
            json!([{"group": "", "version": "v1", "kind": "Pod"}])
        );
        let port = openapi_definition("io.k8s.api.core.v1.ServicePort", Dialect::V2, &|_, _| None).unwrap();
        assert_eq!(port["required"], json!(["port"]));
        assert_eq!(port["properties"]["protocol"]["default"], json!("TCP"));
    }

    #[test]
    fn references_are_closed() {
        let mut found = BTreeSet::new();
        add_references("io.k8s.api.apps.v1.Deployment", &mut found);
        for name in [
            "io.k8s.api.apps.v1.DeploymentSpec",
            "io.k8s.api.core.v1.Container",
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        ] {
            assert!(found.contains(name), "{name}");
        }
        // Recursive definitions end.
        add_references(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            &mut found,
        );
        for name in found.clone() {
            let text = openapi_definition(&name, Dialect::V3, &|_, _| None)
                .unwrap()
                .to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let reference = reference.split('"').next().unwrap();
                assert!(found.contains(reference), "{reference}");
            }
        }
    }
}
