//! Whether a tree has the types that a built-in kind wants; errors read as Go's decoder words them.

use minato_meta::{Quantity, parse_time};
use serde_json::Value;

use crate::types::{Field, IntegerFormat, Schema, Shape};

/// A value of the wrong type. The display form follows
/// `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// Another JSON type than the field has.
    #[error("json: cannot unmarshal {got} into Go struct field {owner}.{path} of type {expected}")]
    Field {
        /// What was found: `string`, `number 1.5`, `bool`, `array`, `object`.
        got: String,
        /// Struct that holds the field.
        owner: String,
        /// Dotted path of the field; list indices are not part of it.
        path: String,
        /// Go type that was wanted.
        expected: String,
    },
    /// Another JSON type than the whole value has.
    #[error("json: cannot unmarshal {got} into Go value of type {expected}")]
    Value {
        /// What was found.
        got: String,
        /// Go type that was wanted.
        expected: String,
    },
    /// Text that is not of the field's form (times, quantities, base64).
    #[error("{0}")]
    Text(String),
}

/// Checks types throughout the tree. `null` passes everywhere, as it does in Go.
///
/// # Errors
/// The first value of a wrong type, in the order of the tree.
pub fn check(value: &Value, schema: &Schema) -> Result<(), TypeError> {
    Checker {
        owner: "",
        path: Vec::new(),
    }
    .walk(value, schema, None)
}

struct Checker<'a> {
    owner: &'a str,
    path: Vec<&'a str>,
}

impl<'a> Checker<'a> {
    fn walk(&mut self, value: &Value, schema: &'a Schema, field: Option<&'a Field>) -> Result<(), TypeError> {
        match (&schema.shape, value) {
            (_, Value::Null) | (Shape::Any | Shape::Raw | Shape::FieldsV1, _) => Ok(()),
            (Shape::Object(_), Value::Object(map)) => {
                let outer = std::mem::replace(&mut self.owner, schema.type_name());
                for (key, child) in map {
                    if let Some(field) = schema.field(key) {
                        self.path.push(&field.name);
                        self.walk(child, &field.schema, Some(field))?;
                        self.path.pop();
                    }
                }
                self.owner = outer;
                Ok(())
            }
            (Shape::Map(values), Value::Object(map)) => {
                map.values().try_for_each(|child| self.walk(child, values, None))
            }
            (Shape::List(items), Value::Array(list)) => list.iter().try_for_each(|child| self.walk(child, items, None)),
            (Shape::Boolean, Value::Bool(_))
            | (Shape::String, Value::String(_))
            | (Shape::Number, Value::Number(_)) => Ok(()),
            (Shape::Integer(format), Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|n| match format {
                    IntegerFormat::Int32 => i32::try_from(n).is_ok(),
                    IntegerFormat::Int64 => true,
                });
                if fits {
                    Ok(())
                } else {
                    Err(self.mismatch(format!("number {number}"), schema, field))
                }
            }
            (Shape::IntOrString, Value::String(_)) => Ok(()),
            (Shape::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) {
                    return Ok(());
                }
                Err(TypeError::Value {
                    got: format!("number {number}"),
                    expected: "int32".to_owned(),
                })
            }
            (Shape::IntOrString, other) => Err(plain(other, "int32")),
            (Shape::Quantity, Value::String(text)) => quantity(text),
            (Shape::Quantity, Value::Number(number)) => quantity(&number.to_string()),
            (Shape::Quantity, other) => quantity(&other.to_string()),
            (Shape::Time | Shape::MicroTime, Value::String(text)) => {
                parse_time(text).map(|_| ()).map_err(|e| TypeError::Text(e.to_string()))
            }
            (Shape::Time | Shape::MicroTime, other) => Err(plain(other, "string")),
            (Shape::Bytes, Value::String(text)) => match minato_meta::first_bad_base64(text.as_bytes()) {
                None => Ok(()),
                Some(at) => Err(TypeError::Text(format!("illegal base64 data at input byte {at}"))),
            },
            (_, other) => Err(self.mismatch(kind_of(other).to_owned(), schema, field)),
        }
    }

    fn mismatch(&self, got: String, schema: &Schema, field: Option<&Field>) -> TypeError {
        let expected = match field.and_then(|f| f.go_type) {
            Some(name) => name.to_owned(),
            None => go_type(schema),
        };
        if self.path.is_empty() {
            return TypeError::Value { got, expected };
        }
        TypeError::Field {
            got,
            owner: self.owner.to_owned(),
            path: self.path.join("."),
            expected,
        }
    }
}

fn plain(value: &Value, expected: &str) -> TypeError {
    TypeError::Value {
        got: kind_of(value).to_owned(),
        expected: expected.to_owned(),
    }
}

fn quantity(text: &str) -> Result<(), TypeError> {
    text.parse::<Quantity>()
        .map(|_| ())
        .map_err(|e| TypeError::Text(e.to_string()))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(schema: &Schema) -> String {
    match &schema.shape {
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer(IntegerFormat::Int32) => "int32".to_owned(),
        Shape::Integer(IntegerFormat::Int64) => "int64".to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::String => "string".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::List(items) => format!("[]{}", go_type(items)),
        Shape::Map(values) => format!("map[string]{}", go_type(values)),
        Shape::Any => "interface {}".to_owned(),
        _ => schema.go_name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin;

    fn error(kind: (&str, &str, &str), value: Value) -> String {
        check(&value, builtin().by_kind(kind.0, kind.1, kind.2).unwrap())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn errors_read_as_users_know_them() {
        let deployment = ("apps", "v1", "Deployment");
        assert_eq!(
            error(deployment, json!({"spec": {"replicas": "2"}})),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        assert_eq!(
            error(
                deployment,
                json!({"spec": {"template": {"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}}})
            ),
            "json: cannot unmarshal string into Go struct field \
             ContainerPort.spec.template.spec.containers.ports.containerPort of type int32"
        );
        assert_eq!(
            error(deployment, json!({"spec": {"replicas": 3_000_000_000_i64}})),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        assert_eq!(
            error(("", "v1", "Pod"), json!({"spec": {"containers": {"name": "a"}}})),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        );
        assert_eq!(
            error(("", "v1", "ConfigMap"), json!({"data": {"a": 1}})),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(
            error(("", "v1", "Service"), json!({"spec": {"type": 5}})),
            "json: cannot unmarshal number into Go struct field ServiceSpec.spec.type of type v1.ServiceType"
        );
        assert_eq!(
            error(("", "v1", "Pod"), json!([])),
            "json: cannot unmarshal array into Go value of type v1.Pod"
        );
        assert_eq!(
            error(("", "v1", "Secret"), json!({"data": {"a": "%%%"}})),
            "illegal base64 data at input byte 0"
        );
        assert!(
            error(
                ("", "v1", "Pod"),
                json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}})
            )
            .starts_with("quantities must match the regular expression")
        );
    }

    #[test]
    fn good_values_pass() {
        let service = builtin().by_kind("", "v1", "Service").unwrap();
        let value = json!({"metadata": {"creationTimestamp": null, "labels": null},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}]}});
        check(&value, service).unwrap();
        let pod = builtin().by_kind("", "v1", "Pod").unwrap();
        check(
            &json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}),
            pod,
        )
        .unwrap();
    }
}
