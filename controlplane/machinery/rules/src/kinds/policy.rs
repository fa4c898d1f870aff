//! Disruption budgets.
//!
//! Source: <https://kubernetes.io/docs/tasks/run-application/configure-pdb/>.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC, SelectorRule, at_most_all, number_or_percent, selector};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// How many pods may be away at once.
#[derive(Default)]
pub(super) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        if spec.has("minAvailable") && spec.has("maxUnavailable") {
            errors.invalid(at, spec.clone(), "minAvailable and maxUnavailable cannot be both set");
        }
        for field in ["minAvailable", "maxUnavailable"] {
            number_or_percent(&mut errors, &at.field(field), spec.sub(field));
            at_most_all(&mut errors, &at.field(field), spec.sub(field));
        }
        selector(
            &mut errors,
            &at.field("selector"),
            spec.sub("selector"),
            SelectorRule::Any,
        );
        if spec.has("unhealthyPodEvictionPolicy") {
            errors.one_of(
                &at.field("unhealthyPodEvictionPolicy"),
                spec.text("unhealthyPodEvictionPolicy"),
                &["AlwaysAllow", "IfHealthyBudget"],
            );
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        workload::counts(&mut errors, object, &counts);
        errors
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Min Available", "Pods that must be there."),
            Col::text("Max Unavailable", "Pods that may be away."),
            Col::number("Allowed Disruptions", "Pods that may be evicted now."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let amount = |field: &str| match spec.sub(field) {
            Value::Null => json!("N/A"),
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        };
        vec![
            show::name(object),
            amount("minAvailable"),
            amount("maxUnavailable"),
            json!(object.sub("status").count("disruptionsAllowed")),
            show::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        let first = |spec: Value| {
            let errors = PodDisruptionBudget.validate(&json!({ "spec": spec }));
            errors.0.first().map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(first(json!({"minAvailable": "50%"})), "");
        assert!(
            first(json!({"minAvailable": 1, "maxUnavailable": 1}))
                .ends_with(": minAvailable and maxUnavailable cannot be both set")
        );
        assert_eq!(
            first(json!({"maxUnavailable": "101%"})),
            "spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"
        );
        let object = json!({"spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 1}});
        let cells = PodDisruptionBudget.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..4], [json!("2"), json!("N/A"), json!(1)]);
    }
}
