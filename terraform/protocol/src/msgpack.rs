//! Values as `MessagePack`.
//!
//! Unknown values are extensions: of type 0, or of type 12 when something is known about them nevertheless.
//! Source: <https://github.com/zclconf/go-cty/blob/main/docs/json.md> and the protocol's page on values.

use std::collections::BTreeMap;

use crate::value::Value;

/// Extension type of an unknown value.
const UNKNOWN: i8 = 0;
/// Extension type of an unknown value with a note of what is known, such as that it is not null.
const UNKNOWN_REFINED: i8 = 12;

/// How deep values may be nested; each level takes stack. Schemas are a few levels deep.
const DEEPEST: usize = 64;

/// What cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not `MessagePack`.
    #[error("not MessagePack")]
    Format(#[from] rmpv::decode::Error),
    /// Something of `MessagePack` that the protocol does not use.
    #[error("{0} has no meaning here")]
    Meaningless(&'static str),
    /// More than one value.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
}

/// Reads one value.
///
/// # Errors
/// The bytes are not one value.
pub fn decode(mut bytes: &[u8]) -> Result<Value, DecodeError> {
    let value = rmpv::decode::read_value_with_max_depth(&mut bytes, DEEPEST)?;
    if !bytes.is_empty() {
        return Err(DecodeError::Trailing(bytes.len()));
    }
    from_rmpv(value)
}

fn from_rmpv(value: rmpv::Value) -> Result<Value, DecodeError> {
    Ok(match value {
        rmpv::Value::Nil => Value::Null,
        rmpv::Value::Boolean(value) => Value::Bool(value),
        rmpv::Value::Integer(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::Number(number.into()),
            (None, None) => return Err(DecodeError::Meaningless("such an integer")),
        },
        rmpv::Value::F32(number) => float(f64::from(number))?,
        rmpv::Value::F64(number) => float(number)?,
        rmpv::Value::String(text) => text
            .into_str()
            .map(Value::String)
            .ok_or(DecodeError::Meaningless("a string that is not UTF-8"))?,
        rmpv::Value::Array(items) => Value::List(items.into_iter().map(from_rmpv).collect::<Result<_, _>>()?),
        rmpv::Value::Map(items) => {
            let mut map = BTreeMap::new();
            for (key, item) in items {
                let rmpv::Value::String(key) = key else {
                    return Err(DecodeError::Meaningless("a key that is not a string"));
                };
                let key = key
                    .into_str()
                    .ok_or(DecodeError::Meaningless("a key that is not UTF-8"))?;
                map.insert(key, from_rmpv(item)?);
            }
            Value::Map(map)
        }
        rmpv::Value::Ext(UNKNOWN | UNKNOWN_REFINED, _) => Value::Unknown,
        rmpv::Value::Ext(..) => return Err(DecodeError::Meaningless("such an extension")),
        rmpv::Value::Binary(_) => return Err(DecodeError::Meaningless("a run of bytes")),
    })
}

fn float(number: f64) -> Result<Value, DecodeError> {
    Value::float(number).ok_or(DecodeError::Meaningless("an infinite number"))
}

/// Writes one value.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = rmpv::encode::write_value(&mut bytes, &to_rmpv(value));
    bytes
}

fn to_rmpv(value: &Value) -> rmpv::Value {
    match value {
        Value::Null => rmpv::Value::Nil,
        Value::Unknown => rmpv::Value::Ext(UNKNOWN, vec![0]),
        Value::Bool(value) => rmpv::Value::Boolean(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => number.into(),
            (None, Some(number), _) => number.into(),
            (None, None, number) => rmpv::Value::F64(number.unwrap_or_default()),
        },
        Value::String(text) => text.as_str().into(),
        Value::List(items) => rmpv::Value::Array(items.iter().map(to_rmpv).collect()),
        Value::Map(items) => {
            let items = items.iter().map(|(key, item)| (key.as_str().into(), to_rmpv(item)));
            rmpv::Value::Map(items.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Object;

    #[test]
    fn bytes_of_the_format_are_read() {
        // {"a": <unknown>, "b": [1, -1, 1.5, nil, true]}
        let bytes = b"\x82\xa1a\xd4\x00\x00\xa1b\x95\x01\xff\xcb\x3f\xf8\0\0\0\0\0\0\xc0\xc3";
        let value = decode(bytes).unwrap();
        let list = [
            1.into(),
            (-1).into(),
            Value::float(1.5).unwrap(),
            Value::Null,
            true.into(),
        ];
        let wanted = Object::from([("a", Value::Unknown), ("b", Value::List(list.to_vec()))]);
        assert_eq!(value, wanted.into());
        assert_eq!(encode(&value), bytes);
    }

    #[test]
    fn a_refined_unknown_is_unknown() {
        // An extension of type 12 with {1: false} in it: not null.
        assert_eq!(decode(b"\xc7\x03\x0c\x81\x01\xc2").unwrap(), Value::Unknown);
    }

    #[test]
    fn large_numbers_stay_exact() {
        let value = decode(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        assert_eq!(value, Value::Number(u64::MAX.into()));
        assert_eq!(encode(&value), b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    }

    #[test]
    fn bad_bytes_are_refused() {
        for bytes in [
            &b""[..],
            b"\x93\x01",
            b"\xa1\xff",
            b"\x81\x01\x01",
            b"\xc4\x01a",
            b"\xd4\x05\x00",
            b"\xcb\x7f\xf0\0\0\0\0\0\0",
            b"\x01\x01",
        ] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
        // Depth is bounded.
        assert!(decode(&[0x91; 100_000]).is_err());
    }
}
