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
use crate::endpoints::transaction::{self, Change, Effects, Outcome, Stored, Transform, store_error};
use crate::endpoints::{Target, decode, delete, metadata, pipeline};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Pods that a budget may have in the air at once; beyond it the disruption controller has lost track.
const MOST_DISRUPTED: usize = 2000;
/// After which a client may ask again about a budget that nobody has counted yet.
const RETRY_SECONDS: u32 = 10;
/// Changes of a pod between our look and its deletion, in a row, before we give up.
const MOST_RACES: usize = 20;

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
    evict(server, &request, &pod_target, &delete_options).await?;
    success(StatusCode::CREATED)
}

/// What stands behind an eviction.
enum Leave {
    /// No budget guards the pod as it is: finished, on its way out, or not begun.
    Unguarded,
    /// A budget gave it, or none guards pods like this.
    Given,
    /// The pod is not ready, and takes nothing from the budget of this name as long as it is not.
    Unready(String),
}

async fn evict(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    for _ in 0..MOST_RACES {
        let pod = transaction::read(server, target)
            .await?
            .ok_or_else(|| target.not_found())?;
        // Before a budget pays for it.
        delete::check_preconditions(target, options, &pod)?;
        let leave = leave(server, &pod.object, target, options.dry_run).await?;
        let mut exact = options.clone();
        if exact.precondition_uid.is_none() {
            // The pod that the budget was asked about, and no namesake that came after it.
            exact.precondition_uid = Some(metadata::text(&pod.object, "uid").to_owned());
        }
        let may_wake = match &leave {
            Leave::Unguarded => !is_over(&pod.object),
            Leave::Given => false,
            Leave::Unready(_) => true,
        };
        // A pod that became ready meanwhile is guarded: only the state that we saw may go.
        let pinned = may_wake && exact.precondition_revision.is_none();
        if pinned {
            exact.precondition_revision = Some(pod.revision.to_string());
        }
        let deleted = delete::delete_changed(server, target, &request.user, &request.warnings, &exact, mark);
        match (deleted.await, leave) {
            (Err(error), Leave::Unguarded) if pinned && error.kind() == ErrorKind::Conflict => {}
            (Err(error), Leave::Unready(budget)) if pinned && error.kind() == ErrorKind::Conflict => {
                return Err(unprocessed(&budget));
            }
            (outcome, _) => return outcome.map(drop),
        }
    }
    Err(ApiError::stale(&target.resource.gvr.group_resource(), &target.name))
}

async fn leave(server: &Arc<ApiServer>, pod: &Value, target: &Target, dry_run: bool) -> Result<Leave, ApiError> {
    if is_over(pod) || phase(pod) == "Pending" {
        return Ok(Leave::Unguarded);
    }
    match budget_of(server, pod, target).await? {
        None => Ok(Leave::Given),
        Some(budget) => spend(server, budget, pod, target, dry_run).await,
    }
}

/// Says on the pod that it goes for no fault of its own.
fn mark(pod: &mut Value) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    set_condition(pod, condition);
}

/// Puts a condition into a status. Its time is kept while its status is the same.
fn set_condition(object: &mut Value, mut condition: Value) {
    let now = json!(format_time(Timestamp::now()));
    let list = &mut object["status"]["conditions"];
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let known = list.iter_mut().find(|known| known["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &known {
        Some(known) if known["status"] == condition["status"] => known["lastTransitionTime"].clone(),
        _ => now,
    };
    match known {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
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
    if name != target.name {
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

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
}

/// Finished, or on its way out: nothing can bring it back.
fn is_over(pod: &Value) -> bool {
    metadata::is_deleting(pod) || matches!(phase(pod), "Succeeded" | "Failed")
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
        _ => Err(ApiError::new(
            ErrorKind::InternalError,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
    }
}

/// Takes one disruption from a budget, unless the pod is none that it counts.
async fn spend(
    server: &Arc<ApiServer>,
    budget: Target,
    pod: &Value,
    pod_target: &Target,
    dry_run: bool,
) -> Result<Leave, ApiError> {
    let mut transform = Spend {
        budget: &budget,
        pod: &pod_target.name,
        ready: is_ready(pod),
    };
    match transaction::run(server, &budget, dry_run, &mut transform).await {
        // A budget that has gone meanwhile guards nothing.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Leave::Given),
        Err(error) => Err(error),
        Ok(Outcome::Kept(_)) => Ok(Leave::Unready(budget.name)),
        Ok(_) => Ok(Leave::Given),
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
        if !self.ready && lets_unready_go(&current.object) {
            return Ok(Change::Keep);
        }
        let object = spent(&current.object, self.pod)?;
        Ok(Change::Put {
            object,
            effects: Effects::default(),
        })
    }
}

fn number(budget: &Value, path: &str) -> i64 {
    budget.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether pods that are not ready may go at no cost: always if the budget says so, else while enough others are.
fn lets_unready_go(budget: &Value) -> bool {
    let (healthy, desired) = (
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    let always = budget.pointer("/spec/unhealthyPodEvictionPolicy") == Some(&json!("AlwaysAllow"));
    always || healthy >= desired && desired > 0
}

/// The budget after one more disruption.
fn spent(budget: &Value, pod: &str) -> Result<Value, ApiError> {
    let name = metadata::text(budget, "name");
    let observed = number(budget, "/status/observedGeneration");
    if observed < number(budget, "/metadata/generation") {
        return Err(unprocessed(name));
    }
    let forbidden = |why: &str, cause: &str| {
        let resource = GroupResource::new("policy", "poddisruptionbudget");
        let cause = format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
        Err(because(ApiError::forbidden(&resource, name, why), cause))
    };
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return forbidden(why, why);
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    if disrupted.is_some_and(|disrupted| disrupted.len() > MOST_DISRUPTED) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(because(too_many(), exhausted(budget)));
    }
    let mut object = budget.clone();
    object["status"]["disruptionsAllowed"] = json!(allowed - 1);
    object["status"]["disruptedPods"][pod] = json!(format_time(Timestamp::now()));
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": observed,
        });
        set_condition(&mut object, condition);
    }
    Ok(object)
}

/// Why a budget allows nothing.
fn exhausted(budget: &Value) -> String {
    let name = metadata::text(budget, "name");
    let (healthy, desired) = (
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let told = conditions.find(|condition| condition["type"] == "DisruptionAllowed");
    let told = told.filter(|condition| condition["status"] == "False" && !text(condition, "message").is_empty());
    let none = format!("The disruption budget {name} does not allow evicting pods currently");
    match told.map(|condition| (text(condition, "reason"), text(condition, "message"))) {
        // The numbers are not to be trusted then.
        Some((reason, message)) if reason == "SyncFailed" => format!("{none} because it failed sync: {message}"),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => format!("{none} ({reason}): {message}"),
        None => none,
    }
}

fn too_many() -> ApiError {
    ApiError::new(
        ErrorKind::TooManyRequests,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
}

/// The refusal for a budget of which nobody knows yet what it allows.
fn unprocessed(budget: &str) -> ApiError {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    because(too_many().with_retry_after(RETRY_SECONDS), why)
}

fn because(error: ApiError, why: String) -> ApiError {
    error.with_cause(Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": status})
    }

    fn refused(status: Value) -> (u16, String, String) {
        let status = serde_json::to_value(spent(&budget(status), "p").unwrap_err().to_status()).unwrap();
        (
            u16::try_from(status["code"].as_u64().unwrap()).unwrap(),
            status["message"].as_str().unwrap().to_owned(),
            status["details"]["causes"][0]["message"].as_str().unwrap().to_owned(),
        )
    }

    #[test]
    fn a_budget_says_why_it_refuses() {
        let (code, message, cause) = refused(json!({"observedGeneration": 1, "disruptionsAllowed": 5}));
        assert_eq!(
            (code, cause.as_str()),
            (429, "The disruption budget b is still being processed by the server.")
        );
        assert_eq!(
            message,
            "Cannot evict pod as it would violate the pod's disruption budget."
        );
        let (code, message, _) = refused(json!({"observedGeneration": 2, "disruptionsAllowed": -1}));
        assert_eq!(code, 403);
        assert_eq!(
            message,
            "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative"
        );
        let pods: serde_json::Map<String, Value> = (0..=MOST_DISRUPTED).map(|i| (i.to_string(), json!(""))).collect();
        let (code, _, cause) =
            refused(json!({"observedGeneration": 2, "disruptionsAllowed": 1, "disruptedPods": pods}));
        assert_eq!(code, 403);
        assert!(cause.ends_with("too many pending evictions not confirmed by PDB controller"));
        let none = |conditions: Value, healthy: i64| {
            let status = json!({"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": healthy,
                "desiredHealthy": 2, "conditions": conditions});
            refused(status).2
        };
        let condition = |reason: &str, message: &str| json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message}]);
        assert_eq!(
            none(json!([]), 2),
            "The disruption budget b needs 2 healthy pods and has 2 currently"
        );
        let failed = "The disruption budget b does not allow evicting pods currently because it failed sync: x";
        assert_eq!(none(condition("SyncFailed", "x"), 2), failed);
        assert_eq!(
            none(json!([]), 3),
            "The disruption budget b does not allow evicting pods currently"
        );
        let other = "The disruption budget b does not allow evicting pods currently (Why): x";
        assert_eq!(none(condition("Why", "x"), 3), other);
    }

    #[test]
    fn the_last_disruption_turns_the_condition() {
        let given = spent(&budget(json!({"observedGeneration": 2, "disruptionsAllowed": 2})), "p").unwrap();
        assert_eq!(given["status"]["disruptionsAllowed"], 1);
        assert_eq!(given["status"].get("conditions"), None);
        let last = spent(&given, "q").unwrap();
        let disrupted = last["status"]["disruptedPods"].as_object().unwrap();
        assert_eq!(disrupted.keys().collect::<Vec<_>>(), ["p", "q"]);
        let condition = &last["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!("InsufficientPods"))
        );
    }

    #[test]
    fn unready_pods_are_free_where_enough_others_are_healthy() {
        let of = |healthy: i64, desired: i64, policy: Value| {
            let mut budget = budget(json!({"currentHealthy": healthy, "desiredHealthy": desired}));
            budget["spec"]["unhealthyPodEvictionPolicy"] = policy;
            lets_unready_go(&budget)
        };
        assert!(of(2, 2, json!("IfHealthyBudget")) && of(2, 2, Value::Null));
        assert!(!of(1, 2, json!("IfHealthyBudget")) && !of(0, 0, Value::Null));
        assert!(of(0, 2, json!("AlwaysAllow")));
    }

    #[test]
    fn a_condition_keeps_its_time() {
        let mut pod = json!({"status": {"conditions": [
            {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "then"}, {"type": "Ready"}]}});
        mark(&mut pod);
        let condition = &pod["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "then");
        assert_eq!(condition["reason"], "EvictionByEvictionAPI");
        pod["status"]["conditions"][0]["status"] = json!("False");
        mark(&mut pod);
        assert_ne!(pod["status"]["conditions"][0]["lastTransitionTime"], "then");
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 2);
    }
}
