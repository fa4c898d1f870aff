//! Messages into trees.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use minato_meta::{format_micro_time, format_time};
use minato_schema::{Field, Schema, Shape};
use serde_json::{Map, Number, Value};

use super::ProtobufError;
use super::wire::{Wire, fields, take_varint, text};
use crate::Limits;

/// The tree of a message. What the table does not know is skipped, as upstream skips it.
pub(super) fn message(bytes: &[u8], schema: &Schema, limits: &Limits) -> Result<Value, ProtobufError> {
    let mut decoder = Decoder {
        nodes_left: limits.nodes,
        depth_left: limits.depth,
    };
    decoder.message(bytes, schema)
}

struct Decoder {
    nodes_left: usize,
    depth_left: usize,
}

const WRONG: ProtobufError = ProtobufError::Malformed("a field has another wire type than its kind says");

impl Decoder {
    fn message(&mut self, bytes: &[u8], schema: &Schema) -> Result<Value, ProtobufError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(ProtobufError::TooComplex)?;
        match &schema.shape {
            Shape::Object(known) => {
                let mut map = Map::new();
                self.object(bytes, known, &mut Vec::new(), &mut map)?;
                Ok(Value::Object(map))
            }
            Shape::Quantity => {
                let mut quantity = String::new();
                for field in fields(bytes) {
                    if let (1, Wire::Bytes(bytes)) = field? {
                        quantity = text(bytes)?.to_owned();
                    }
                }
                Ok(Value::String(if quantity.is_empty() {
                    "0".to_owned()
                } else {
                    quantity
                }))
            }
            Shape::Time | Shape::MicroTime => self.time(bytes, schema),
            Shape::IntOrString => {
                let (mut is_text, mut number, mut string) = (false, 0, "");
                for field in fields(bytes) {
                    match field? {
                        (1, Wire::Varint(kind)) => is_text = kind == 1,
                        (2, Wire::Varint(value)) => number = value.cast_signed(),
                        (3, Wire::Bytes(bytes)) => string = text(bytes)?,
                        _ => {}
                    }
                }
                Ok(if is_text {
                    Value::from(string)
                } else {
                    Value::from(number)
                })
            }
            Shape::Raw | Shape::FieldsV1 => self.embedded(bytes),
            Shape::Any => self.free_form(bytes, schema),
            Shape::List(items) => {
                let mut list = Vec::new();
                for field in fields(bytes) {
                    if let (1, wire) = field? {
                        self.push(wire, items, &mut list)?;
                    }
                }
                Ok(Value::Array(list))
            }
            _ => Err(WRONG),
        }
    }

    /// Reads the fields below `prefix` (numbers of inlined structs) into one map.
    fn object(
        &mut self,
        bytes: &[u8],
        known: &[Field],
        prefix: &mut Vec<u16>,
        map: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(ProtobufError::TooComplex)?;
        for field in fields(bytes) {
            let (number, wire) = field?;
            prefix.push(number);
            if let Some(field) = known.iter().find(|f| f.proto_path() == prefix.as_slice()) {
                self.field(wire, field, map)?;
            } else if known.iter().any(|f| f.proto_path().starts_with(prefix)) {
                let Wire::Bytes(inner) = wire else { return Err(WRONG) };
                self.object(inner, known, prefix, map)?;
            }
            prefix.pop();
        }
        self.depth_left += 1;
        Ok(())
    }

    fn field(&mut self, wire: Wire<'_>, field: &Field, map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
        match &field.schema.shape {
            Shape::List(items) if field.proto_type().is_none() => {
                let list = map
                    .entry(field.name.to_string())
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    self.push(wire, items, list)?;
                }
            }
            Shape::Map(values) => {
                let Wire::Bytes(bytes) = wire else { return Err(WRONG) };
                let (mut key, mut value) = (String::new(), None);
                for field in fields(bytes) {
                    match field? {
                        (1, Wire::Bytes(bytes)) => key = text(bytes)?.to_owned(),
                        (2, wire) => value = Some(self.one(wire, values)?),
                        _ => {}
                    }
                }
                let value = match value {
                    Some(value) => value,
                    // An absent value is the zero value.
                    None => self.one(Wire::Bytes(b""), values)?,
                };
                let entries = map
                    .entry(field.name.to_string())
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entries {
                    entries.insert(key, value);
                }
            }
            _ => {
                let value = self.one(wire, &field.schema)?;
                map.insert(field.name.to_string(), value);
            }
        }
        Ok(())
    }

    fn push(&mut self, wire: Wire<'_>, items: &Schema, list: &mut Vec<Value>) -> Result<(), ProtobufError> {
        let packed = matches!(items.shape, Shape::Integer(_) | Shape::Boolean);
        match wire {
            Wire::Bytes(mut bytes) if packed => {
                while !bytes.is_empty() {
                    let number = take_varint(&mut bytes)?;
                    list.push(self.one(Wire::Varint(number), items)?);
                }
            }
            wire => list.push(self.one(wire, items)?),
        }
        Ok(())
    }

    fn one(&mut self, wire: Wire<'_>, schema: &Schema) -> Result<Value, ProtobufError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(ProtobufError::TooComplex)?;
        Ok(match (&schema.shape, wire) {
            (Shape::Boolean, Wire::Varint(value)) => Value::Bool(value != 0),
            (Shape::Integer(_), Wire::Varint(value)) => Value::from(value.cast_signed()),
            (Shape::Number, Wire::Fixed64(bits)) => {
                Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)
            }
            (Shape::String, Wire::Bytes(bytes)) => Value::from(text(bytes)?),
            (Shape::Bytes, Wire::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
            (Shape::Boolean | Shape::Integer(_) | Shape::Number | Shape::String | Shape::Bytes | Shape::Map(_), _) => {
                return Err(WRONG);
            }
            (_, Wire::Bytes(bytes)) => {
                self.depth_left = self.depth_left.checked_sub(1).ok_or(ProtobufError::TooComplex)?;
                let value = self.message(bytes, schema)?;
                self.depth_left += 1;
                value
            }
            _ => return Err(WRONG),
        })
    }

    fn time(&self, bytes: &[u8], schema: &Schema) -> Result<Value, ProtobufError> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let (mut seconds, mut nanos) = (0, 0);
        for field in fields(bytes) {
            match field? {
                (1, Wire::Varint(value)) => seconds = value.cast_signed(),
                (2, Wire::Varint(value)) => nanos = value.cast_signed(),
                _ => {}
            }
        }
        let micro = matches!(schema.shape, Shape::MicroTime);
        let nanos = if micro { i32::try_from(nanos).unwrap_or(-1) } else { 0 };
        let time = Timestamp::new(seconds, nanos).ok().filter(|_| nanos >= 0);
        let time = time.ok_or(ProtobufError::Malformed("a time is out of range"))?;
        Ok(Value::String(if micro {
            format_micro_time(time)
        } else {
            format_time(time)
        }))
    }

    /// JSON within protobuf.
    fn embedded(&mut self, bytes: &[u8]) -> Result<Value, ProtobufError> {
        for field in fields(bytes) {
            if let (1, Wire::Bytes(json)) = field? {
                if json.is_empty() {
                    return Ok(Value::Null);
                }
                let limits = Limits {
                    bytes: usize::MAX,
                    depth: self.depth_left,
                    nodes: self.nodes_left,
                    duplicates: 0,
                };
                return match crate::decode_json(json, &limits) {
                    Ok(decoded) => {
                        self.nodes_left = self.nodes_left.saturating_sub(json.len() / 2);
                        Ok(decoded.value)
                    }
                    Err(crate::DecodeError::TooComplex) => Err(ProtobufError::TooComplex),
                    Err(_) => Err(ProtobufError::Malformed("embedded JSON does not parse")),
                };
            }
        }
        Ok(Value::Null)
    }

    fn free_form(&mut self, bytes: &[u8], schema: &Schema) -> Result<Value, ProtobufError> {
        let name = schema.type_name();
        if name == "JSON" {
            return self.embedded(bytes);
        }
        let Some(props) =
            minato_schema::builtin().get("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        else {
            return Err(WRONG);
        };
        let (mut allows, mut single, mut list) = (false, None, Vec::new());
        for field in fields(bytes) {
            match (name, field?) {
                ("JSONSchemaPropsOrBool", (1, Wire::Varint(value))) => allows = value != 0,
                ("JSONSchemaPropsOrBool", (2, Wire::Bytes(bytes)))
                | ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", (1, Wire::Bytes(bytes))) => {
                    single = Some(self.one(Wire::Bytes(bytes), props)?);
                }
                ("JSONSchemaPropsOrArray", (2, Wire::Bytes(bytes))) => {
                    list.push(self.one(Wire::Bytes(bytes), props)?);
                }
                ("JSONSchemaPropsOrStringArray", (2, Wire::Bytes(bytes))) => list.push(Value::from(text(bytes)?)),
                _ => {}
            }
        }
        Ok(match (name, single) {
            (_, Some(single)) => single,
            ("JSONSchemaPropsOrBool", None) => Value::Bool(allows),
            _ => Value::Array(list),
        })
    }
}
