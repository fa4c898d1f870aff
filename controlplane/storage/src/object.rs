//! The stored form of an object, and how its revision gets in and out.
//!
//! A stored value is compact JSON with the keys `kind`, `apiVersion`, `metadata` first and no `resourceVersion`: the
//! revision is the store's to give, and is spliced in at a place that is found without parsing.

use bytes::{Bytes, BytesMut};
use minato_meta::Revision;
use serde_json::Value;

const METADATA: &[u8] = b"\"metadata\":{";

/// Encodes an object for the store. A `resourceVersion` in its metadata is left out.
///
/// # Errors
/// The value is not an object with an object `metadata`, or cannot be serialized.
pub fn encode(object: &Value) -> Result<Bytes, serde_json::Error> {
    use serde::ser::Error;
    let fields = object
        .as_object()
        .ok_or_else(|| serde_json::Error::custom("an object is expected"))?;
    let metadata = fields
        .get("metadata")
        .and_then(Value::as_object)
        .ok_or_else(|| serde_json::Error::custom("an object has metadata"))?;
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    for key in ["kind", "apiVersion"] {
        if let Some(value) = fields.get(key) {
            write_member(&mut out, key, value)?;
        }
    }
    separate(&mut out);
    out.extend_from_slice(METADATA);
    for (key, value) in metadata {
        if key != "resourceVersion" {
            write_member(&mut out, key, value)?;
        }
    }
    out.push(b'}');
    for (key, value) in fields {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            write_member(&mut out, key, value)?;
        }
    }
    out.push(b'}');
    Ok(out.into())
}

fn separate(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{')) {
        out.push(b',');
    }
}

fn write_member(out: &mut Vec<u8>, key: &str, value: &Value) -> Result<(), serde_json::Error> {
    separate(out);
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    serde_json::to_writer(out, value)
}

/// The stored bytes with `metadata.resourceVersion` put in. Bytes that [`encode`] did not make are returned unchanged.
pub fn with_revision(stored: &[u8], revision: Revision) -> Bytes {
    let Some(at) = stored.windows(METADATA.len()).position(|w| w == METADATA) else {
        return Bytes::copy_from_slice(stored);
    };
    let at = at + METADATA.len();
    let empty = stored.get(at) == Some(&b'}');
    let mut out = BytesMut::with_capacity(stored.len() + 48);
    out.extend_from_slice(&stored[..at]);
    out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{}", if empty { "" } else { "," }).as_bytes());
    out.extend_from_slice(&stored[at..]);
    out.freeze()
}

/// Bytes that [`with_revision`] made, with another revision.
pub fn at_revision(json: &Bytes, revision: Revision) -> Bytes {
    const HEAD: &[u8] = b"\"resourceVersion\":\"";
    let metadata = json.windows(METADATA.len()).position(|w| w == METADATA);
    let start = metadata.map(|at| at + METADATA.len());
    let Some(start) = start
        .filter(|at| json[*at..].starts_with(HEAD))
        .map(|at| at + HEAD.len())
    else {
        return json.clone();
    };
    let digits = json[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    let revision = revision.to_string();
    let mut out = BytesMut::with_capacity(json.len() + revision.len());
    out.extend_from_slice(&json[..start]);
    out.extend_from_slice(revision.as_bytes());
    out.extend_from_slice(&json[start + digits..]);
    out.freeze()
}

/// The stored bytes as a tree with `metadata.resourceVersion` set.
///
/// # Errors
/// The bytes are not JSON.
pub fn decode(stored: &[u8], revision: Revision) -> Result<Value, serde_json::Error> {
    let mut object: Value = serde_json::from_slice(stored)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_revision_is_spliced_into_metadata_and_nowhere_else() {
        let object = json!({
            "data": {"x": "\"metadata\":{"},
            "metadata": {"name": "a", "resourceVersion": "7"},
            "apiVersion": "v1",
            "kind": "ConfigMap",
        });
        let stored = encode(&object).unwrap();
        assert_eq!(
            stored,
            br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"x":"\"metadata\":{"}}"#
                .as_slice()
        );
        let with = with_revision(&stored, Revision(12));
        let parsed: Value = serde_json::from_slice(&with).unwrap();
        assert_eq!(parsed["metadata"]["resourceVersion"], "12");
        assert_eq!(parsed["data"], object["data"]);
        assert_eq!(parsed, decode(&stored, Revision(12)).unwrap());
        assert_eq!(
            at_revision(&with, Revision(1234)),
            with_revision(&stored, Revision(1234))
        );
        assert_eq!(at_revision(&stored, Revision(1234)), stored);
    }

    #[test]
    fn empty_metadata_and_non_objects_are_handled() {
        let stored = encode(&json!({"metadata": {}})).unwrap();
        assert_eq!(
            with_revision(&stored, Revision(1)),
            br#"{"metadata":{"resourceVersion":"1"}}"#.as_slice()
        );
        assert!(encode(&json!([1])).is_err());
        assert!(encode(&json!({"metadata": 3})).is_err());
    }
}
