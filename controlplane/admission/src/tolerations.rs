//! `DefaultTolerationSeconds` and `TaintNodesByCondition`.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>.

use async_trait::async_trait;
use minato_meta::ApiError;
use serde_json::{Value, json};

use crate::objects::{is_pods, list, spec, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How long a pod stays on a node that is lost.
const SECONDS: u32 = 300;

/// Pods stay on a node that is not ready or unreachable for five minutes, unless they say otherwise.
pub struct DefaultTolerationSeconds;

#[async_trait]
impl AdmissionPlugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_pods(request) && matches!(request.operation, Operation::Create | Operation::Update)
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let missing: Vec<&str> = [NOT_READY, UNREACHABLE]
            .into_iter()
            .filter(|key| {
                let tolerated = |toleration: &Value| {
                    let (of, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
                    (of == *key || of.is_empty()) && (effect == "NoExecute" || effect.is_empty())
                };
                !list(&request.object, "/spec/tolerations").iter().any(tolerated)
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(fields) = spec(&mut request.object)
            && let Some(tolerations) = fields.entry("tolerations").or_insert_with(|| json!([])).as_array_mut()
        {
            let toleration =
                |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
            tolerations.extend(missing.into_iter().map(toleration));
        }
        Ok(())
    }
}

/// A new node takes no pods until somebody has seen that it is ready.
pub struct TaintNodesByCondition;

#[async_trait]
impl AdmissionPlugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Create
            && request.resource.group.is_empty()
            && request.resource.resource == "nodes"
            && request.subresource.is_empty()
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let there = |taint: &Value| text(taint, "/key") == NOT_READY && text(taint, "/effect") == "NoSchedule";
        if list(&request.object, "/spec/taints").iter().any(there) {
            return Ok(());
        }
        if let Some(fields) = spec(&mut request.object)
            && let Some(taints) = fields.entry("taints").or_insert_with(|| json!([])).as_array_mut()
        {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}
