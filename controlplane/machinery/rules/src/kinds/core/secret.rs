//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Map, Value, json};

use super::config_map::{MOST_BYTES, decoded_length, frozen};
use crate::check::{METADATA, Path, Report as _};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, drop_member, ensure, fill_zero, put};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const REDACTED: &str = "<secret contents redacted>";

/// What only some may read.
#[derive(Default)]
pub(in crate::kinds) struct Secret;

/// `stringData` is a way to write `data` without encoding it; it is never stored.
fn fold_string_data(object: &mut Value) {
    let Some(Value::Object(plain)) = drop_member(object, "stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    if let Some(data) = ensure(object, "data") {
        for (key, value) in &plain {
            put(data, key, STANDARD.encode(value.as_text()));
        }
    }
}

fn json_of(data: &Value, key: &str) -> Option<Result<Map<String, Value>, String>> {
    let text = data.sub(key).as_str()?;
    let bytes = STANDARD.decode(text).unwrap_or_default();
    Some(serde_json::from_slice(&bytes).map_err(|e| e.to_string()))
}

fn by_type(errors: &mut FieldErrors, object: &Value) {
    let (at, data) = (Path::Root.field("data"), object.sub("data"));
    let has = |key: &str| data.get(key).is_some();
    let needed = |errors: &mut FieldErrors, key: &str| errors.required(&at.key(key), "");
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let name = object.at("metadata.annotations").text(ACCOUNT_NAME);
            if name.is_empty() {
                let annotations = METADATA.field("annotations").to_string();
                errors.required(&Path::Root.field(&annotations).key(ACCOUNT_NAME), "");
            }
        }
        kind @ ("kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson") => {
            let key = if kind.ends_with("json") {
                ".dockerconfigjson"
            } else {
                ".dockercfg"
            };
            match json_of(data, key) {
                None => needed(errors, key),
                Some(Err(why)) => errors.invalid(&at.key(key), REDACTED, why),
                Some(Ok(_)) => {}
            }
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            needed(errors, "username");
            needed(errors, "password");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => needed(errors, "ssh-privatekey"),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    needed(errors, key);
                }
            }
        }
        _ => {}
    }
}

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        fold_string_data(object);
        fill_zero(object, "type", "Opaque");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = Path::Root.field("data");
        let mut total = 0_usize;
        for (key, value) in object.sub("data").entries() {
            errors.named(&at.key(key), key, names::config_map_key);
            total += decoded_length(value.as_text());
        }
        if total > MOST_BYTES {
            errors.too_long(&at, MOST_BYTES);
        }
        by_type(&mut errors, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        errors.unchanged(&Path::Root.field("type"), object.sub("type"), old.sub("type"));
        frozen(&mut errors, object, old, &["data"]);
        errors.0.extend(self.validate(object).0);
        errors
    }

    fn warnings(&self, object: &Value, _: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if object.text("type") == "kubernetes.io/tls" {
            for (key, kind) in [("tls.crt", "CERTIFICATE"), ("tls.key", "PRIVATE KEY")] {
                let bytes = STANDARD.decode(object.sub("data").text(key)).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                if !text.contains("-----BEGIN ") || !text.contains(kind) {
                    warnings.push(format!("data[{key}]: tls: failed to find any PEM data of type {kind}"));
                }
            }
        }
        warnings
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn field_labels(&self) -> &[&str] {
        &["type"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        object.text("type").to_owned()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Type", "What sort of secret it is."),
            Col::text("Data", "Number of keys."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let keys = object.sub("data").entries().count();
        vec![
            show::name(object),
            json!(object.text("type")),
            json!(keys),
            show::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(object: &Value) -> Vec<String> {
        Secret.validate(object).0.iter().map(|e| e.field.clone()).collect()
    }

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"stringData": {"k": "v"}, "data": {"a": "YQ=="}});
        Secret.default(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "YQ==", "k": "dg=="}, "type": "Opaque"}));
    }

    #[test]
    fn types_need_their_keys() {
        assert_eq!(
            fields(&json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}})),
            ["data[tls.key]"]
        );
        assert_eq!(
            fields(&json!({"type": "kubernetes.io/basic-auth"})),
            ["data[username]", "data[password]"]
        );
        assert_eq!(
            fields(&json!({"type": "kubernetes.io/ssh-auth"})),
            ["data[ssh-privatekey]"]
        );
        assert_eq!(
            fields(&json!({"type": "kubernetes.io/service-account-token"})),
            ["metadata.annotations[kubernetes.io/service-account.name]"]
        );
        let docker = |text: &str| json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": STANDARD.encode(text)}});
        assert!(fields(&docker("{\"auths\": {}}")).is_empty());
        assert_eq!(fields(&docker("nonsense")), ["data[.dockerconfigjson]"]);
        assert!(fields(&json!({"type": "example.com/own"})).is_empty());
    }

    #[test]
    fn the_type_stays() {
        let errors = Secret.validate_update(&json!({"type": "a"}), &json!({"type": "b"}));
        assert_eq!(
            errors.0[0].to_string(),
            "type: Invalid value: \"a\": field is immutable"
        );
    }
}
