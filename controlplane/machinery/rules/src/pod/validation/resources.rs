//! Requests and limits.

use minato_meta::FieldErrors;
use serde_json::Value;

use super::super::level;
use crate::check::{Amount, Path, Report as _, SPEC, may_overcommit, quantity, resource_amount, resource_name};
use crate::tree::Tree as _;

/// Checks the resources of a container.
pub(crate) fn requirements(errors: &mut FieldErrors, at: &Path<'_>, resources: &Value) {
    let (limits, requests) = (resources.sub("limits"), resources.sub("requests"));
    let (limits_at, requests_at) = (at.field("limits"), at.field("requests"));
    let (mut has_huge, mut has_base) = (false, false);
    for (name, amount) in limits.entries() {
        resource_name(errors, &limits_at, name);
        resource_amount(errors, &limits_at.key(name), name, amount, Amount::NotNegative);
        has_huge |= name.starts_with("hugepages-");
        has_base |= matches!(name.as_str(), "cpu" | "memory");
    }
    for (name, amount) in requests.entries() {
        resource_name(errors, &requests_at, name);
        resource_amount(errors, &requests_at.key(name), name, amount, Amount::NotNegative);
        has_huge |= name.starts_with("hugepages-");
        has_base |= matches!(name.as_str(), "cpu" | "memory");
        request_fits(errors, at, name, amount, limits);
    }
    if has_huge && !has_base {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
    claims(errors, &at.field("claims"), resources.list("claims"));
}

fn request_fits(errors: &mut FieldErrors, at: &Path<'_>, name: &str, amount: &Value, limits: &Value) {
    let requests_at = at.field("requests");
    let Some(request) = quantity(amount) else { return };
    match quantity(limits.sub(name)) {
        Some(limit) if request != limit && !may_overcommit(name) => errors.invalid(
            &requests_at,
            request.to_string(),
            format!("must be equal to {name} limit of {limit}"),
        ),
        Some(limit) if request > limit => errors.invalid(
            &requests_at,
            request.to_string(),
            format!("must be less than or equal to {name} limit of {limit}"),
        ),
        None if !may_overcommit(name) => errors.required(
            &at.field("limits"),
            "Limit must be set for non overcommitable resources",
        ),
        _ => {}
    }
}

fn claims(errors: &mut FieldErrors, list: &Path<'_>, claims: &[Value]) {
    let mut seen = crate::check::Seen::default();
    for (index, claim) in claims.iter().enumerate() {
        let at = list.index(index);
        if claim.text("name").is_empty() {
            errors.required(&at.field("name"), "");
        }
        seen.note(
            errors,
            &at,
            &format!("{}/{}", claim.text("name"), claim.text("request")),
        );
    }
}

/// Checks the resources of a pod as a whole.
pub(super) fn of_pod(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let resources = spec.sub("resources");
    if !resources.list("claims").is_empty() {
        errors.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    let (limits, requests) = (resources.sub("limits"), resources.sub("requests"));
    for (field, list) in [("limits", limits), ("requests", requests)] {
        let at = at.field(field);
        for (name, amount) in list.entries() {
            if !level::is_supported(name) {
                errors.unsupported(&at, name, &["cpu", "memory", "hugepages-"]);
            }
            resource_amount(errors, &at.key(name), name, amount, Amount::NotNegative);
        }
    }
    for (name, amount) in requests.entries() {
        request_fits(errors, at, name, amount, limits);
        let asked = level::container_requests(spec, name);
        if let (Some(whole), Some(asked)) = (quantity(amount), asked)
            && asked > whole
        {
            errors.invalid(
                &at.field("requests").key(name),
                whole.to_string(),
                format!("must be greater than or equal to aggregate container requests of {asked}"),
            );
        }
    }
    let list = SPEC.field("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (name, amount) in container.at("resources.limits").entries() {
            if let (Some(own), Some(whole)) = (quantity(amount), quantity(limits.sub(name)))
                && own > whole
            {
                errors.invalid(
                    &list.index(index).field("resources").field("limits").key(name),
                    own.to_string(),
                    format!("must be less than or equal to pod limits of {whole}"),
                );
            }
        }
    }
}

/// Checks what a runtime costs beside the containers.
pub(super) fn overhead(errors: &mut FieldErrors, at: &Path<'_>, overhead: &Value) {
    for (name, amount) in overhead.entries() {
        resource_name(errors, at, name);
        resource_amount(errors, &at.key(name), name, amount, Amount::NotNegative);
    }
}

/// Checks what a change of resources does to a running container.
pub(super) fn resize_policy(errors: &mut FieldErrors, list: &Path<'_>, container: &Value) {
    let mut seen = crate::check::Seen::default();
    for (index, policy) in container.list("resizePolicy").iter().enumerate() {
        let at = list.index(index);
        let resource = policy.text("resourceName");
        seen.note(errors, &at, resource);
        errors.one_of_required(&at.field("resourceName"), resource, &["cpu", "memory"]);
        errors.one_of_required(
            &at.field("restartPolicy"),
            policy.text("restartPolicy"),
            &["NotRequired", "RestartContainer"],
        );
    }
}
