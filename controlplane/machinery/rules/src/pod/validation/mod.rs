//! What is wrong with a pod spec.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodSpec>.

mod affinity;
mod containers;
mod environment;
mod mounts;
mod network;
mod probes;
mod resources;
mod scheduling;
mod security;
mod status;
mod update;
mod volume_sources;
mod volumes;

use minato_meta::{FieldErrors, names};
use serde_json::Value;

pub(crate) use resources::requirements;
pub(crate) use scheduling::{node_selector, taints};
pub(crate) use status::status;
pub(crate) use update::{ephemeral_containers, resize, update};
pub(crate) use volume_sources::persistent_source;

use crate::check::{Path, Report as _, SPEC, annotations, labels};
use crate::tree::Tree as _;

/// Whose spec it is: a few rules hold only for pods, which are complete, or only for templates, which may be filled later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A pod.
    Pod,
    /// A template of pods.
    Template,
}

/// Checks a new pod.
pub(crate) fn pod(errors: &mut FieldErrors, pod: &Value) {
    let (at, spec) = (SPEC, pod.sub("spec"));
    self::spec(errors, &at, spec, Of::Pod);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(&at.field("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        errors.forbidden(
            &at.field("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

/// Checks a template: its metadata and its spec.
pub(crate) fn template(errors: &mut FieldErrors, at: &Path<'_>, template: &Value) {
    let (meta, spec) = (template.sub("metadata"), template.sub("spec"));
    let (meta_at, spec_at) = (at.field("metadata"), at.field("spec"));
    labels(errors, &meta_at.field("labels"), meta.sub("labels"));
    annotations(errors, &meta_at.field("annotations"), meta.sub("annotations"));
    self::spec(errors, &spec_at, spec, Of::Template);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec_at.field("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// Checks a pod spec.
pub(crate) fn spec(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, of: Of) {
    let volumes = volumes::volumes(errors, &at.field("volumes"), spec);
    containers::all(errors, at, spec, &volumes);
    errors.one_of_required(
        &at.field("restartPolicy"),
        spec.text("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    network::spec(errors, at, spec, of);
    scheduling::spec(errors, at, spec);
    security::pod_context(errors, at, spec);
    identity(errors, at, spec);
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        errors.within(&at.field("activeDeadlineSeconds"), seconds, 1, i64::from(i32::MAX));
    }
    if spec.has("resources") {
        resources::of_pod(errors, &at.field("resources"), spec);
    }
    resources::overhead(errors, &at.field("overhead"), spec.sub("overhead"));
    claims(errors, &at.field("resourceClaims"), spec);
    if spec.has("os") {
        errors.one_of_required(
            &at.field("os").field("name"),
            spec.at("os.name").as_text(),
            &["linux", "windows"],
        );
    }
}

/// Names of other objects.
fn identity(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    for field in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.named(&at.field(field), name, names::dns1123_subdomain);
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.named(&at.field(field), name, names::dns1123_label);
        }
    }
    if spec.text("schedulerName").is_empty() {
        errors.required(&at.field("schedulerName"), "");
    }
}

/// Devices that a driver hands out.
fn claims(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let mut seen = crate::check::Seen::default();
    for (index, claim) in spec.list("resourceClaims").iter().enumerate() {
        let at = at.index(index);
        let name = claim.text("name");
        errors.named_required(&at.field("name"), name, names::dns1123_label);
        seen.note(errors, &at.field("name"), name);
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|s| claim.has(s)).count() {
            1 => {}
            0 => errors.invalid(
                &at,
                claim.clone(),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => errors.invalid(
                &at,
                claim.clone(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for field in sources {
            if claim.has(field) {
                errors.named(&at.field(field), claim.text(field), names::dns1123_subdomain);
            }
        }
    }
}
