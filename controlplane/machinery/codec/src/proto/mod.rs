//! Protobuf of built-in kinds, transcoded from and to trees by the table of facts.
//!
//! On the wire an object is `k8s\0`, then a message `Unknown` (type 1, raw bytes 2, content encoding 3, content type 4)
//! around the kind's own message. Custom kinds have no protobuf. A definition with a field that the table has no number
//! for is refused rather than half transcoded.
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>.

mod decode;
mod encode;
mod wire;

use minato_schema::Schema;
use serde_json::Value;

/// What every object begins with.
pub const MAGIC: &[u8] = b"k8s\0";

/// Why something cannot be transcoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// Not a protobuf of the kind (400).
    #[error("the body is no valid protobuf: {0}")]
    Malformed(&'static str),
    /// Beyond the limits (400 or 413).
    #[error("the body is nested too deeply or holds too many values")]
    TooComplex,
    /// The kind has no protobuf here (415 on requests, 406 on responses).
    #[error("{0} has no protobuf form")]
    NotCovered(String),
    /// A value is not of the type that its field has (a tree that was not checked).
    #[error("{field} does not hold what its type wants")]
    WrongType {
        /// Field or type.
        field: String,
    },
}

/// The envelope of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `Deployment`.
    pub kind: &'a str,
    /// The kind's message, or text in another encoding.
    pub raw: &'a [u8],
    /// Empty for protobuf; otherwise the media type of `raw`, such as `application/json`.
    pub content_type: &'a str,
}

/// Encodes an object of a built-in kind, with its envelope. `apiVersion` and `kind` are taken from the object.
///
/// # Errors
/// When the kind is not covered or the tree has values of wrong types.
pub fn encode_protobuf(object: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let raw = encode::message(object, schema)?;
    Ok(seal(text("apiVersion"), text("kind"), &raw))
}

/// Encodes an object's message alone, as it stands in a list or in [`seal`].
///
/// # Errors
/// As [`encode_protobuf`].
pub fn encode_message(object: &Value, schema: &Schema) -> Result<Vec<u8>, ProtobufError> {
    encode::message(object, schema)
}

/// A list, with its envelope, around items that are encoded already.
///
/// Every list of the API has its metadata as field 1 and its items as field 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFrame {
    /// What comes before the items.
    pub head: Vec<u8>,
    /// What comes after them.
    pub tail: Vec<u8>,
}

impl ListFrame {
    /// The frame for items of so many bytes together, each counted by [`item_length`]. `metadata` is an encoded
    /// `ListMeta`.
    pub fn new(api_version: &str, list_kind: &str, metadata: &[u8], items: usize) -> Self {
        let mut first = Vec::with_capacity(metadata.len() + 8);
        wire::put_bytes(&mut first, 1, metadata);
        let mut kind = Vec::new();
        wire::put_bytes(&mut kind, 1, api_version.as_bytes());
        wire::put_bytes(&mut kind, 2, list_kind.as_bytes());
        let mut head = MAGIC.to_vec();
        wire::put_bytes(&mut head, 1, &kind);
        wire::put_tag(&mut head, 2, 2);
        wire::put_varint(&mut head, (first.len() + items) as u64);
        head.extend_from_slice(&first);
        let mut tail = Vec::new();
        wire::put_bytes(&mut tail, 3, b"");
        wire::put_bytes(&mut tail, 4, b"");
        Self { head, tail }
    }
}

/// What goes before each item of a list.
pub fn put_item_head(out: &mut Vec<u8>, item: usize) {
    wire::put_tag(out, 2, 2);
    wire::put_varint(out, item as u64);
}

/// Bytes of an item in a list, its head included.
pub fn item_length(item: usize) -> usize {
    let mut digits = 1;
    let mut rest = item >> 7;
    while rest > 0 {
        digits += 1;
        rest >>= 7;
    }
    1 + digits + item
}

/// Puts a message into the envelope.
pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    wire::put_bytes(&mut head, 1, api_version.as_bytes());
    wire::put_bytes(&mut head, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(raw.len() + head.len() + 24);
    out.extend_from_slice(MAGIC);
    wire::put_bytes(&mut out, 1, &head);
    wire::put_bytes(&mut out, 2, raw);
    wire::put_bytes(&mut out, 3, b"");
    wire::put_bytes(&mut out, 4, b"");
    out
}

/// Opens the envelope.
///
/// # Errors
/// When the bytes have no envelope.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError::Malformed("it does not begin with the magic number"))?;
    let mut envelope = Envelope {
        api_version: "",
        kind: "",
        raw: b"",
        content_type: "",
    };
    for field in wire::fields(body) {
        match field? {
            (1, wire::Wire::Bytes(head)) => {
                for field in wire::fields(head) {
                    match field? {
                        (1, wire::Wire::Bytes(text)) => envelope.api_version = wire::text(text)?,
                        (2, wire::Wire::Bytes(text)) => envelope.kind = wire::text(text)?,
                        _ => {}
                    }
                }
            }
            (2, wire::Wire::Bytes(raw)) => envelope.raw = raw,
            (3, wire::Wire::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(ProtobufError::Malformed("its content encoding is not known"));
            }
            (4, wire::Wire::Bytes(text)) => envelope.content_type = wire::text(text)?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes the message of an envelope into a tree in Go's shape, with `apiVersion` and `kind`.
///
/// # Errors
/// On bytes that are no message of the kind, beyond the limits, or when the kind is not covered.
pub fn decode_protobuf(
    envelope: &Envelope<'_>,
    schema: &Schema,
    limits: &crate::Limits,
) -> Result<Value, ProtobufError> {
    if envelope.raw.len() > limits.bytes {
        return Err(ProtobufError::TooComplex);
    }
    let mut object = decode::message(envelope.raw, schema, limits)?;
    if let Value::Object(map) = &mut object {
        for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), Value::from(text));
            }
        }
    }
    minato_schema::to_go_shape(&mut object, schema);
    Ok(object)
}

/// One frame of a watch: length (four bytes, big endian) and a `WatchEvent` around an encoded object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    wire::put_bytes(&mut raw, 1, object);
    let mut message = Vec::with_capacity(raw.len() + event.len() + 16);
    wire::put_bytes(&mut message, 1, event.as_bytes());
    wire::put_bytes(&mut message, 2, &raw);
    let mut out = Vec::with_capacity(message.len() + 4);
    // A frame holds one object, which is far below four gigabytes.
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&message);
    out
}

#[cfg(test)]
mod tests;
