//! Kinds that are created to get an answer, and never stored.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use minato_auth::{Attributes, Credentials, Decision, UserInfo};
use minato_meta::{ApiError, FieldError, FieldErrors, format_time};
use minato_rules::ResourceInfo;
use serde_json::{Value, json};

use crate::endpoints::options::WriteOptions;
use crate::endpoints::{Target, decode, metadata};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// The review kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    Token,
    SelfSubject,
    SubjectAccess,
    SelfSubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
}

/// Which review a kind is, if it is one.
pub(crate) fn kind(resource: &ResourceInfo) -> Option<Review> {
    Some(match (resource.gvr.group.as_str(), resource.gvr.resource.as_str()) {
        ("authentication.k8s.io", "tokenreviews") => Review::Token,
        ("authentication.k8s.io", "selfsubjectreviews") => Review::SelfSubject,
        ("authorization.k8s.io", "subjectaccessreviews") => Review::SubjectAccess,
        ("authorization.k8s.io", "selfsubjectaccessreviews") => Review::SelfSubjectAccess,
        ("authorization.k8s.io", "localsubjectaccessreviews") => Review::LocalSubjectAccess,
        ("authorization.k8s.io", "selfsubjectrulesreviews") => Review::SelfSubjectRules,
        _ => return None,
    })
}

/// Answers a review.
///
/// # Errors
/// 422 for reviews that ask nothing, or two things at once.
pub(crate) async fn create(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
    review: Review,
) -> Result<Response, ApiError> {
    if request.info.verb != "create" || !target.name.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let options = WriteOptions::from_request(&request, "CreateOptions")?;
    let body = request.read_body().await?;
    let decoded = decode::tree(&body, decode::media_type(&request))?;
    let strictness = decode::Strictness {
        validation: options.field_validation,
        warnings: &request.warnings,
    };
    let mut object = decode::intake(&server.registry, &target.resource, decoded, &strictness)?;
    let mut errors = FieldErrors::default();
    let status = match review {
        Review::Token => Some(token(server, &object, &mut errors).await),
        Review::SelfSubject => Some(json!({"userInfo": user_json(&request.user)})),
        Review::SelfSubjectRules => Some(rules(server, &request.user, &object, &mut errors).await),
        Review::SubjectAccess | Review::SelfSubjectAccess | Review::LocalSubjectAccess => {
            access(server, &request.user, &target, review, &object, &mut errors).await
        }
    };
    if !errors.is_empty() {
        return Err(ApiError::invalid(&target.resource.gvk.group_kind(), "", errors));
    }
    object["status"] = status.unwrap_or_default();
    if review == Review::SelfSubject {
        metadata::of(&mut object)?.insert("creationTimestamp".to_owned(), json!(format_time(Timestamp::now())));
    }
    response::json(StatusCode::CREATED, &object)
}

fn user_json(user: &UserInfo) -> Value {
    let mut value = json!({"username": user.name});
    if !user.uid.is_empty() {
        value["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        value["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

async fn token(server: &Arc<ApiServer>, object: &Value, errors: &mut FieldErrors) -> Value {
    let token = object
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if token.is_empty() {
        errors.push(FieldError::required(
            "spec.token",
            "token is required for TokenReview in authentication",
        ));
        return Value::Null;
    }
    let credentials = Credentials {
        bearer_token: Some(token),
        ..Credentials::default()
    };
    let wanted = strings(object.pointer("/spec/audiences"));
    match server.deps().authenticator.authenticate(&credentials).await {
        Ok(Some(authenticated)) => {
            let audiences: Vec<&String> = wanted
                .iter()
                .filter(|a| authenticated.audiences.is_empty() || authenticated.audiences.contains(a))
                .collect();
            if !wanted.is_empty() && audiences.is_empty() {
                return json!({"user": {}, "error": "token audiences do not match the requested audiences"});
            }
            let mut status = json!({"authenticated": true, "user": user_json(&authenticated.user)});
            let audiences = if wanted.is_empty() {
                json!(authenticated.audiences)
            } else {
                json!(audiences)
            };
            if audiences != json!([]) {
                status["audiences"] = audiences;
            }
            status
        }
        Ok(None) => json!({"user": {}}),
        Err(_) => json!({"user": {}, "error": "the token is not valid"}),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

async fn access(
    server: &Arc<ApiServer>,
    requester: &UserInfo,
    target: &Target,
    review: Review,
    object: &Value,
    errors: &mut FieldErrors,
) -> Option<Value> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let user = match review {
        Review::SelfSubjectAccess => requester.clone(),
        _ => subject(spec, errors),
    };
    let resource = spec.get("resourceAttributes").filter(|v| !v.is_null());
    let path = spec.get("nonResourceAttributes").filter(|v| !v.is_null());
    let attributes = match (resource, path) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                path.cloned().unwrap_or_default(),
                "cannot be specified in combination with resourceAttributes",
            ));
            return None;
        }
        (None, None) => {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes",
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ));
            return None;
        }
        (Some(resource), None) => resource_attributes(user, resource),
        (None, Some(path)) => path_attributes(user, path),
    };
    if review == Review::LocalSubjectAccess && target.namespace.as_deref() != Some(&attributes.namespace) {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            attributes.namespace.as_str(),
            "must match metadata.namespace",
        ));
    }
    if !errors.is_empty() {
        return None;
    }
    let (allowed, denied, reason) = match server.deps().authorizer.authorize(&attributes).await {
        Decision::Allow(reason) => (true, false, reason),
        Decision::Deny(reason) => (false, true, reason),
        Decision::NoOpinion(reason) => (false, false, reason),
    };
    let mut status = json!({"allowed": allowed});
    if denied {
        status["denied"] = json!(true);
    }
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    Some(status)
}

fn subject(spec: &Value, errors: &mut FieldErrors) -> UserInfo {
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let extra: BTreeMap<String, Vec<String>> = spec
        .get("extra")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.to_lowercase(), strings(Some(values))))
        .collect();
    let user = UserInfo {
        name: text("user"),
        uid: text("uid"),
        groups: strings(spec.get("groups")),
        extra,
    };
    if user.name.is_empty() && user.groups.is_empty() {
        errors.push(FieldError::invalid(
            "spec.user",
            "",
            "at least one of user or group must be specified",
        ));
    }
    user
}

fn resource_attributes(user: UserInfo, spec: &Value) -> Attributes {
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Attributes {
        user,
        verb: text("verb"),
        is_resource: true,
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        ..Attributes::default()
    }
}

fn path_attributes(user: UserInfo, spec: &Value) -> Attributes {
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Attributes {
        user,
        verb: text("verb"),
        path: text("path"),
        ..Attributes::default()
    }
}

async fn rules(server: &Arc<ApiServer>, user: &UserInfo, object: &Value, errors: &mut FieldErrors) -> Value {
    let namespace = object
        .pointer("/spec/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace.is_empty() {
        errors.push(FieldError::required("spec.namespace", "no namespace on request"));
        return Value::Null;
    }
    let found = server.deps().authorizer.rules_for(user, namespace).await;
    json!({
        "resourceRules": found.resource_rules,
        "nonResourceRules": found.non_resource_rules,
        "incomplete": found.incomplete,
    })
}
