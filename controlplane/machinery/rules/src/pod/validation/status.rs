//! What is wrong with the status of a pod.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use crate::check::{Path, Report as _, STATUS, Seen, ip};
use crate::tree::Tree as _;

const RESTARTS: &str = "may not be transitioned to non-terminated state";

/// Checks a change of status.
pub(crate) fn status(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let at = &STATUS;
    let status = new.sub("status");
    let node = status.text("nominatedNodeName");
    if !node.is_empty() {
        errors.named(&at.field("nominatedNodeName"), node, names::dns1123_subdomain);
    }
    conditions(errors, &at.field("conditions"), status.list("conditions"));
    for (field, what) in [("podIPs", "podIPs"), ("hostIPs", "hostIPs")] {
        addresses(errors, &at.field(what), status.list(field));
    }
    let policy = new.at("spec.restartPolicy").as_text();
    if policy != "Always" {
        for field in ["containerStatuses", "initContainerStatuses"] {
            stays_ended(
                errors,
                &at.field(field),
                new,
                status.list(field),
                old.sub("status").list(field),
            );
        }
    }
}

fn conditions(errors: &mut FieldErrors, list: &Path<'_>, conditions: &[Value]) {
    for (index, condition) in conditions.iter().enumerate() {
        let at = list.index(index);
        errors.named(&at.field("type"), condition.text("type"), names::qualified_name);
        errors.one_of_required(
            &at.field("status"),
            condition.text("status"),
            &["True", "False", "Unknown"],
        );
    }
}

/// At most one address of a family, each once.
fn addresses(errors: &mut FieldErrors, list: &Path<'_>, addresses: &[Value]) {
    let mut seen = Seen::default();
    let mut families = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let at = list.index(index);
        let text = address.text("ip");
        if let Some(parsed) = ip(errors, &at, text) {
            families.push(parsed.is_ipv4());
        }
        seen.note(errors, &at, text);
    }
    if families.len() > 1 && (families.len() > 2 || families.first() == families.last()) {
        let all: Vec<&str> = addresses.iter().map(|a| a.text("ip")).collect();
        errors.invalid(list, all, "may specify no more than one IP for each IP family");
    }
}

/// A container that has ended for good cannot run again.
fn stays_ended(errors: &mut FieldErrors, list: &Path<'_>, pod: &Value, new: &[Value], old: &[Value]) {
    let policy = pod.at("spec.restartPolicy").as_text();
    let has_own_policy = |name: &str| {
        let all = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|l| pod.sub("spec").list(l));
        all.filter(|c| c.text("name") == name).any(|c| c.has("restartPolicy"))
    };
    for before in old {
        if has_own_policy(before.text("name")) {
            continue;
        }
        let ended = before.at("state.terminated");
        if ended.is_null() || (policy == "OnFailure" && ended.count("exitCode") != 0) {
            continue;
        }
        let after = new.iter().position(|s| s.text("name") == before.text("name"));
        if let Some(index) = after
            && new.get(index).is_some_and(|s| s.at("state.terminated").is_null())
        {
            errors.forbidden(&list.index(index).field("state"), RESTARTS);
        }
    }
}
