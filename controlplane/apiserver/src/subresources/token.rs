//! `serviceaccounts/token`: a signed token for a service account.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>.

use std::sync::Arc;

use http::StatusCode;
use minato_admission::{AdmissionRequest, Operation};
use minato_auth::{BoundObject, TokenSpec};
use minato_meta::{
    ApiError, ErrorKind, FieldError, FieldErrors, GroupKind, GroupResource, GroupVersionKind, format_time,
};
use serde_json::{Value, json};

use crate::endpoints::options::WriteOptions;
use crate::endpoints::{Target, decode, metadata, pipeline, transaction};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

const SHORTEST: u64 = 600;
const LONGEST: u64 = 1 << 32;
const DEFAULT: u64 = 3600;

/// Issues a token.
///
/// # Errors
/// 404 for absent accounts and bound objects, 409 for bound objects of another uid, 422 for a bad spec.
pub(super) async fn create(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "CreateOptions")?;
    let body = request.read_body().await?;
    let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut object = decode::tree(&body, decode::media_type(&request))?.value;
    decode::stamp_kind(&mut object, &kind)?;
    if let Some(schema) = minato_schema::builtin().kind_reference(&kind) {
        minato_schema::check(&object, &schema).map_err(|e| ApiError::bad_request(e.to_string()))?;
        minato_schema::prune(&mut object, &schema, 0);
    }
    metadata::settle_namespace(&mut object, &target)?;
    let account = transaction::read(server, &target)
        .await?
        .ok_or_else(|| target.not_found())?;
    let object = admit(server, &request, &target, kind, object, &options).await?;
    let spec = spec(server, &target, &account.object, &object).await?;
    let issuer = server.deps().token_issuer.as_ref().ok_or_else(|| {
        ApiError::new(
            ErrorKind::ServiceUnavailable,
            "this server does not issue service-account tokens",
        )
    })?;
    let issued = issuer.issue(&spec).await?;
    let mut answer = object;
    answer["metadata"] = json!({
        "name": target.name,
        "namespace": target.namespace,
        "creationTimestamp": format_time(jiff::Timestamp::now()),
    });
    answer["spec"]["audiences"] = json!(issued.audiences);
    answer["spec"]["expirationSeconds"] = json!(spec.expiration_seconds);
    answer["status"] = json!({"token": issued.token, "expirationTimestamp": format_time(issued.expires)});
    response::json(StatusCode::CREATED, &answer)
}

async fn admit(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    kind: GroupVersionKind,
    object: Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let mut admission = AdmissionRequest {
        operation: Operation::Create,
        kind,
        resource: target.resource.gvr.clone(),
        subresource: "token",
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: &target.name,
        user: &request.user,
        dry_run: options.dry_run,
        object,
        old_object: &Value::Null,
        options: options.to_object("CreateOptions"),
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    pipeline::admit(server, &mut admission).await?;
    pipeline::validate(server, &mut admission).await?;
    request.warnings.extend(admission.warnings);
    Ok(admission.object)
}

/// Checks the request against the cluster.
async fn spec(
    server: &Arc<ApiServer>,
    target: &Target,
    account: &Value,
    object: &Value,
) -> Result<TokenSpec, ApiError> {
    let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let expiration_seconds = seconds.map_or(Ok(DEFAULT), u64::try_from).unwrap_or(0);
    let mut errors = FieldErrors::default();
    if expiration_seconds < SHORTEST {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            seconds.unwrap_or(0),
            "may not specify a duration less than 10 minutes",
        ));
    } else if expiration_seconds > LONGEST {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            expiration_seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if !errors.is_empty() {
        let kind = GroupKind::new("authentication.k8s.io", "TokenRequest");
        return Err(ApiError::invalid(&kind, "", errors));
    }
    let audiences = object.pointer("/spec/audiences").and_then(Value::as_array);
    let audiences = audiences
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let mut spec = TokenSpec {
        namespace: target.namespace.clone().unwrap_or_default(),
        service_account: target.name.clone(),
        service_account_uid: metadata::text(account, "uid").to_owned(),
        audiences,
        expiration_seconds,
        bound: None,
        node: None,
    };
    if let Some(reference) = object.pointer("/spec/boundObjectRef").filter(|r| !r.is_null()) {
        bind(server, target, reference, &mut spec).await?;
    }
    Ok(spec)
}

/// Looks up what the token is to be bound to.
async fn bind(
    server: &Arc<ApiServer>,
    target: &Target,
    reference: &Value,
    spec: &mut TokenSpec,
) -> Result<(), ApiError> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let (resource, namespace) = match (text("apiVersion"), kind) {
        ("v1", "Pod") => ("pods", target.namespace.as_deref()),
        ("v1", "Secret") => ("secrets", target.namespace.as_deref()),
        ("v1", "Node") => ("nodes", None),
        (version, _) => {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for object of type {version}, Kind={kind}"
            )));
        }
    };
    let resource = GroupResource::new("", resource);
    let found = server.reader.get_consistent(&resource, namespace, name).await?;
    let found: Value = match found {
        Some(found) => serde_json::from_slice(&found.json).map_err(ApiError::internal)?,
        None => return Err(ApiError::not_found(&resource, name)),
    };
    let found_uid = metadata::text(&found, "uid");
    if !uid.is_empty() && uid != found_uid {
        return Err(ApiError::conflict(
            &resource,
            name,
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    if kind == "Pod" {
        let account = found
            .pointer("/spec/serviceAccountName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if account != target.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                target.name
            )));
        }
        spec.node = node_of(server, &found).await?;
    }
    spec.bound = Some(BoundObject {
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: found_uid.to_owned(),
    });
    Ok(())
}

async fn node_of(server: &Arc<ApiServer>, pod: &Value) -> Result<Option<(String, String)>, ApiError> {
    let Some(name) = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .filter(|n| !n.is_empty())
    else {
        return Ok(None);
    };
    let nodes = GroupResource::new("", "nodes");
    let Some(node) = server.reader.get_consistent(&nodes, None, name).await? else {
        return Ok(None);
    };
    let node: Value = serde_json::from_slice(&node.json).map_err(ApiError::internal)?;
    Ok(Some((name.to_owned(), metadata::text(&node, "uid").to_owned())))
}
