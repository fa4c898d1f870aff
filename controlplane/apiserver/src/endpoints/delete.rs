//! DELETE of one object: preconditions, grace, finalizers, propagation.
//!
//! Source: <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use minato_admission::{AdmissionRequest, Operation};
use minato_auth::UserInfo;
use minato_meta::{ApiError, format_time, parse_time};
use serde_json::{Value, json};

use super::options::{DeleteOptions, Propagation};
use super::transaction::{self, Change, Effects, Outcome, Stored, Transform};
use super::{Target, create, metadata, pipeline};
use crate::allocators;
use crate::request::{ApiRequest, Warnings};
use crate::response::{self, Response};
use crate::server::ApiServer;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose delete answers with the object; the others answer with a `Status`.
const ANSWERED_WITH_OBJECT: &[&str] = &[
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
];

/// Deletes an object.
///
/// # Errors
/// 404 when it is absent, 409 when a precondition does not hold, or what admission says.
pub(crate) async fn delete(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = DeleteOptions::from_request(&mut request).await?;
    let outcome = delete_object(server, &target, &request.user, &request.warnings, &options).await?;
    match outcome {
        Outcome::Deleted { object } if answers_with_status(&target) => deleted_status(&target, &object),
        outcome => {
            let response = create::respond(server, &request, &target, outcome)?;
            Ok(with_code(response, StatusCode::OK))
        }
    }
}

fn with_code(mut response: Response, code: StatusCode) -> Response {
    *response.status_mut() = code;
    response
}

fn answers_with_status(target: &Target) -> bool {
    !(target.resource.gvr.group.is_empty() && ANSWERED_WITH_OBJECT.contains(&target.resource.gvr.resource.as_str()))
}

fn deleted_status(target: &Target, object: &Value) -> Result<Response, ApiError> {
    let mut details = json!({
        "name": target.name,
        "kind": target.resource.gvr.resource,
        "uid": metadata::text(object, "uid"),
    });
    if !target.resource.gvr.group.is_empty() {
        details["group"] = json!(target.resource.gvr.group);
    }
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    });
    response::json(StatusCode::OK, &status)
}

/// Deletes an object on behalf of a user.
pub(crate) async fn delete_object(
    server: &Arc<ApiServer>,
    target: &Target,
    user: &UserInfo,
    warnings: &Warnings,
    options: &DeleteOptions,
) -> Result<Outcome, ApiError> {
    delete_changed(server, target, user, warnings, options, |_| {}).await
}

/// Deletes an object that is changed in the same write, so that whoever sees it go sees why.
pub(crate) async fn delete_changed(
    server: &Arc<ApiServer>,
    target: &Target,
    user: &UserInfo,
    warnings: &Warnings,
    options: &DeleteOptions,
    change: fn(&mut Value),
) -> Result<Outcome, ApiError> {
    let mut transform = Delete {
        server,
        target,
        user,
        warnings,
        options,
        change,
    };
    transaction::run(server, target, options.dry_run, &mut transform).await
}

struct Delete<'a> {
    server: &'a Arc<ApiServer>,
    target: &'a Target,
    user: &'a UserInfo,
    warnings: &'a Warnings,
    options: &'a DeleteOptions,
    change: fn(&mut Value),
}

#[async_trait]
impl Transform for Delete<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let Some(current) = current else {
            return Err(self.target.not_found());
        };
        check_preconditions(self.target, self.options, current)?;
        self.admission(&current.object).await?;
        let mut object = current.object.clone();
        (self.change)(&mut object);
        let effects = |object: &Value| allocators::release(self.server, &self.target.resource, object);
        match decide(&mut object, self.target, self.options, Timestamp::now()) {
            Verdict::Keep => Ok(Change::Keep),
            Verdict::Mark => Ok(Change::Put {
                object,
                effects: Effects::default(),
            }),
            Verdict::Remove => {
                let effects = effects(&current.object);
                Ok(Change::Delete { object, effects })
            }
        }
    }
}

/// Whether it is the object, and the state of it, that the client means to delete.
///
/// # Errors
/// 409 when it is not.
pub(crate) fn check_preconditions(target: &Target, options: &DeleteOptions, current: &Stored) -> Result<(), ApiError> {
    let conflict = |what: &str, wanted: &str, found: &str| {
        ApiError::conflict(
            &target.resource.gvr.group_resource(),
            &target.name,
            format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"),
        )
    };
    if let Some(uid) = &options.precondition_uid {
        let found = metadata::text(&current.object, "uid");
        if uid != found {
            return Err(conflict("UID", uid, found));
        }
    }
    if let Some(revision) = &options.precondition_revision {
        let found = current.revision.to_string();
        if *revision != found {
            return Err(conflict("ResourceVersion", revision, &found));
        }
    }
    Ok(())
}

impl Delete<'_> {
    async fn admission(&self, old: &Value) -> Result<(), ApiError> {
        let mut request = AdmissionRequest {
            operation: Operation::Delete,
            kind: self.target.resource.gvk.clone(),
            resource: self.target.resource.gvr.clone(),
            subresource: "",
            namespace: pipeline::admission_namespace(self.target, &self.target.name),
            name: &self.target.name,
            user: self.user,
            dry_run: self.options.dry_run,
            object: Value::Null,
            old_object: old,
            options: self.options.object.clone(),
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        };
        pipeline::admit(self.server, &mut request).await?;
        pipeline::validate(self.server, &mut request).await?;
        self.warnings.extend(request.warnings);
        Ok(())
    }
}

/// What a delete does to an object.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Deletion has begun already, and nothing changes.
    Keep,
    /// The object is marked, and stays until its grace and finalizers are over.
    Mark,
    /// The object goes now.
    Remove,
}

/// Whether this is the Namespace kind, which has finalizers in its spec too.
pub(crate) fn is_namespace(target: &Target) -> bool {
    target.resource.gvr.group.is_empty() && target.resource.gvr.resource == "namespaces"
}

/// Whether a namespace still waits for its content to go.
pub(crate) fn has_spec_finalizers(object: &Value) -> bool {
    let list = object.pointer("/spec/finalizers").and_then(Value::as_array);
    list.is_some_and(|l| !l.is_empty())
}

fn decide(object: &mut Value, target: &Target, options: &DeleteOptions, now: Timestamp) -> Verdict {
    if metadata::is_deleting(object) {
        return decide_again(object, target, options);
    }
    target.resource.strategy.prepare_for_delete(object, now);
    settle_finalizers(object, target, options);
    let pending = !metadata::finalizers(object).is_empty() || is_namespace(target) && has_spec_finalizers(object);
    let strategy = &target.resource.strategy;
    let grace = match strategy.graceful_deletion_seconds(object) {
        // Zero means that nobody is there to end it gracefully, whatever the client wishes.
        Some(0) | None => 0,
        Some(default) => options.grace_period_seconds.unwrap_or(default),
    };
    if grace == 0 && !pending {
        return Verdict::Remove;
    }
    let end = now
        + SignedDuration::from_secs(
            i64::try_from(grace)
                .unwrap_or(i64::from(i32::MAX))
                .min(i64::from(i32::MAX)),
        );
    mark(object, end, grace);
    if object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or(0)
        > 0
    {
        metadata::raise_generation(object);
    }
    if is_namespace(target) {
        object["status"]["phase"] = json!("Terminating");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("deletionGracePeriodSeconds");
        }
    }
    Verdict::Mark
}

/// A further delete of an object that is going: it may only be hastened.
fn decide_again(object: &mut Value, target: &Target, options: &DeleteOptions) -> Verdict {
    let pending = !metadata::finalizers(object).is_empty() || is_namespace(target) && has_spec_finalizers(object);
    let period = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    if period == 0 {
        return if pending { Verdict::Keep } else { Verdict::Remove };
    }
    match options.grace_period_seconds {
        Some(0) if !pending => Verdict::Remove,
        Some(shorter) if shorter < period => {
            let seconds = |s: u64| SignedDuration::from_secs(i64::try_from(s).unwrap_or(0));
            if let Ok(end) = parse_time(metadata::text(object, "deletionTimestamp")) {
                mark(object, end - seconds(period) + seconds(shorter), shorter);
            }
            Verdict::Mark
        }
        _ => Verdict::Keep,
    }
}

fn mark(object: &mut Value, end: Timestamp, grace: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("deletionTimestamp".to_owned(), Value::String(format_time(end)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), Value::from(grace));
    }
}

/// Puts in or takes out the finalizers by which the garbage collector learns of the policy.
fn settle_finalizers(object: &mut Value, target: &Target, options: &DeleteOptions) {
    let present = metadata::finalizers(object);
    let policy = options.propagation.unwrap_or_else(|| {
        if present.contains(&ORPHAN) {
            Propagation::Orphan
        } else if present.contains(&FOREGROUND) {
            Propagation::Foreground
        } else if target.resource.strategy.orphans_by_default() {
            Propagation::Orphan
        } else {
            Propagation::Background
        }
    });
    let mut wanted: Vec<String> = present
        .iter()
        .filter(|f| **f != ORPHAN && **f != FOREGROUND)
        .map(|f| (*f).to_owned())
        .collect();
    match policy {
        Propagation::Orphan => wanted.push(ORPHAN.to_owned()),
        Propagation::Foreground => wanted.push(FOREGROUND.to_owned()),
        Propagation::Background => {}
    }
    metadata::set_finalizers(object, wanted);
}
