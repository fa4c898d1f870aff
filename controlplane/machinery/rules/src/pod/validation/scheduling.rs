//! Where a pod may run: selectors, tolerations, spread.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use super::affinity;
use crate::check::{Path, Report as _, Seen, SelectorRule, label_key, labels, selector};
use crate::tree::Tree as _;

/// What a taint does to pods that do not tolerate it.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks what a pod spec says about where it may run.
pub(super) fn spec(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    labels(errors, &at.field("nodeSelector"), spec.sub("nodeSelector"));
    affinity::affinity(errors, &at.field("affinity"), spec.sub("affinity"));
    tolerations(errors, &at.field("tolerations"), spec.list("tolerations"));
    spread(
        errors,
        &at.field("topologySpreadConstraints"),
        spec.list("topologySpreadConstraints"),
    );
    let list = at.field("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        errors.named(
            &list.index(index).field("conditionType"),
            gate.text("conditionType"),
            names::qualified_name,
        );
    }
    let list = at.field("schedulingGates");
    let mut gates = Seen::default();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let at = list.index(index);
        errors.named(&at, gate.text("name"), names::qualified_name);
        gates.note(errors, &at, gate.text("name"));
    }
    if spec.has("preemptionPolicy") {
        errors.one_of_required(
            &at.field("preemptionPolicy"),
            spec.text("preemptionPolicy"),
            &["PreemptLowerPriority", "Never"],
        );
    }
}

/// Checks tolerations.
pub(crate) fn tolerations(errors: &mut FieldErrors, list: &Path<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = list.index(index);
        let (key, operator, effect) = (
            toleration.text("key"),
            toleration.text("operator"),
            toleration.text("effect"),
        );
        let operator_at = at.field("operator");
        if !key.is_empty() {
            label_key(errors, &at.field("key"), key);
        } else if operator != "Exists" {
            errors.invalid(
                &operator_at,
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            errors.invalid(
                &at.field("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        let value = toleration.text("value");
        match operator {
            "" | "Equal" => {
                for why in names::label_value(value) {
                    errors.invalid(&operator_at, value, why);
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(
                        &operator_at,
                        toleration.clone(),
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            other => errors.unsupported(&operator_at, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&at.field("effect"), effect, &EFFECTS);
        }
    }
}

/// Checks the taints of a node.
pub(crate) fn taints(errors: &mut FieldErrors, list: &Path<'_>, taints: &[Value]) {
    let mut seen = Seen::default();
    for (index, taint) in taints.iter().enumerate() {
        let at = list.index(index);
        let (key, effect) = (taint.text("key"), taint.text("effect"));
        label_key(errors, &at.field("key"), key);
        errors.named(&at.field("value"), taint.text("value"), names::label_value);
        errors.one_of_required(&at.field("effect"), effect, &EFFECTS);
        if !seen.add(&format!("{key}/{effect}")) {
            errors.duplicate(&at, taint.clone());
        }
    }
}

fn spread(errors: &mut FieldErrors, list: &Path<'_>, constraints: &[Value]) {
    let mut seen = Seen::default();
    for (index, constraint) in constraints.iter().enumerate() {
        let at = list.index(index);
        let skew = constraint.count("maxSkew");
        if skew <= 0 {
            errors.invalid(&at.field("maxSkew"), skew, "must be greater than zero");
        }
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            errors.required(&at.field("topologyKey"), "can not be empty");
        } else {
            label_key(errors, &at.field("topologyKey"), key);
        }
        let action = constraint.text("whenUnsatisfiable");
        errors.one_of(
            &at.field("whenUnsatisfiable"),
            action,
            &["DoNotSchedule", "ScheduleAnyway"],
        );
        let pair = format!("{{{key}, {action}}}");
        seen.note(errors, &at.field("{topologyKey, whenUnsatisfiable}"), &pair);
        if let Some(domains) = constraint.int("minDomains") {
            let at = at.field("minDomains");
            if domains <= 0 {
                errors.invalid(&at, domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                errors.invalid(
                    &at,
                    domains,
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                );
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if constraint.has(field) {
                errors.one_of(&at.field(field), constraint.text(field), &["Ignore", "Honor"]);
            }
        }
        label_keys(errors, &at, constraint);
        selector(
            errors,
            &at.field("labelSelector"),
            constraint.sub("labelSelector"),
            SelectorRule::Any,
        );
    }
}

fn label_keys(errors: &mut FieldErrors, at: &Path<'_>, constraint: &Value) {
    let keys = constraint.list("matchLabelKeys");
    let list = at.field("matchLabelKeys");
    if !keys.is_empty() && !constraint.has("labelSelector") {
        errors.forbidden(&list, "must not be specified when labelSelector is not set");
    }
    for (index, key) in keys.iter().enumerate() {
        label_key(errors, &list.index(index), key.as_text());
    }
}

/// Checks a node selector: at least one of its terms must hold.
pub(crate) fn node_selector(errors: &mut FieldErrors, at: &Path<'_>, selector: &Value) {
    let (list, terms) = (at.field("nodeSelectorTerms"), selector.list("nodeSelectorTerms"));
    if terms.is_empty() {
        errors.required(&list, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        affinity::node_selector_term(errors, &list.index(index), term);
    }
}
