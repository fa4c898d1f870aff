//! Leases: who leads, and which node is alive.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// Something that one holds at a time.
#[derive(Default)]
pub(super) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        if let Some(seconds) = spec.int("leaseDurationSeconds").filter(|s| *s <= 0) {
            errors.invalid(&at.field("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        errors.not_negative(&at.field("leaseTransitions"), spec.int("leaseTransitions"));
        errors
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("Holder", "Who holds the lease."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let holder = object.sub("spec").text("holderIdentity");
        vec![show::name(object), json!(holder), show::age(object, now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases() {
        let wrong = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
        let found: Vec<String> = Lease.validate(&wrong).0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
            ]
        );
    }
}
