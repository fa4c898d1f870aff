//! Assigning a pod to a node: `pods/binding`, and the older `bindings`.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use jiff::Timestamp;
use minato_admission::{AdmissionRequest, Operation};
use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind, GroupResource, GroupVersionKind, format_time};
use serde_json::{Value, json};

use super::success;
use crate::endpoints::options::WriteOptions;
use crate::endpoints::transaction::{self, Change, Effects, Stored, Transform};
use crate::endpoints::{Target, decode, metadata, pipeline};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Binds a pod. `target` is the pod; with an empty name the body names it.
///
/// # Errors
/// 404 for an absent pod, 409 for one that is bound, going, or gated, 422 for a body that binds to no node.
pub(crate) async fn create(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    mut target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "CreateOptions")?;
    let body = request.read_body().await?;
    let mut binding = decode::tree(&body, decode::media_type(&request))?.value;
    let kind = GroupVersionKind::new("", "v1", "Binding");
    decode::stamp_kind(&mut binding, &kind)?;
    if let Some(schema) = minato_schema::builtin().kind_reference(&kind) {
        minato_schema::check(&binding, &schema).map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    if target.name.is_empty() {
        target.name = metadata::text(&binding, "name").to_owned();
    }
    metadata::settle_namespace(&mut binding, &target)?;
    let node = node_of(&binding, &target)?;
    let mut admission = AdmissionRequest {
        operation: Operation::Create,
        kind,
        resource: target.resource.gvr.clone(),
        subresource: "binding",
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: &target.name,
        user: &request.user,
        dry_run: options.dry_run,
        object: binding,
        old_object: &Value::Null,
        options: options.to_object("CreateOptions"),
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    pipeline::admit(server, &mut admission).await?;
    pipeline::validate(server, &mut admission).await?;
    request.warnings.extend(admission.warnings);
    let mut transform = Bind {
        target: &target,
        binding: admission.object,
        node,
    };
    transaction::run(server, &target, options.dry_run, &mut transform).await?;
    success(StatusCode::CREATED)
}

fn node_of(binding: &Value, target: &Target) -> Result<String, ApiError> {
    let text = |field: &str| {
        binding
            .pointer("/target")
            .and_then(|t| t.get(field))
            .and_then(Value::as_str)
    };
    let mut errors = FieldErrors::default();
    match text("kind") {
        None | Some("" | "Node") => {}
        Some(other) => errors.push(FieldError::not_supported("target.kind", other, &["Node", "<empty>"])),
    }
    let node = text("name").unwrap_or_default();
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if errors.is_empty() {
        return Ok(node.to_owned());
    }
    Err(ApiError::invalid(&GroupKind::new("", "Binding"), &target.name, errors))
}

struct Bind<'a> {
    target: &'a Target,
    binding: Value,
    node: String,
}

#[async_trait]
impl Transform for Bind<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.target.not_found())?;
        let name = &self.target.name;
        let refuse = |why: String| Err(ApiError::conflict(&GroupResource::new("", "pods/binding"), name, why));
        for (field, found) in [
            ("uid", metadata::text(&current.object, "uid").to_owned()),
            ("resourceVersion", current.revision.to_string()),
        ] {
            let wanted = metadata::text(&self.binding, field);
            if !wanted.is_empty() && wanted != found {
                return refuse(format!(
                    "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
                ));
            }
        }
        if metadata::is_deleting(&current.object) {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let assigned = current
            .object
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !assigned.is_empty() {
            return refuse(format!("pod {name} is already assigned to node \"{assigned}\""));
        }
        let gates = current
            .object
            .pointer("/spec/schedulingGates")
            .and_then(Value::as_array);
        if gates.is_some_and(|g| !g.is_empty()) {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = current.object.clone();
        pod["spec"]["nodeName"] = json!(self.node);
        for (map, replaces) in [("annotations", true), ("labels", false)] {
            let added = self
                .binding
                .pointer(&format!("/metadata/{map}"))
                .and_then(Value::as_object);
            for (key, value) in added.into_iter().flatten() {
                if replaces || pod["metadata"][map].get(key).is_none() {
                    pod["metadata"][map][key] = value.clone();
                }
            }
        }
        mark_scheduled(&mut pod);
        Ok(Change::Put {
            object: pod,
            effects: Effects::default(),
        })
    }
}

/// Sets the PodScheduled condition to true, keeping its place.
fn mark_scheduled(pod: &mut Value) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": format_time(Timestamp::now()),
    });
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    match conditions.iter_mut().find(|c| c["type"] == "PodScheduled") {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}
