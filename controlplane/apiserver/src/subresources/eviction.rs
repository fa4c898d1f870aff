//! `pods/eviction`: a delete that disruption budgets may refuse.
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use jiff::Timestamp;
use minato_admission::{AdmissionRequest, Operation};
use minato_meta::{
    ApiError, Cause, ErrorKind, GroupResource, GroupVersionKind, GroupVersionResource, LabelSelector, format_time,
};
use minato_storage::ListRequest;
use serde_json::{Value, json};

use super::success;
use crate::endpoints::options::{DeleteOptions, WriteOptions};
use crate::endpoints::transaction::{self, Change, Effects, Stored, Transform, store_error};
use crate::endpoints::{Target, decode, delete, metadata, pipeline};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Pods that a budget may have in the air at once; beyond it the disruption controller has lost track.
const MOST_DISRUPTED: usize = 2000;
const RETRY_SECONDS: u32 = 10;

/// Evicts a pod.
///
/// # Errors
/// 404 for an absent pod, 429 when a budget refuses, 500 when two budgets claim the pod.
pub(super) async fn create(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "CreateOptions")?;
    let body = request.read_body().await?;
    let eviction = checked(decode::tree(&body, decode::media_type(&request))?.value, &target)?;
    let mut delete_options = match eviction.get("deleteOptions").filter(|o| !o.is_null()) {
        Some(options) => DeleteOptions::from_object(options.clone())?,
        None => DeleteOptions::default(),
    };
    delete_options.dry_run |= options.dry_run;
    admit(server, &request, &target, eviction, delete_options.dry_run).await?;
    let pod_target = Target {
        subresource: String::new(),
        ..target
    };
    let pod = transaction::read(server, &pod_target)
        .await?
        .ok_or_else(|| pod_target.not_found())?;
    if !needs_no_budget(&pod.object)
        && let Some(budget) = budget_of(server, &pod.object, &pod_target).await?
    {
        spend(server, &budget, &pod.object, &pod_target, delete_options.dry_run).await?;
    }
    if delete_options.precondition_uid.is_none() {
        // The pod that the budget was asked about, and no namesake that came after it.
        delete_options.precondition_uid = Some(metadata::text(&pod.object, "uid").to_owned());
    }
    delete::delete_object(server, &pod_target, &request.user, &request.warnings, &delete_options).await?;
    success(StatusCode::CREATED)
}

/// `policy/v1`, and the retired `policy/v1beta1`, which old clients still send.
fn checked(mut eviction: Value, target: &Target) -> Result<Value, ApiError> {
    let kind = GroupVersionKind::new("policy", "v1", "Eviction");
    if eviction.get("apiVersion").and_then(Value::as_str) == Some("policy/v1beta1") {
        eviction["apiVersion"] = json!("policy/v1");
    }
    decode::stamp_kind(&mut eviction, &kind)?;
    if let Some(schema) = minato_schema::builtin().kind_reference(&kind) {
        minato_schema::check(&eviction, &schema).map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    metadata::settle_namespace(&mut eviction, target)?;
    let name = metadata::text(&eviction, "name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    Ok(eviction)
}

async fn admit(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    eviction: Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    let mut admission = AdmissionRequest {
        operation: Operation::Create,
        kind: GroupVersionKind::new("policy", "v1", "Eviction"),
        resource: target.resource.gvr.clone(),
        subresource: "eviction",
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: &target.name,
        user: &request.user,
        dry_run,
        object: eviction,
        old_object: &Value::Null,
        options: Value::Null,
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    pipeline::admit(server, &mut admission).await?;
    pipeline::validate(server, &mut admission).await?;
    request.warnings.extend(admission.warnings);
    Ok(())
}

/// Pods whose end disturbs nobody.
fn needs_no_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    metadata::is_deleting(pod) || matches!(phase, "Succeeded" | "Failed" | "Pending")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The budget that guards a pod, if any.
async fn budget_of(server: &Arc<ApiServer>, pod: &Value, target: &Target) -> Result<Option<Target>, ApiError> {
    let gvr = GroupVersionResource::new("policy", "v1", "poddisruptionbudgets");
    let Some(resource) = server.registry.get(&gvr) else {
        return Ok(None);
    };
    let namespace = target.namespace.clone().unwrap_or_default();
    let list = ListRequest {
        prefix: minato_storage::key::namespace_prefix(&resource.storage, &namespace),
        ..ListRequest::default()
    };
    let mut found = Vec::new();
    for kv in server.store.list(list).await.map_err(store_error)?.items {
        let budget = minato_storage::object::decode(&kv.value, kv.mod_revision).map_err(ApiError::internal)?;
        let selector = budget.pointer("/spec/selector").cloned().unwrap_or_default();
        if LabelSelector::from_object(&selector).is_ok_and(|s| s.matches_object(pod)) {
            found.push(metadata::text(&budget, "name").to_owned());
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some(Target {
            resource,
            namespace: target.namespace.clone(),
            name: name.clone(),
            subresource: "status".to_owned(),
        })),
        _ => Err(ApiError::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
    }
}

/// Takes one disruption from a budget.
async fn spend(
    server: &Arc<ApiServer>,
    budget: &Target,
    pod: &Value,
    pod_target: &Target,
    dry_run: bool,
) -> Result<(), ApiError> {
    let mut transform = Spend {
        budget,
        pod: &pod_target.name,
        ready: is_ready(pod),
    };
    match transaction::run(server, budget, dry_run, &mut transform).await {
        // A budget that has gone meanwhile guards nothing.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

struct Spend<'a> {
    budget: &'a Target,
    pod: &'a str,
    ready: bool,
}

#[async_trait]
impl Transform for Spend<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.budget.not_found())?;
        let number = |path: &str| current.object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let (healthy, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
        if !self.ready {
            let always = current.object.pointer("/spec/unhealthyPodEvictionPolicy") == Some(&json!("AlwaysAllow"));
            if always || healthy >= desired && desired > 0 {
                return Ok(Change::Keep);
            }
        }
        let name = &self.budget.name;
        if number("/status/observedGeneration") < number("/metadata/generation") {
            return Err(refusal(format!(
                "The disruption budget {name} is still being processed by the server."
            )));
        }
        let forbidden = |why: String| {
            let resource = GroupResource::new("policy", "poddisruptionbudgets");
            Err(ApiError::forbidden(&resource, name, why))
        };
        let allowed = number("/status/disruptionsAllowed");
        if allowed < 0 {
            return forbidden("pdb disruptions allowed is negative".to_owned());
        }
        let disrupted = current
            .object
            .pointer("/status/disruptedPods")
            .and_then(Value::as_object);
        if disrupted.is_some_and(|d| d.len() > MOST_DISRUPTED) {
            return forbidden(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller".to_owned(),
            );
        }
        if allowed == 0 {
            return Err(refusal(format!(
                "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
            )));
        }
        let mut object = current.object.clone();
        object["status"]["disruptionsAllowed"] = json!(allowed - 1);
        object["status"]["disruptedPods"][self.pod] = json!(format_time(Timestamp::now()));
        Ok(Change::Put {
            object,
            effects: Effects::default(),
        })
    }
}

fn refusal(why: String) -> ApiError {
    ApiError::new(
        ErrorKind::TooManyRequests,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
    .with_retry_after(RETRY_SECONDS)
    .with_cause(Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    })
}
