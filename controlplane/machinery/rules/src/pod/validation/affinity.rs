//! Affinity to nodes and to other pods.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use super::scheduling::node_selector;
use crate::check::{Path, Report as _, SelectorRule, label_key, selector};
use crate::tree::Tree as _;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity`.
pub(super) fn affinity(errors: &mut FieldErrors, at: &Path<'_>, affinity: &Value) {
    node_affinity(errors, &at.field("nodeAffinity"), affinity.sub("nodeAffinity"));
    for field in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(errors, &at.field(field), affinity.sub(field));
    }
}

fn weight(errors: &mut FieldErrors, at: &Path<'_>, preference: &Value) {
    let weight = preference.count("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&at.field("weight"), weight, "must be in the range 1-100");
    }
}

fn node_affinity(errors: &mut FieldErrors, at: &Path<'_>, affinity: &Value) {
    if affinity.has(REQUIRED) {
        node_selector(errors, &at.field(REQUIRED), affinity.sub(REQUIRED));
    }
    let list = at.field(PREFERRED);
    for (index, preference) in affinity.list(PREFERRED).iter().enumerate() {
        let at = list.index(index);
        weight(errors, &at, preference);
        node_selector_term(errors, &at.field("preference"), preference.sub("preference"));
    }
}

/// Checks one term of a node selector.
pub(super) fn node_selector_term(errors: &mut FieldErrors, at: &Path<'_>, term: &Value) {
    let list = at.field("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        let at = list.index(index);
        let values = requirement.list("values");
        let values_at = at.field("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values_at, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.forbidden(
                    &values_at,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "Gt" | "Lt" if values.len() != 1 => {
                errors.required(
                    &values_at,
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        label_key(errors, &at.field("key"), requirement.text("key"));
        for (index, value) in values.iter().enumerate() {
            errors.named(&values_at.index(index), value.as_text(), names::label_value);
        }
    }
    let list = at.field("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        match_field(errors, &list.index(index), requirement);
    }
}

/// Nodes have one field to select by: their name.
fn match_field(errors: &mut FieldErrors, at: &Path<'_>, requirement: &Value) {
    let values = requirement.list("values");
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                errors.required(
                    &at.field("values"),
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
        }
        other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
    }
    match requirement.text("key") {
        "metadata.name" => {
            for (index, value) in values.iter().enumerate() {
                errors.named(
                    &at.field("values").index(index),
                    value.as_text(),
                    names::dns1123_subdomain,
                );
            }
        }
        other => errors.invalid(&at.field("key"), other, "not a valid field selector key"),
    }
}

fn pod_affinity(errors: &mut FieldErrors, at: &Path<'_>, affinity: &Value) {
    let list = at.field(REQUIRED);
    for (index, term) in affinity.list(REQUIRED).iter().enumerate() {
        pod_term(errors, &list.index(index), term);
    }
    let list = at.field(PREFERRED);
    for (index, preference) in affinity.list(PREFERRED).iter().enumerate() {
        let at = list.index(index);
        weight(errors, &at, preference);
        pod_term(errors, &at.field("podAffinityTerm"), preference.sub("podAffinityTerm"));
    }
}

fn pod_term(errors: &mut FieldErrors, at: &Path<'_>, term: &Value) {
    for field in ["labelSelector", "namespaceSelector"] {
        selector(errors, &at.field(field), term.sub(field), SelectorRule::Any);
    }
    for namespace in term.list("namespaces") {
        errors.named(&at.field("namespaces"), namespace.as_text(), names::dns1123_label);
    }
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let list = at.field(field);
        let keys = term.list(field);
        if !keys.is_empty() && !term.has("labelSelector") {
            errors.forbidden(&list, "must not be specified when labelSelector is not set");
        }
        for (index, key) in keys.iter().enumerate() {
            label_key(errors, &list.index(index), key.as_text());
        }
    }
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&at.field("topologyKey"), "can not be empty");
    }
    label_key(errors, &at.field("topologyKey"), key);
}
