//! Service accounts.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// An identity for pods.
#[derive(Default)]
pub(in crate::kinds) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn validate(&self, _: &Value) -> FieldErrors {
        FieldErrors::default()
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
        let set = |o: &Value| !o.at("metadata.annotations").text(ENFORCE).is_empty();
        if set(object) && !old.is_some_and(set) {
            return vec![format!(
                "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
                 mounted secrets"
            )];
        }
        Vec::new()
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Secrets", "Number of secrets that the account names."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let secrets = object.list("secrets").len();
        vec![show::name(object), json!(secrets), show::age(object, now)]
    }
}
