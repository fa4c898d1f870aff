//! Whether the schema of a custom kind is structural, which is what serving it needs.
//!
//! Rules: every level has a type; `allOf`, `anyOf`, `oneOf` and `not` only narrow what is specified outside of them; no
//! keyword that would make pruning ambiguous. Source:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use minato_meta::{FieldError, FieldErrorClass, FieldErrors};
use serde_json::{Map, Value};

use crate::path::Path;
use crate::types::Schema;
use crate::validation::validate;

/// Keywords of OpenAPI that custom kinds cannot have.
const FORBIDDEN: &[&str] = &[
    "$ref",
    "definitions",
    "dependencies",
    "discriminator",
    "id",
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
    "additionalItems",
];
/// Keywords that belong outside of `allOf` and the like.
const OUTSIDE: &[&str] = &[
    "type",
    "description",
    "title",
    "default",
    "additionalProperties",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// What keeps an `openAPIV3Schema` from being structural; the paths begin at the schema itself.
pub fn structural_errors(document: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let Value::Object(keys) = document else {
        errors.push(FieldError::required("", "schemas are required"));
        return errors;
    };
    match text(keys, "type") {
        "" => errors.push(FieldError::required("type", "must not be empty at the root")),
        "object" => {}
        other => errors.push(FieldError::invalid("type", other, "must be object at the root")),
    }
    for key in ["additionalProperties", "nullable"] {
        if keys.get(key).is_some_and(|v| *v != Value::Bool(false)) {
            errors.push(FieldError::forbidden(key, "must not be used at the root"));
        }
    }
    if let Some(metadata) = keys.get("properties").and_then(|p| p.get("metadata")) {
        let only_names = metadata
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(|p| p.keys().all(|k| k == "name" || k == "generateName"));
        if !only_names {
            errors.push(FieldError::forbidden(
                "properties[metadata]",
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    node(keys, Place::Root, &Path::Root, &mut errors, 0);
    errors
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Property,
    Item,
    Value,
}

/// Deeper schemas are refused when they are read.
const MAX_DEPTH: usize = 100;

fn text<'v>(keys: &'v Map<String, Value>, key: &str) -> &'v str {
    keys.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(keys: &Map<String, Value>, key: &str) -> bool {
    keys.get(key) == Some(&Value::Bool(true))
}

fn node(keys: &Map<String, Value>, place: Place, path: &Path<'_>, errors: &mut FieldErrors, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    for key in FORBIDDEN {
        if keys.contains_key(*key) {
            errors.push(FieldError::forbidden(
                path.field(key).to_string(),
                format!("{key} is not supported"),
            ));
        }
    }
    types(keys, place, path, errors);
    maps_and_lists(keys, path, errors);
    default_fits(keys, path, errors);
    if let Some(Value::Object(properties)) = keys.get("properties") {
        let here = path.field("properties");
        for (name, property) in properties {
            if let Value::Object(property) = property {
                node(property, Place::Property, &here.key(name), errors, depth + 1);
            }
        }
    }
    for (key, place) in [("items", Place::Item), ("additionalProperties", Place::Value)] {
        if let Some(Value::Object(inner)) = keys.get(key) {
            node(inner, place, &path.field(key), errors, depth + 1);
        }
    }
    each_junctor(keys, path, &mut |inner, path| {
        narrowing(inner, keys, path, errors, depth + 1)
    });
}

/// Visits the schemas of `allOf`, `anyOf`, `oneOf` and `not`.
fn each_junctor(keys: &Map<String, Value>, path: &Path<'_>, visit: &mut dyn FnMut(&Map<String, Value>, &Path<'_>)) {
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(list)) = keys.get(key) {
            let here = path.field(key);
            for (at, inner) in list.iter().enumerate() {
                if let Value::Object(inner) = inner {
                    visit(inner, &here.index(at));
                }
            }
        }
    }
    if let Some(Value::Object(inner)) = keys.get("not") {
        visit(inner, &path.field("not"));
    }
}

fn types(keys: &Map<String, Value>, place: Place, path: &Path<'_>, errors: &mut FieldErrors) {
    let kind = text(keys, "type");
    let here = path.field("type").to_string();
    if flag(keys, "x-kubernetes-int-or-string") {
        if !kind.is_empty() {
            errors.push(FieldError::invalid(
                here,
                kind,
                "must be empty if x-kubernetes-int-or-string is true",
            ));
        }
    } else if kind.is_empty() {
        let what = match place {
            _ if flag(keys, "x-kubernetes-preserve-unknown-fields") => return,
            Place::Root => return,
            Place::Property => "must not be empty for specified object fields",
            Place::Item => "must not be empty for specified array items",
            Place::Value => "must not be empty for specified map values",
        };
        errors.push(FieldError::required(here, what));
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(here, kind, TYPES));
    }
    if flag(keys, "x-kubernetes-embedded-resource") {
        if kind != "object" {
            let here = path.field("type").to_string();
            errors.push(FieldError::invalid(
                here,
                kind,
                "must be object if x-kubernetes-embedded-resource is true",
            ));
        }
        if !flag(keys, "x-kubernetes-preserve-unknown-fields") && !keys.contains_key("properties") {
            errors.push(FieldError::required(
                path.field("properties").to_string(),
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ));
        }
    }
    if kind == "array" && !keys.contains_key("items") {
        errors.push(FieldError::required(
            path.field("items").to_string(),
            "must be specified",
        ));
    }
}

fn maps_and_lists(keys: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    if flag(keys, "uniqueItems") {
        errors.push(FieldError::forbidden(
            path.field("uniqueItems").to_string(),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    match keys.get("additionalProperties") {
        Some(Value::Bool(false)) => errors.push(FieldError::forbidden(
            path.field("additionalProperties").to_string(),
            "additionalProperties cannot be set to false",
        )),
        Some(_) if keys.contains_key("properties") => errors.push(FieldError::forbidden(
            path.field("additionalProperties").to_string(),
            "additionalProperties and properties are mutual exclusive",
        )),
        _ => {}
    }
    let list_type = text(keys, "x-kubernetes-list-type");
    if !list_type.is_empty() && text(keys, "type") != "array" {
        errors.push(FieldError::invalid(
            path.field("type").to_string(),
            text(keys, "type"),
            "must be array if x-kubernetes-list-type is specified",
        ));
    }
    if list_type == "map" {
        list_map_keys(keys, path, errors);
    }
}

fn list_map_keys(keys: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let here = path.field("x-kubernetes-list-map-keys");
    let names: Vec<&str> = keys
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if names.is_empty() {
        errors.push(FieldError::required(
            here.to_string(),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let items = keys.get("items");
    let required = items.and_then(|i| i.get("required")).and_then(Value::as_array);
    for (at, name) in names.into_iter().enumerate() {
        let property = items.and_then(|i| i.get("properties")).and_then(|p| p.get(name));
        let Some(property) = property else {
            errors.push(FieldError::invalid(
                here.index(at).to_string(),
                name,
                "entries must all be names of item properties",
            ));
            continue;
        };
        let scalar = matches!(
            property.get("type").and_then(Value::as_str),
            Some("string" | "integer" | "number" | "boolean")
        );
        if !scalar {
            errors.push(FieldError::invalid(
                here.index(at).to_string(),
                name,
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            ));
        }
        let is_required = required.is_some_and(|list| list.iter().any(|r| r == name));
        if !is_required && property.get("default").is_none() {
            let items = path.field("items");
            let properties = items.field("properties");
            errors.push(FieldError::required(
                properties.key(name).field("default").to_string(),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
    }
}

fn default_fits(keys: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(default) = keys.get("default") else { return };
    // A schema that cannot be read is told by whoever reads it.
    let Ok(schema) = Schema::from_openapi_v3(&Value::Object(keys.clone())) else {
        return;
    };
    let here = path.field("default").to_string();
    for mut error in validate(default, &schema).0 {
        error.field = match (error.field.as_str(), error.field.starts_with('[')) {
            ("", _) => here.clone(),
            (_, true) => format!("{here}{}", error.field),
            (_, false) => format!("{here}.{}", error.field),
        };
        errors.push(error);
    }
    let mut pruned = default.clone();
    for unknown in crate::prune(&mut pruned, &schema, 10) {
        errors.push(FieldError::new(
            FieldErrorClass::Invalid,
            here.clone(),
            default.clone(),
            format!("must not have unknown fields: {unknown}"),
        ));
    }
}

/// A schema within `allOf` and the like: no structure of its own, and only fields that `outer` specifies.
fn narrowing(
    keys: &Map<String, Value>,
    outer: &Map<String, Value>,
    path: &Path<'_>,
    errors: &mut FieldErrors,
    depth: usize,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let int_or_string = flag(outer, "x-kubernetes-int-or-string");
    for key in OUTSIDE {
        // `anyOf: [{type: integer}, {type: string}]` is how an int-or-string tells other tools of its types.
        if keys.contains_key(*key) && !(int_or_string && *key == "type") {
            errors.push(FieldError::forbidden(
                path.field(key).to_string(),
                "must be empty to be structural",
            ));
        }
    }
    if let Some(Value::Object(properties)) = keys.get("properties") {
        let here = path.field("properties");
        for (name, inner) in properties {
            let specified = outer.get("properties").and_then(|p| p.get(name));
            let at = here.key(name);
            match (inner, specified) {
                (Value::Object(inner), Some(Value::Object(outer))) => narrowing(inner, outer, &at, errors, depth + 1),
                (_, None) if outer.get("properties").is_some() || !outer.contains_key("additionalProperties") => {
                    errors.push(FieldError::required(
                        format!("properties[{name}]"),
                        format!("because it is defined in {at}"),
                    ));
                }
                _ => {}
            }
        }
    }
    if let (Some(Value::Object(inner)), Some(Value::Object(outer))) = (keys.get("items"), outer.get("items")) {
        narrowing(inner, outer, &path.field("items"), errors, depth + 1);
    }
    each_junctor(keys, path, &mut |inner, path| {
        narrowing(inner, outer, path, errors, depth + 1)
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(document: Value) -> Vec<String> {
        structural_errors(&document).0.iter().map(ToString::to_string).collect()
    }

    fn spec(spec: Value) -> Vec<String> {
        errors(json!({"type": "object", "properties": {"spec": spec}}))
    }

    #[test]
    fn structural_schemas_pass() {
        assert_eq!(
            errors(json!({"type": "object", "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}},
                "spec": {"type": "object", "required": ["a"], "default": {"a": "x"},
                    "properties": {
                        "a": {"type": "string"},
                        "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                        "c": {"x-kubernetes-preserve-unknown-fields": true},
                        "d": {"type": "object", "additionalProperties": {"type": "string"}},
                        "e": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                            "items": {"type": "object", "required": ["k"], "properties": {
                                "k": {"type": "string"}, "p": {"type": "string", "default": "TCP"}}}}},
                    "anyOf": [{"required": ["a"]}, {"properties": {"a": {"enum": ["x"]}}}]}
            }})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_is_missing_or_misplaced_is_told() {
        assert_eq!(
            errors(json!({})),
            ["type: Required value: must not be empty at the root"]
        );
        assert_eq!(
            spec(json!({})),
            ["properties[spec].type: Required value: must not be empty for specified object fields"]
        );
        assert_eq!(
            spec(json!({"type": "array", "items": {}})),
            ["properties[spec].items.type: Required value: must not be empty for specified array items"]
        );
        assert_eq!(
            spec(json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}})),
            [
                "properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
            ]
        );
        assert_eq!(
            spec(json!({"type": "object", "properties": {"a": {"type": "string"}},
                "anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"minLength": 1}}}]})),
            [
                "properties[spec].anyOf[0].properties[a].type: Forbidden: must be empty to be structural",
                "properties[b]: Required value: because it is defined in properties[spec].anyOf[1].properties[b]",
            ]
        );
        assert_eq!(
            spec(json!({"type": "integer", "default": "x", "$ref": "#/x"})),
            [
                "properties[spec].$ref: Forbidden: $ref is not supported",
                "properties[spec].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ]
        );
        assert_eq!(
            spec(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "z"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}})
            ),
            [
                "properties[spec].items.properties[k].default: Required value: this property is in \
                 x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "properties[spec].x-kubernetes-list-map-keys[1]: Invalid value: \"z\": entries must all be names of item \
                 properties",
            ]
        );
        assert_eq!(
            errors(
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}})
            ),
            [
                "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata \
                 is implicitly specified"
            ]
        );
    }
}
