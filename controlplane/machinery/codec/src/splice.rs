//! Writes small things into finished JSON without parsing the whole.
//!
//! The store keeps objects as canonical JSON (keys sorted, no white space, as `serde_json` prints a tree), without
//! `metadata.resourceVersion`: that is the store's revision, and is spliced in when the object is read.

use minato_meta::Revision;

/// The object with `metadata.resourceVersion` set. `json` must be an object in canonical form; anything else gives `None`.
///
/// Costs one scan of the bytes up to and through `metadata`, and one copy.
pub fn with_resource_version(json: &[u8], revision: Revision) -> Option<Vec<u8>> {
    let metadata = find_key(json, 0, "metadata")?;
    if json.get(metadata) != Some(&b'{') {
        return None;
    }
    let version = format!("\"{revision}\"");
    let mut out = Vec::with_capacity(json.len() + version.len() + 20);
    match seek(json, metadata, "resourceVersion")? {
        Place::Value(start) => {
            out.extend_from_slice(&json[..start]);
            out.extend_from_slice(version.as_bytes());
            out.extend_from_slice(&json[skip_value(json, start)?..]);
        }
        Place::Insert { at, first, last } => {
            out.extend_from_slice(&json[..at]);
            if last && !first {
                out.push(b',');
            }
            out.extend_from_slice(b"\"resourceVersion\":");
            out.extend_from_slice(version.as_bytes());
            if !last {
                out.push(b',');
            }
            out.extend_from_slice(&json[at..]);
        }
    }
    Some(out)
}

/// The object with `apiVersion` and `kind` put in front; they must not be there already. For objects that are kept
/// without them.
pub fn splice_type(json: &[u8], api_version: &str, kind: &str) -> Option<Vec<u8>> {
    let rest = json.strip_prefix(b"{")?;
    let mut out = Vec::with_capacity(json.len() + api_version.len() + kind.len() + 30);
    out.push(b'{');
    let head = format!(
        "\"apiVersion\":{},\"kind\":{}",
        serde_json::Value::from(api_version),
        serde_json::Value::from(kind)
    );
    out.extend_from_slice(head.as_bytes());
    if rest != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    Some(out)
}

enum Place {
    /// Offset of the key's value.
    Value(usize),
    /// Where the key belongs, and whether it would be the first or the last member.
    Insert { at: usize, first: bool, last: bool },
}

/// Offset of the value of a key of the object at `start`.
fn find_key(json: &[u8], start: usize, wanted: &str) -> Option<usize> {
    match seek(json, start, wanted)? {
        Place::Value(at) => Some(at),
        Place::Insert { .. } => None,
    }
}

/// Looks for a key among the sorted members of the object that opens at `start`.
fn seek(json: &[u8], start: usize, wanted: &str) -> Option<Place> {
    if json.get(start) != Some(&b'{') {
        return None;
    }
    let mut at = start + 1;
    let mut first = true;
    if json.get(at) == Some(&b'}') {
        return Some(Place::Insert { at, first, last: true });
    }
    loop {
        let key_end = skip_string(json, at)?;
        let key = &json[at + 1..key_end - 1];
        if json.get(key_end) != Some(&b':') {
            return None;
        }
        if key == wanted.as_bytes() {
            return Some(Place::Value(key_end + 1));
        }
        if key > wanted.as_bytes() {
            return Some(Place::Insert { at, first, last: false });
        }
        let next = skip_value(json, key_end + 1)?;
        first = false;
        match json.get(next)? {
            b',' => at = next + 1,
            b'}' => {
                return Some(Place::Insert {
                    at: next,
                    first,
                    last: true,
                });
            }
            _ => return None,
        }
    }
}

/// Offset after the string that opens at `at`.
fn skip_string(json: &[u8], at: usize) -> Option<usize> {
    if json.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        match json.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Offset after the value at `at`.
fn skip_value(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match json.get(at)? {
            b'"' => {
                at = skip_string(json, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                if depth == 0 {
                    return Some(at);
                }
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spliced(value: Value) -> Value {
        let out = with_resource_version(value.to_string().as_bytes(), Revision(42)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back.to_string(), text, "stays canonical");
        back
    }

    #[test]
    fn the_version_lands_in_the_metadata() {
        for (metadata, rest) in [
            (json!({}), json!({"spec": {"metadata": {"x": 1}}})),
            (json!({"name": "a"}), json!({})),
            (json!({"name": "a", "uid": "u"}), json!({"data": {"a\"}{": "[{\"\\"}})),
            (json!({"uid": "u"}), json!({"apiVersion": "v1"})),
            (json!({"name": "a", "resourceVersion": "7", "uid": "u"}), json!({})),
            (json!({"labels": {"resourceVersion": "no"}, "name": "a"}), json!({})),
        ] {
            let mut value = rest;
            value["metadata"] = metadata;
            let mut wanted = value.clone();
            wanted["metadata"]["resourceVersion"] = json!("42");
            assert_eq!(spliced(value), wanted);
        }
    }

    #[test]
    fn other_things_give_none() {
        for bad in [
            "",
            "{}",
            "[]",
            "{\"metadata\":5}",
            "{\"metadata\":{",
            "{\"metadata\":{\"a",
            "{\"a\":\"\\",
        ] {
            assert_eq!(with_resource_version(bad.as_bytes(), Revision(1)), None, "{bad}");
        }
    }

    #[test]
    fn a_type_in_front() {
        assert_eq!(
            splice_type(b"{}", "v1", "Pod").unwrap(),
            br#"{"apiVersion":"v1","kind":"Pod"}"#
        );
        assert_eq!(
            splice_type(b"{\"spec\":1}", "v1", "Pod").unwrap(),
            br#"{"apiVersion":"v1","kind":"Pod","spec":1}"#
        );
    }
}
