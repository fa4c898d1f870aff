//! JSON into a tree, with limits, and with the duplicate keys that strict clients want to hear of.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// What a body may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the body.
    pub bytes: usize,
    /// Nesting of arrays and objects.
    pub depth: usize,
    /// Values in the tree; bounds the memory that small text can ask for (`[[],[],…]`, YAML aliases).
    pub nodes: usize,
    /// Duplicate keys that are reported.
    pub duplicates: usize,
}

impl Default for Limits {
    /// 3 MiB as upstream, 100 levels, a million values, 100 reports.
    fn default() -> Self {
        Self {
            bytes: 3 << 20,
            depth: 100,
            nodes: 1_000_000,
            duplicates: 100,
        }
    }
}

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tree; of duplicate keys the last one counts, as in Go.
    pub value: Value,
    /// Paths of duplicate keys, such as `spec.replicas`. Strict clients see `duplicate field "spec.replicas"`.
    pub duplicates: Vec<String>,
}

/// Why bytes are not a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// More bytes than allowed (413).
    #[error("Request entity too large: limit is {limit}")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Nested too deeply, or too many values (400).
    #[error("the body is nested too deeply or holds too many values")]
    TooComplex,
    /// Not UTF-8 (400).
    #[error("invalid UTF-8 at byte {at}")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// Not JSON or YAML (400); says where.
    #[error("{0}")]
    Syntax(String),
}

/// Decodes one JSON value; nothing but white space may follow.
///
/// # Errors
/// On text that is not JSON or beyond the limits. Numbers beyond `f64`, `NaN` and infinities are syntax errors.
pub fn decode_json(bytes: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::TooLarge { limit: limits.bytes });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| DecodeError::NotUtf8 { at: e.valid_up_to() })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let (result, builder) = build(&mut deserializer, limits);
    let value = match result {
        Ok(value) => value,
        Err(_) if builder.too_complex => return Err(DecodeError::TooComplex),
        Err(error) if error.to_string().starts_with("recursion limit") => return Err(DecodeError::TooComplex),
        Err(error) => return Err(DecodeError::Syntax(error.to_string())),
    };
    deserializer.end().map_err(|e| DecodeError::Syntax(e.to_string()))?;
    Ok(Decoded {
        value,
        duplicates: builder.duplicates,
    })
}

/// Whether a tree is nested no deeper than `depth`; for trees that patches have made.
pub fn depth_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(list) => depth > 0 && list.iter().all(|v| depth_within(v, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|v| depth_within(v, depth - 1)),
        _ => true,
    }
}

pub(crate) fn build<'de, D: Deserializer<'de>>(deserializer: D, limits: &Limits) -> (Result<Value, D::Error>, Builder) {
    let mut builder = Builder {
        duplicates: Vec::new(),
        most_duplicates: limits.duplicates,
        nodes_left: limits.nodes,
        depth_left: limits.depth,
        too_complex: false,
        path: Vec::new(),
    };
    let result = Node(&mut builder).deserialize(deserializer);
    (result, builder)
}

pub(crate) struct Builder {
    pub(crate) duplicates: Vec<String>,
    most_duplicates: usize,
    nodes_left: usize,
    depth_left: usize,
    pub(crate) too_complex: bool,
    path: Vec<Segment>,
}

/// Where the builder is. Keys are lent to the path while their value is read, so that a path costs nothing until it is
/// told.
enum Segment {
    Key(String),
    Index(usize),
}

impl Builder {
    fn count<E: serde::de::Error>(&mut self) -> Result<(), E> {
        match self.nodes_left.checked_sub(1) {
            Some(left) => {
                self.nodes_left = left;
                Ok(())
            }
            None => {
                self.too_complex = true;
                Err(E::custom("too many values"))
            }
        }
    }

    fn tell_duplicate(&mut self, key: &str) {
        if self.duplicates.len() >= self.most_duplicates {
            return;
        }
        let mut path = String::new();
        for segment in &self.path {
            match segment {
                Segment::Key(key) if path.is_empty() => path.push_str(key),
                Segment::Key(key) => {
                    path.push('.');
                    path.push_str(key);
                }
                Segment::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        if !self.duplicates.contains(&path) {
            self.duplicates.push(path);
        }
    }

    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        match self.depth_left.checked_sub(1) {
            Some(left) => {
                self.depth_left = left;
                Ok(())
            }
            None => {
                self.too_complex = true;
                Err(E::custom("nested too deeply"))
            }
        }
    }
}

struct Node<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("numbers must be finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.enter()?;
        let mut list = Vec::new();
        loop {
            self.0.path.push(Segment::Index(list.len()));
            let item = access.next_element_seed(Node(self.0))?;
            self.0.path.pop();
            match item {
                Some(item) => list.push(item),
                None => break,
            }
        }
        self.0.depth_left += 1;
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.enter()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key_seed(Key)? {
            self.0.path.push(Segment::Key(key));
            let value = access.next_value_seed(Node(self.0))?;
            let Some(Segment::Key(key)) = self.0.path.pop() else {
                continue;
            };
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    self.0.tell_duplicate(entry.key());
                    entry.insert(value);
                }
            }
        }
        self.0.depth_left += 1;
        Ok(Value::Object(map))
    }
}

/// A key as text. YAML has keys of other types, which become their text, as in the YAML library of upstream.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }
    fn visit_string<E>(self, value: String) -> Result<String, E> {
        Ok(value)
    }
    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }
    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }
    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<String, E> {
        Err(E::custom("a key must not be null"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(text: &str) -> Result<Decoded, DecodeError> {
        decode_json(text.as_bytes(), &Limits::default())
    }

    #[test]
    fn duplicates_are_told_and_the_last_counts() {
        let decoded = decode(r#"{"spec":{"a":1,"b":[{"c":1,"c":2}],"a":3},"spec":{"x":1}}"#).unwrap();
        assert_eq!(decoded.value, json!({"spec": {"x": 1}}));
        assert_eq!(decoded.duplicates, ["spec.b[0].c", "spec.a", "spec"]);
        let keys: String = (0..300).map(|_| "\"a\":1,").collect();
        assert_eq!(decode(&format!("{{{keys}\"a\":1}}")).unwrap().duplicates, ["a"]);
    }

    #[test]
    fn numbers_keep_their_kind() {
        let decoded = decode("[1,-1,1.0,18446744073709551615,1e2]").unwrap().value;
        assert_eq!(decoded.to_string(), "[1,-1,1.0,18446744073709551615,100.0]");
    }

    #[test]
    fn hostile_bodies_end_in_errors() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(decode(&deep), Err(DecodeError::TooComplex));
        let deep = format!("{}1{}", "{\"a\":".repeat(101), "}".repeat(101));
        assert_eq!(decode(&deep), Err(DecodeError::TooComplex));
        let fits = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
        assert!(decode(&fits).is_ok());
        let wide = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(decode(&wide), Err(DecodeError::TooComplex));
        assert_eq!(
            decode_json(b"{\"a\":\"\xff\"}", &Limits::default()),
            Err(DecodeError::NotUtf8 { at: 6 })
        );
        for bad in ["", "{", "NaN", "Infinity", "1e999", "{} {}", "{\"a\":1,}", "nul"] {
            assert!(matches!(decode(bad), Err(DecodeError::Syntax(_))), "{bad}");
        }
        let limits = Limits {
            bytes: 3,
            ..Limits::default()
        };
        assert_eq!(decode_json(b"[1,2]", &limits), Err(DecodeError::TooLarge { limit: 3 }));
    }

    #[test]
    fn depth_of_made_trees() {
        assert!(depth_within(&json!({"a": [1]}), 2));
        assert!(!depth_within(&json!({"a": [1]}), 1));
        assert!(depth_within(&json!(1), 0));
    }
}
