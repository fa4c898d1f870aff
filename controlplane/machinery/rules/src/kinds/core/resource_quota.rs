//! Resource quotas: what a namespace may hold in all.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Amount, Path, Report as _, SPEC, STATUS, Seen, resource_amount};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Bounds of all that a namespace holds.
#[derive(Default)]
pub(in crate::kinds) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = &SPEC;
        amounts(&mut errors, &at.field("hard"), object.at("spec.hard"));
        let list = at.field("scopes");
        let scopes = object.at("spec.scopes").as_list();
        let mut seen = Seen::default();
        for (index, scope) in scopes.iter().enumerate() {
            let at = list.index(index);
            errors.one_of(&at, scope.as_text(), &SCOPES);
            seen.note(&mut errors, &at, scope.as_text());
        }
        for (a, b) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
            if seen.has(a) && seen.has(b) {
                errors.invalid(&list, scopes.to_vec(), "conflicting scopes");
            }
        }
        scope_selector(&mut errors, at, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        workload::frozen(&mut errors, object, old, "scopes");
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = &STATUS;
        for field in ["hard", "used"] {
            amounts(&mut errors, &at.field(field), object.sub("status").sub(field));
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Request", "What may be asked for, and is."),
            Col::text("Limit", "How far that may grow, and does."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (hard, used) = (object.at("status.hard"), object.at("status.used"));
        let mut names: Vec<&String> = hard.entries().map(|(name, _)| name).collect();
        names.sort();
        let text = |limits: bool| {
            let part = names.iter().filter(|name| name.starts_with("limits") == limits);
            let amount = |v: &Value| v.as_str().map_or_else(|| "0".to_owned(), str::to_owned);
            let all: Vec<String> = part
                .map(|name| format!("{name}: {}/{}", amount(used.sub(name)), amount(hard.sub(name))))
                .collect();
            json!(all.join(", "))
        };
        vec![show::name(object), text(false), text(true), show::age(object, now)]
    }
}

fn amounts(errors: &mut FieldErrors, at: &Path<'_>, list: &Value) {
    for (name, amount) in list.entries() {
        let at = at.key(name);
        errors.named(&at, name, names::qualified_name);
        resource_amount(errors, &at, name, amount, Amount::NotNegative);
    }
}

fn scope_selector(errors: &mut FieldErrors, at: &Path<'_>, object: &Value) {
    let at = at.field("scopeSelector");
    let list = at.field("matchExpressions");
    for (index, requirement) in object
        .at("spec.scopeSelector.matchExpressions")
        .as_list()
        .iter()
        .enumerate()
    {
        let at = list.index(index);
        errors.one_of(&at.field("scopeName"), requirement.text("scopeName"), &SCOPES);
        let values = requirement.list("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => errors.required(
                &at.field("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.invalid(
                &at.field("values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_requests_from_limits() {
        let quota = json!({"status": {"hard": {"pods": "10", "limits.cpu": "4", "cpu": "2"}, "used": {"pods": "3"}}});
        let cells = ResourceQuota.cells(&quota, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1], "cpu: 0/2, pods: 3/10");
        assert_eq!(cells[2], "limits.cpu: 0/4");
    }

    #[test]
    fn scopes_must_not_conflict() {
        let quota = json!({"spec": {"hard": {"pods": "1.5"}, "scopes": ["Terminating", "NotTerminating"]}});
        let fields: Vec<String> = ResourceQuota
            .validate(&quota)
            .0
            .iter()
            .map(|e| e.field.clone())
            .collect();
        assert_eq!(fields, ["spec.hard[pods]", "spec.scopes"]);
    }
}
