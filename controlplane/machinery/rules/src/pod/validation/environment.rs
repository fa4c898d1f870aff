//! Environment variables.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use crate::check::{Path, Report as _, quantity};
use crate::tree::Tree as _;

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that a file of a downward API volume may show.
pub(super) const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks `env`.
pub(super) fn variables(errors: &mut FieldErrors, list: &Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let at = list.index(index);
        errors.named_required(&at.field("name"), variable.text("name"), names::env_var_name);
        if variable.has("valueFrom") {
            value_from(errors, &at.field("valueFrom"), variable);
        }
    }
}

fn value_from(errors: &mut FieldErrors, at: &Path<'_>, variable: &Value) {
    let source = variable.sub("valueFrom");
    let mut count = 0;
    if source.has("fieldRef") {
        count += 1;
        field_reference(errors, &at.field("fieldRef"), source.sub("fieldRef"), FIELDS);
    }
    if source.has("resourceFieldRef") {
        count += 1;
        resource_reference(
            errors,
            &at.field("resourceFieldRef"),
            source.sub("resourceFieldRef"),
            false,
        );
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(field) {
            count += 1;
            key_reference(errors, &at.field(field), source.sub(field));
        }
    }
    if source.has("fileKeyRef") {
        count += 1;
        let (at, reference) = (at.field("fileKeyRef"), source.sub("fileKeyRef"));
        for field in ["key", "volumeName", "path"] {
            if reference.text(field).is_empty() {
                errors.required(&at.field(field), "");
            }
        }
    }
    if count == 0 {
        errors.invalid(
            at,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if count > 1 {
        errors.invalid(at, "", "may not have more than one field specified at a time");
    } else if !variable.text("value").is_empty() {
        errors.invalid(at, "", "may not be specified when `value` is not empty");
    }
}

/// A key of a ConfigMap or Secret.
fn key_reference(errors: &mut FieldErrors, at: &Path<'_>, reference: &Value) {
    errors.named_required(&at.field("key"), reference.text("key"), names::config_map_key);
}

/// A field of the pod; those with keys are `metadata.labels['key']` and `metadata.annotations['key']`.
pub(super) fn field_reference(errors: &mut FieldErrors, at: &Path<'_>, reference: &Value, allowed: &[&str]) {
    if reference.text("apiVersion").is_empty() {
        errors.required(&at.field("apiVersion"), "");
        return;
    }
    let (at, path) = (at.field("fieldPath"), reference.text("fieldPath"));
    if path.is_empty() {
        errors.required(&at, "");
        return;
    }
    let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) else {
        errors.one_of(&at, path, allowed);
        return;
    };
    match map {
        "metadata.annotations" => errors.named(&at, &key.to_lowercase(), names::qualified_name),
        "metadata.labels" => errors.named(&at, key, names::qualified_name),
        _ => errors.invalid(&at, path, "does not support subscript"),
    }
}

/// An amount of a resource of a container.
pub(super) fn resource_reference(errors: &mut FieldErrors, at: &Path<'_>, reference: &Value, needs_container: bool) {
    if needs_container && reference.text("containerName").is_empty() {
        errors.required(&at.field("containerName"), "");
        return;
    }
    let (resource_at, resource) = (at.field("resource"), reference.text("resource"));
    if resource.is_empty() {
        errors.required(&resource_at, "");
        return;
    }
    let huge = |prefix: &str| {
        resource
            .strip_prefix(prefix)
            .is_some_and(|r| r.starts_with("hugepages-"))
    };
    if !RESOURCES.contains(&resource) && !huge("limits.") && !huge("requests.") {
        errors.unsupported(&resource_at, resource, RESOURCES);
    }
    divisor(errors, &at.field("divisor"), resource, reference.sub("divisor"));
}

/// Units that amounts may be shown in.
fn divisor(errors: &mut FieldErrors, at: &Path<'_>, resource: &str, value: &Value) {
    let Some(amount) = quantity(value).filter(|q| q.signum() != 0) else {
        return;
    };
    let allowed: &[&str] = if resource.ends_with(".cpu") {
        &["1", "1m"]
    } else {
        &[
            "1", "1E", "1Ei", "1G", "1Gi", "1K", "1Ki", "1M", "1Mi", "1P", "1Pi", "1T", "1Ti", "1k",
        ]
    };
    let text = amount.to_string();
    if !allowed.contains(&text.as_str()) {
        let shown: Vec<&str> = allowed.iter().copied().filter(|a| *a != "1K").collect();
        errors.unsupported(at, &text, &shown);
    }
}

/// Checks `envFrom`.
pub(super) fn variable_sources(errors: &mut FieldErrors, list: &Path<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let at = list.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.named(&at.field("prefix"), prefix, names::env_var_name);
        }
        let present: Vec<&str> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|f| source.has(f))
            .collect();
        match present.as_slice() {
            [] => errors.invalid(&at, "", "must specify one of: `configMapRef` or `secretRef`"),
            [_] => {}
            _ => errors.invalid(&at, "", "may not have more than one field specified at a time"),
        }
    }
}
