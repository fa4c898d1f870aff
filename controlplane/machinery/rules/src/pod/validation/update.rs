//! What may change of a pod: little, since most of it has already happened.

use minato_meta::FieldErrors;
use serde_json::{Value, json};

use super::containers::image;
use super::scheduling::tolerations;
use crate::check::{Path, Report as _, SPEC, same};
use crate::pod::{default_pod, qos_class};
use crate::tree::{Tree as _, each, put, set_or_drop};

const FROZEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const FROZEN_EPHEMERAL: &str = "existing ephemeral containers may not be changed or removed";
const FROZEN_RESIZE: &str = "only cpu and memory resources are mutable";

/// The old spec with today's defaults, so that what was stored before a default existed is no change.
fn filled(spec: &Value) -> Value {
    let mut spec = spec.clone();
    default_pod(&mut spec);
    spec
}

/// Checks a change of a pod through its main endpoint.
pub(crate) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if new.sub("spec") == old.sub("spec") {
        return;
    }
    let at = &SPEC;
    let (new, old) = (new.sub("spec"), &filled(old.sub("spec")));
    for (field, what) in [("containers", "containers"), ("initContainers", "init containers")] {
        if new.list(field).len() != old.list(field).len() {
            errors.forbidden(&at.field(field), format!("pod updates may not add or remove {what}"));
            return;
        }
        let list = at.field(field);
        for (index, container) in new.list(field).iter().enumerate() {
            image(errors, &list.index(index).field("image"), container.text("image"));
        }
    }
    deadline(errors, &at.field("activeDeadlineSeconds"), new, old);
    gates(errors, &at.field("schedulingGates"), new, old);
    if !same(new.sub("tolerations"), old.sub("tolerations")) {
        tolerations(errors, &at.field("tolerations"), new.list("tolerations"));
        only_added(
            errors,
            &at.field("tolerations"),
            new.list("tolerations"),
            old.list("tolerations"),
        );
    }
    let gated = !old.list("schedulingGates").is_empty();
    if gated {
        node_selector(errors, &at.field("nodeSelector"), new, old);
    }
    let mut allowed = new.clone();
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set_or_drop(&mut allowed, field, old.sub(field).clone());
    }
    if gated {
        for field in ["nodeSelector", "affinity"] {
            set_or_drop(&mut allowed, field, old.sub(field).clone());
        }
    }
    if old.count("terminationGracePeriodSeconds") < 0 && new.count("terminationGracePeriodSeconds") == 1 {
        put(
            &mut allowed,
            "terminationGracePeriodSeconds",
            old.sub("terminationGracePeriodSeconds").clone(),
        );
    }
    for list in ["containers", "initContainers"] {
        for (container, before) in each(&mut allowed, list).zip(old.list(list)) {
            put(container, "image", before.sub("image").clone());
        }
    }
    if !alike(&allowed, old) {
        errors.forbidden(at, FROZEN);
    }
}

/// Equality of objects where absent and empty members are alike.
fn alike(a: &Value, b: &Value) -> bool {
    let covers = |a: &Value, b: &Value| a.entries().all(|(key, value)| same(value, b.sub(key)));
    a == b || (a.is_object() && b.is_object() && covers(a, b) && covers(b, a))
}

fn deadline(errors: &mut FieldErrors, at: &Path<'_>, new: &Value, old: &Value) {
    let (new, old) = (new.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds"));
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.within(at, new, 0, i64::from(i32::MAX));
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(at, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => errors.invalid(at, json!(null), "must not update from a positive integer to nil value"),
        _ => {}
    }
}

fn gates(errors: &mut FieldErrors, at: &Path<'_>, new: &Value, old: &Value) {
    let before = old.list("schedulingGates");
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        if !before.iter().any(|b| b.text("name") == gate.text("name")) {
            errors.forbidden(
                &at.index(index),
                format!(
                    "only deletion is allowed, but found new scheduling gate '{}'",
                    gate.text("name")
                ),
            );
        }
    }
}

/// A gated pod may be narrowed to fewer nodes.
fn node_selector(errors: &mut FieldErrors, at: &Path<'_>, new: &Value, old: &Value) {
    let (new, old) = (new.sub("nodeSelector"), old.sub("nodeSelector"));
    if old.entries().any(|(key, value)| new.sub(key) != value) {
        errors.invalid(
            at,
            new.clone(),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        );
    }
}

fn only_added(errors: &mut FieldErrors, at: &Path<'_>, new: &[Value], old: &[Value]) {
    let but_for_time = |t: &Value| {
        let mut t = t.clone();
        if t.text("effect") == "NoExecute" {
            crate::tree::drop_member(&mut t, "tolerationSeconds");
        }
        t
    };
    let kept = |before: &Value| new.iter().any(|t| but_for_time(t) == but_for_time(before));
    if !old.iter().all(kept) {
        errors.forbidden(
            at,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

/// Checks a change through `ephemeralcontainers`: they can be added, and no more.
pub(crate) fn ephemeral_containers(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let at = SPEC.field("ephemeralContainers");
    let mut wanted = old.sub("spec").clone();
    set_or_drop(
        &mut wanted,
        "ephemeralContainers",
        new.at("spec.ephemeralContainers").clone(),
    );
    super::spec(errors, &SPEC, &filled(&wanted), super::Of::Pod);
    let (new, old) = (
        new.at("spec.ephemeralContainers").as_list(),
        old.at("spec.ephemeralContainers").as_list(),
    );
    for (index, before) in old.iter().enumerate() {
        match new.iter().find(|c| c.text("name") == before.text("name")) {
            Some(after) if after == before => {}
            Some(_) => errors.forbidden(
                &at.index(index),
                format!("{FROZEN_EPHEMERAL}: \"{}\"", before.text("name")),
            ),
            None => errors.forbidden(&at, format!("{FROZEN_EPHEMERAL}: \"{}\"", before.text("name"))),
        }
    }
}

/// Checks a change through `resize`: amounts of CPU and memory, within the pod's quality of service.
pub(crate) fn resize(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let at = &SPEC;
    let (new, old) = (new.sub("spec"), old.sub("spec"));
    for list in ["containers", "initContainers"] {
        let list_at = at.field(list);
        for (index, container) in new.list(list).iter().enumerate() {
            super::requirements(
                errors,
                &list_at.index(index).field("resources"),
                container.sub("resources"),
            );
        }
    }
    if qos_class(new) != qos_class(old) {
        errors.invalid(
            at,
            qos_class(new),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let rest = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["containers", "initContainers"] {
            for container in each(&mut spec, list) {
                // What is left of resources when the two that may change are gone.
                for part in ["requests", "limits"] {
                    if let Some(r) = crate::tree::sub_mut(container, "resources") {
                        if let Some(amounts) = crate::tree::sub_mut(r, part) {
                            for name in ["cpu", "memory"] {
                                crate::tree::drop_member(amounts, name);
                            }
                        }
                        if r.sub(part).is_blank() {
                            crate::tree::drop_member(r, part);
                        }
                    }
                }
            }
        }
        spec
    };
    if rest(new) != rest(old) {
        errors.forbidden(at, FROZEN_RESIZE);
    }
}
