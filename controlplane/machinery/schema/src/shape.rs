//! Gives a tree the shape that Go's encoder gives it, so that tools which compare see no differences.
//!
//! Rules, per field: `null` is absent; with `omitempty` also `false`, 0, "", [] and {} are absent unless the field is a
//! pointer; a struct that is not a pointer is always there, empty if need be; a field without `omitempty` shows its zero
//! value. Quantities and times take their canonical text. One deviation: a nil list or map without `omitempty`, which Go
//! shows as `null`, is left out, because readers take both alike and merges would own the `null`.
//!
//! Fields of custom kinds count as pointers: what was written stays, and `null` stays where it is `nullable`.

use minato_meta::{Quantity, format_micro_time, format_time, parse_time};
use serde_json::{Map, Value};

use crate::types::{Field, Omit, Schema, Shape};

/// Rewrites the tree in place. Idempotent. Values of a wrong type are left alone: [`crate::check`] reports those.
pub fn to_go_shape(value: &mut Value, schema: &Schema) {
    match (&schema.shape, &mut *value) {
        (Shape::Object(fields), Value::Object(map)) => object(map, fields),
        (Shape::Map(values), Value::Object(map)) => {
            for child in map.values_mut() {
                if child.is_null() && !values.nullable {
                    *child = zero(values);
                }
                to_go_shape(child, values);
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for child in list {
                if child.is_null() && !items.nullable {
                    *child = zero(items);
                }
                to_go_shape(child, items);
            }
        }
        (Shape::Quantity, Value::String(text)) => {
            if let Ok(quantity) = text.parse::<Quantity>() {
                *text = quantity.to_string();
            }
        }
        (Shape::Quantity, Value::Number(number)) => {
            if let Ok(quantity) = number.to_string().parse::<Quantity>() {
                *value = Value::String(quantity.to_string());
            }
        }
        (Shape::Time, Value::String(text)) => {
            if let Ok(time) = parse_time(text) {
                *text = format_time(time);
            }
        }
        (Shape::MicroTime, Value::String(text)) => {
            if let Ok(time) = parse_time(text) {
                *text = format_micro_time(time);
            }
        }
        _ => {}
    }
}

fn object(map: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        let always = needs_value(field);
        match map.get_mut(field.name.as_ref()) {
            None if always => {
                let mut value = zero(&field.schema);
                to_go_shape(&mut value, &field.schema);
                map.insert(field.name.to_string(), value);
            }
            None => {}
            Some(value) => {
                if value.is_null() && field.schema.nullable {
                    continue;
                }
                if value.is_null() && always {
                    *value = zero(&field.schema);
                }
                to_go_shape(value, &field.schema);
                if is_omitted(value, field) {
                    map.remove(field.name.as_ref());
                }
            }
        }
    }
}

/// Whether Go shows the field even when nothing was said.
fn needs_value(field: &Field) -> bool {
    if field.pointer || field.omit == Omit::Zero {
        return false;
    }
    match &field.schema.shape {
        // `omitempty` never applies to a struct.
        Shape::Object(_) | Shape::Quantity => true,
        // Nor to an int-or-string, but those are filled by defaults, which look for their absence.
        Shape::IntOrString | Shape::Boolean | Shape::Integer(_) | Shape::Number | Shape::String => {
            field.omit == Omit::Never
        }
        _ => false,
    }
}

fn is_omitted(value: &Value, field: &Field) -> bool {
    if value.is_null() {
        return true;
    }
    if field.pointer || field.omit == Omit::Never {
        return false;
    }
    match value {
        Value::Bool(on) => !on,
        Value::Number(number) => !matches!(field.schema.shape, Shape::IntOrString) && number.as_f64() == Some(0.0),
        Value::String(text) => {
            text.is_empty() && !matches!(field.schema.shape, Shape::IntOrString | Shape::Any | Shape::Raw)
        }
        Value::Array(list) => list.is_empty() && !matches!(field.schema.shape, Shape::Any | Shape::Raw),
        Value::Object(map) => {
            map.is_empty()
                && match field.schema.shape {
                    Shape::Map(_) => true,
                    Shape::Object(_) => field.omit == Omit::Zero,
                    _ => false,
                }
        }
        Value::Null => true,
    }
}

fn zero(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Object(_) => Value::Object(Map::new()),
        Shape::Boolean => Value::Bool(false),
        Shape::Integer(_) | Shape::Number | Shape::IntOrString => Value::from(0),
        Shape::String | Shape::Bytes => Value::String(String::new()),
        Shape::Quantity => Value::String("0".to_owned()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin;

    #[test]
    fn a_pod_takes_the_shape_that_upstream_prints() {
        let pod = builtin().by_kind("", "v1", "Pod").unwrap();
        let mut value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "creationTimestamp": null, "labels": {}, "generation": 0},
            "spec": {
                "nodeName": "", "hostNetwork": false, "priority": 0, "tolerations": [],
                "containers": [{"name": "c", "image": "i", "env": null, "securityContext": {"privileged": false},
                    "resources": {"limits": {"memory": "1024Mi", "cpu": 0.5}}}]
            }
        });
        to_go_shape(&mut value, pod);
        assert_eq!(
            value,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a"},
                "spec": {
                    "priority": 0,
                    "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": false},
                        "resources": {"limits": {"memory": "1Gi", "cpu": "500m"}}}]
                },
                "status": {}
            })
        );
        let once = value.clone();
        to_go_shape(&mut value, pod);
        assert_eq!(value, once, "idempotent");
    }

    #[test]
    fn zero_values_without_omitempty_show() {
        let deployment = builtin().by_kind("apps", "v1", "Deployment").unwrap();
        let mut value = json!({"metadata": {"name": "d"}, "spec": {"replicas": 0, "template": {"spec": {}}}});
        to_go_shape(&mut value, deployment);
        assert_eq!(value["spec"]["replicas"], json!(0), "a pointer keeps its zero");
        assert_eq!(value["spec"]["strategy"], json!({}));
        assert_eq!(value["spec"]["template"]["metadata"], json!({}));
        assert_eq!(value["status"], json!({}));
    }

    #[test]
    fn custom_kinds_keep_what_was_written() {
        let schema = Schema::from_openapi_v3(&json!({"type": "object", "properties": {
            "a": {"type": "string", "nullable": true}, "b": {"type": "string"}, "c": {"type": "array", "items": {"type": "integer"}}}}))
        .unwrap();
        let mut value = json!({"a": null, "b": "", "c": []});
        to_go_shape(&mut value, &schema);
        assert_eq!(value, json!({"a": null, "b": "", "c": []}));
    }

    #[test]
    fn nulls_in_maps_and_times() {
        let map = builtin().by_kind("", "v1", "ConfigMap").unwrap();
        let mut value = json!({"metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"}, "data": {"a": null}});
        to_go_shape(&mut value, map);
        assert_eq!(
            value,
            json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}, "data": {"a": ""}})
        );
    }
}
