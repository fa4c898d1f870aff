//! Fills defaults that a schema states.

use serde_json::Value;

use crate::types::{Schema, Shape};

/// Fills absent fields from the schema's defaults, from the root inwards, so that a filled object gets the defaults of
/// its own fields. A `null` counts as absent where the schema does not allow it and states a default.
///
/// Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting>.
/// Built-in kinds state few defaults here; the rest are functions of the kind, in `rules`.
pub fn apply_defaults(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Value::Object(map)) => {
            for field in fields {
                let default = field.default.as_deref().or(field.schema.default.as_deref());
                let absent = match map.get(field.name.as_ref()) {
                    None => true,
                    Some(Value::Null) => !field.schema.nullable && default.is_some(),
                    Some(_) => false,
                };
                if let (true, Some(default)) = (absent, default) {
                    map.insert(field.name.to_string(), default.clone());
                }
                if let Some(child) = map.get_mut(field.name.as_ref()) {
                    apply_defaults(child, &field.schema);
                }
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for child in map.values_mut() {
                fill_null(child, values);
                apply_defaults(child, values);
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for child in list {
                fill_null(child, items);
                apply_defaults(child, items);
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = (**default).clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_nest_and_respect_what_is_there() {
        let schema = Schema::from_openapi_v3(&json!({
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 3},
                "maybe": {"type": "string", "nullable": true, "default": "x"},
                "sub": {"type": "object", "default": {}, "properties": {"mode": {"type": "string", "default": "auto"}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}}
            }
        }))
        .unwrap();
        let mut value = json!({"size": null, "maybe": null, "list": [{}, {"p": "UDP"}]});
        apply_defaults(&mut value, &schema);
        assert_eq!(
            value,
            json!({"size": 3, "maybe": null, "sub": {"mode": "auto"}, "list": [{"p": "TCP"}, {"p": "UDP"}]})
        );
        let once = value.clone();
        apply_defaults(&mut value, &schema);
        assert_eq!(value, once);
    }
}
