//! Values as JSON: the form of stored states. No part of it can be unknown.

use crate::value::Value;

/// Reads one value.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes).map(from_json)
}

fn from_json(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => match number.as_f64().and_then(Value::float) {
            Some(whole @ Value::Number(_)) if !number.is_i64() && !number.is_u64() => whole,
            _ => Value::Number(number),
        },
        serde_json::Value::String(text) => Value::String(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        serde_json::Value::Object(items) => {
            Value::Map(items.into_iter().map(|(key, item)| (key, from_json(item))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Object;

    #[test]
    fn stored_states_are_read() {
        let value = decode(br#"{"a": [1, 2.0, null], "b": {"c": "d"}}"#).unwrap();
        let list = Value::List(vec![1.into(), 2.into(), Value::Null]);
        let wanted = Object::from([("a", list), ("b", Object::from([("c", "d".into())]).into())]);
        assert_eq!(value, wanted.into());
        assert!(decode(b"{").is_err());
    }
}
