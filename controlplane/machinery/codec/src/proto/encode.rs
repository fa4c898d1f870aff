//! Trees into messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minato_meta::parse_time;
use minato_schema::{Field, Schema, Shape};
use serde_json::Value;

use super::ProtobufError;
use super::wire::{put_bytes, put_double, put_int};

/// The message of an object or any other value that is a message in protobuf.
pub(super) fn message(value: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::new();
    match &schema.shape {
        Shape::Object(fields) => object(value, fields, schema, &mut out)?,
        Shape::Quantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            put_bytes(&mut out, 1, text.as_bytes());
        }
        Shape::Time | Shape::MicroTime => {
            let time = value.as_str().and_then(|text| parse_time(text).ok());
            let time = time.ok_or_else(|| wrong(schema))?;
            put_int(&mut out, 1, time.as_second());
            let nanos = match schema.shape {
                Shape::MicroTime => i64::from(time.subsec_nanosecond()),
                _ => 0,
            };
            put_int(&mut out, 2, nanos);
        }
        Shape::IntOrString => match value {
            Value::String(text) => {
                put_int(&mut out, 1, 1);
                put_int(&mut out, 2, 0);
                put_bytes(&mut out, 3, text.as_bytes());
            }
            other => {
                put_int(&mut out, 1, 0);
                put_int(&mut out, 2, other.as_i64().ok_or_else(|| wrong(schema))?);
                put_bytes(&mut out, 3, b"");
            }
        },
        Shape::Raw | Shape::FieldsV1 => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        Shape::Any => free_form(value, schema, &mut out)?,
        // A list that is a message of its own (`ExtraValue`, `Verbs`).
        Shape::List(items) => {
            for item in value.as_array().ok_or_else(|| wrong(schema))? {
                one(1, item, items, &mut out)?;
            }
        }
        _ => return Err(wrong(schema)),
    }
    Ok(out)
}

fn wrong(schema: &Schema) -> ProtobufError {
    ProtobufError::WrongType {
        field: schema.type_name().to_owned(),
    }
}

/// Numbers of the fields that Go inlines and protobuf does not lead through messages of their own, which are gathered
/// here: number of the inner message, then its bytes.
type Inner = Vec<(u16, Vec<u8>)>;

fn object(value: &Value, fields: &[Field], schema: &Schema, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    let map = value.as_object().ok_or_else(|| wrong(schema))?;
    let mut inner: Inner = Vec::new();
    let mut inner_two: Vec<((u16, u16), Vec<u8>)> = Vec::new();
    for field in fields {
        let Some(child) = map.get(field.name.as_ref()).filter(|v| !v.is_null()) else {
            continue;
        };
        match *field.proto_path() {
            [] if matches!(field.name.as_ref(), "apiVersion" | "kind") => {}
            [] => {
                return Err(ProtobufError::NotCovered(format!(
                    "{}.{}",
                    schema.type_name(),
                    field.name
                )));
            }
            [number] => put_field(number, child, field, out)?,
            [first, number] => put_field(number, child, field, slot(&mut inner, first))?,
            [first, second, number, ..] => {
                put_field(number, child, field, slot(&mut inner_two, (first, second)))?;
            }
        }
    }
    for ((first, second), bytes) in inner_two {
        put_bytes(slot(&mut inner, first), second, &bytes);
    }
    for (number, bytes) in inner {
        put_bytes(out, number, &bytes);
    }
    Ok(())
}

fn slot<K: PartialEq + Copy>(slots: &mut Vec<(K, Vec<u8>)>, key: K) -> &mut Vec<u8> {
    let at = slots.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
        slots.push((key, Vec::new()));
        slots.len() - 1
    });
    &mut slots[at].1
}

fn put_field(number: u16, value: &Value, field: &Field, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    let fail = |_| ProtobufError::WrongType {
        field: field.name.to_string(),
    };
    match &field.schema.shape {
        Shape::List(_) if field.proto_type().is_some() => put_bytes(out, number, &message(value, &field.schema)?),
        Shape::List(items) => {
            for item in value.as_array().ok_or(()).map_err(fail)? {
                one(number, item, items, out)?;
            }
        }
        Shape::Map(values) => {
            for (key, item) in value.as_object().ok_or(()).map_err(fail)? {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                one(2, item, values, &mut entry)?;
                put_bytes(out, number, &entry);
            }
        }
        _ => one(number, value, &field.schema, out)?,
    }
    Ok(())
}

/// One value that is not repeated.
fn one(number: u16, value: &Value, schema: &Schema, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    let fail = || wrong(schema);
    match &schema.shape {
        Shape::Boolean => put_int(out, number, i64::from(value.as_bool().ok_or_else(fail)?)),
        Shape::Integer(_) => put_int(out, number, value.as_i64().ok_or_else(fail)?),
        Shape::Number => put_double(out, number, value.as_f64().ok_or_else(fail)?),
        Shape::String => put_bytes(out, number, value.as_str().ok_or_else(fail)?.as_bytes()),
        Shape::Bytes => {
            let text: String = value
                .as_str()
                .ok_or_else(fail)?
                .chars()
                .filter(|c| !matches!(c, '\r' | '\n'))
                .collect();
            put_bytes(out, number, &STANDARD.decode(text).map_err(|_| fail())?);
        }
        _ => put_bytes(out, number, &message(value, schema)?),
    }
    Ok(())
}

/// The unions of CRD schemas, which JSON tells apart by type and protobuf by field.
fn free_form(value: &Value, schema: &Schema, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    let props = || {
        minato_schema::builtin()
            .get("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
            .ok_or_else(|| wrong(schema))
    };
    match (schema.type_name(), value) {
        ("JSON", value) => put_bytes(out, 1, value.to_string().as_bytes()),
        ("JSONSchemaPropsOrBool", Value::Bool(allows)) => put_int(out, 1, i64::from(*allows)),
        ("JSONSchemaPropsOrBool", value) => {
            put_int(out, 1, 1);
            put_bytes(out, 2, &message(value, props()?)?);
        }
        ("JSONSchemaPropsOrArray", Value::Array(list)) => {
            for item in list {
                put_bytes(out, 2, &message(item, props()?)?);
            }
        }
        ("JSONSchemaPropsOrStringArray", Value::Array(list)) => {
            for item in list {
                put_bytes(out, 2, item.as_str().ok_or_else(|| wrong(schema))?.as_bytes());
            }
        }
        ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", value) => {
            put_bytes(out, 1, &message(value, props()?)?);
        }
        _ => return Err(ProtobufError::NotCovered(schema.type_name().to_owned())),
    }
    Ok(())
}
