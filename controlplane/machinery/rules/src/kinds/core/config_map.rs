//! Config maps.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, same};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// Most bytes that a config map or secret holds.
pub(super) const MOST_BYTES: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// Configuration of pods.
#[derive(Default)]
pub(in crate::kinds) struct ConfigMap;

/// Refuses changes of what was declared final.
pub(super) fn frozen(errors: &mut FieldErrors, object: &Value, old: &Value, fields: &[&str]) {
    if !old.on("immutable") {
        return;
    }
    if !object.on("immutable") {
        errors.forbidden(&Path::Root.field("immutable"), FROZEN);
    }
    for field in fields {
        if !same(object.sub(field), old.sub(field)) {
            errors.forbidden(&Path::Root.field(field), FROZEN);
        }
    }
}

/// Length of the bytes that a base64 text stands for.
pub(super) fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (data, binary) = (object.sub("data"), object.sub("binaryData"));
        let mut total = 0_usize;
        for (field, map) in [("data", data), ("binaryData", binary)] {
            let at = Path::Root.field(field);
            for (key, value) in map.entries() {
                errors.named(&at.key(key), key, names::config_map_key);
                let text = value.as_text();
                total += if field == "data" {
                    text.len()
                } else {
                    decoded_length(text)
                };
                if field == "data" && binary.get(key).is_some() {
                    errors.invalid(&at.key(key), key.as_str(), "duplicate of key present in binaryData");
                }
            }
        }
        if total > MOST_BYTES {
            errors.too_long(&Path::Root, MOST_BYTES);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        frozen(&mut errors, object, old, &["data", "binaryData"]);
        errors.0.extend(self.validate(object).0);
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("Data", "Number of keys."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let keys = object.sub("data").entries().count() + object.sub("binaryData").entries().count();
        vec![show::name(object), json!(keys), show::age(object, now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sizes_and_finality() {
        assert!(ConfigMap.validate(&json!({"data": {"a": "b"}})).is_empty());
        let errors = ConfigMap.validate(&json!({"data": {"a/b": "", "x": ""}, "binaryData": {"x": ""}}));
        assert_eq!(errors.0.len(), 2);
        assert_eq!(errors.0[0].field, "data[a/b]");
        let big = "x".repeat(MOST_BYTES + 1);
        assert_eq!(
            ConfigMap.validate(&json!({"data": {"a": big}})).0[0].to_string(),
            ": Too long: may not be more than 1048576 bytes"
        );
        let old = json!({"immutable": true, "data": {"a": "b"}});
        let errors = ConfigMap.validate_update(&json!({"data": {"a": "c"}}), &old);
        let fields: Vec<&str> = errors.0.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["immutable", "data"]);
        assert!(ConfigMap.validate_update(&old, &old).is_empty());
    }

    #[test]
    fn lengths() {
        for (text, length) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3)] {
            assert_eq!(decoded_length(text), length);
        }
    }
}
