//! `scale`: the number of replicas of any kind that has one, as an `autoscaling/v1` Scale.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind, GroupVersionKind, LabelSelector};
use minato_rules::{ResourceInfo, ScalePaths};
use serde_json::{Value, json};

use crate::endpoints::options::WriteOptions;
use crate::endpoints::patch::PatchBody;
use crate::endpoints::pipeline::Write;
use crate::endpoints::transaction::{self, Change, Outcome, Stored, Transform};
use crate::endpoints::{Target, decode, metadata};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Answers a request for a scale.
///
/// # Errors
/// 404 for an absent object, 409 for stale ones, 422 for fewer than no replicas.
pub(super) async fn handle(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options;
    let source = match request.info.verb.as_str() {
        "get" => {
            let stored = transaction::read(server, &target)
                .await?
                .ok_or_else(|| target.not_found())?;
            return response::json(StatusCode::OK, &show(&target.resource, &stored.object));
        }
        "update" => {
            options = WriteOptions::from_request(&request, "UpdateOptions")?;
            let body = request.read_body().await?;
            let scale = decode::tree(&body, decode::media_type(&request))?.value;
            Source::Whole(checked(scale, &target)?)
        }
        "patch" => {
            options = WriteOptions::from_request(&request, "PatchOptions")?;
            Source::Patch(PatchBody::read(server, &mut request, &target).await?)
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let write = Write {
        server,
        target: &target,
        user: &request.user,
        warnings: &request.warnings,
        options: &options,
        managers_settled: false,
    };
    let mut transform = SetReplicas { write: &write, source };
    match transaction::run(server, &target, options.dry_run, &mut transform).await? {
        Outcome::Written { stored, .. } | Outcome::Kept(stored) => {
            response::json(StatusCode::OK, &show(&target.resource, &stored.object))
        }
        Outcome::Deleted { object } => response::json(StatusCode::OK, &show(&target.resource, &object)),
    }
}

enum Source {
    Whole(Value),
    Patch(PatchBody),
}

struct SetReplicas<'a> {
    write: &'a Write<'a>,
    source: Source,
}

#[async_trait]
impl Transform for SetReplicas<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let target = self.write.target;
        let current = current.ok_or_else(|| target.not_found())?;
        let scale = match &self.source {
            Source::Whole(scale) => scale.clone(),
            Source::Patch(patch) => {
                let schema = minato_schema::builtin().kind_reference(&kind());
                checked(
                    patch.patched(&show(&target.resource, &current.object), schema.as_deref())?,
                    target,
                )?
            }
        };
        let mut object = current.object.clone();
        // The identity that the client meant is checked as in any other write.
        for field in ["uid", "resourceVersion"] {
            let value = metadata::text(&scale, field);
            metadata::of(&mut object)?.insert(field.to_owned(), json!(value));
        }
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let path = paths(&target.resource).map_or("/spec/replicas", |paths| paths.spec_replicas.as_str());
        set_at(&mut object, path, json!(replicas));
        self.write.update(object, current).await
    }
}

fn kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Checks a Scale as sent.
fn checked(mut scale: Value, target: &Target) -> Result<Value, ApiError> {
    decode::stamp_kind(&mut scale, &kind())?;
    if let Some(schema) = minato_schema::builtin().kind_reference(&kind()) {
        minato_schema::check(&scale, &schema).map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    metadata::settle_namespace(&mut scale, target)?;
    let name = metadata::text(&scale, "name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        let kind = GroupKind::new("autoscaling", "Scale");
        return Err(ApiError::invalid(&kind, &target.name, FieldErrors(vec![error])));
    }
    Ok(scale)
}

fn paths(resource: &ResourceInfo) -> Option<&ScalePaths> {
    resource.strategy.scale_paths()
}

/// Sets the value at a pointer of names; what is on the way is made.
fn set_at(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for name in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[name.replace("~0", "~").as_str()];
    }
    *at = value;
}

/// The Scale of an object.
fn show(resource: &ResourceInfo, object: &Value) -> Value {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let (wanted, present) = match paths(resource) {
        Some(paths) => (number(&paths.spec_replicas), number(&paths.status_replicas)),
        None => (number("/spec/replicas"), number("/status/replicas")),
    };
    let mut spec = json!({});
    if wanted != 0 {
        spec["replicas"] = json!(wanted);
    }
    let mut status = json!({"replicas": present});
    let selector = match paths(resource) {
        Some(paths) => {
            let text = paths.selector.as_ref().and_then(|path| object.pointer(path)?.as_str());
            text.unwrap_or_default().to_owned()
        }
        None => selector_text(object),
    };
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut shown = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = metadata::text(object, field);
        if !value.is_empty() {
            shown[field] = json!(value);
        }
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": shown,
        "spec": spec,
        "status": status,
    })
}

/// The selector in its text form: of the object form, or of a plain map (replication controllers).
fn selector_text(object: &Value) -> String {
    let Some(selector) = object.pointer("/spec/selector").filter(|s| !s.is_null()) else {
        return String::new();
    };
    let is_object_form = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    if is_object_form {
        return LabelSelector::from_object(selector)
            .map(|s| s.to_string())
            .unwrap_or_default();
    }
    let pairs = selector.as_object().into_iter().flatten();
    let pairs: Vec<(&str, &str)> = pairs.filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))).collect();
    LabelSelector::from_pairs(pairs).to_string()
}
