//! Carries a decision out, and tells when there is none.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Binding, ObjectReference, Pod};
use minato_api::kube::api::{Patch, PatchParams, PostParams};
use minato_api::kube::{self, Api, Client};
use minato_api::meta_v1::ObjectMeta;
use serde_json::json;

use crate::pod::{self, PodInfo};

fn pods(client: &Client, pod: &PodInfo) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.key.namespace)
}

/// Gives the pod its node. The uid keeps a pod that was made anew under its name from getting the node of the old one.
pub(crate) async fn bind(client: &Client, pod: &PodInfo, node: &str) -> Result<(), kube::Error> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.key.name.clone()),
            namespace: Some(pod.key.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let params = PostParams::default();
    let _: serde_json::Value = pods(client, pod)
        .create_subresource("binding", &pod.key.name, &params, &binding)
        .await?;
    Ok(())
}

/// Times that a status is written against a pod that somebody else keeps changing.
const STATUS_ATTEMPTS: usize = 5;

/// Says in the pod's status why it has no node; `seen` is the pod as last seen. Nothing is written when that is what it
/// says already. What was decided must not land on a pod that got a node meanwhile: the write holds only for the version
/// that was looked at, and when that is not the newest one, the newest is looked at.
pub(crate) async fn say_unschedulable(
    client: &Client,
    pod: &PodInfo,
    mut seen: Arc<Pod>,
    reason: &str,
    message: &str,
) -> Result<(), kube::Error> {
    let api = pods(client, pod);
    for attempt in 1.. {
        if seen.metadata.uid.as_deref() != Some(pod.uid.as_str()) || pod::node_name(&seen).is_some() {
            return Ok(());
        }
        let Some(patch) = status_patch(&seen, reason, message) else {
            return Ok(());
        };
        let patched = api
            .patch_status(&pod.key.name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < STATUS_ATTEMPTS => {
                match api.get_opt(&pod.key.name).await? {
                    Some(newest) => seen = Arc::new(newest),
                    None => return Ok(()),
                }
            }
            other => return other.map(drop),
        }
    }
    Ok(())
}

/// What to change so that the pod's status says it; `None` if it does.
fn status_patch(pod: &Pod, reason: &str, message: &str) -> Option<serde_json::Value> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let old = conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let is = |field: Option<&String>, text: &str| field.map(String::as_str) == Some(text);
    if old.is_some_and(|old| is(old.reason.as_ref(), reason) && is(old.message.as_ref(), message)) {
        return None;
    }
    let since = old.and_then(|old| old.last_transition_time.clone());
    let since = since.unwrap_or_else(|| minato_api::meta_v1::Time(jiff::Timestamp::now()));
    Some(json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": since,
        }]},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_once_and_for_one_version() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "old", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap_or_default();
        let patch = status_patch(&pod, "Unschedulable", "new").unwrap_or_default();
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        // It has been so since then; only the words are new.
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition["message"], "new");
        assert_eq!(status_patch(&pod, "Unschedulable", "old"), None);
        pod.status = None;
        assert!(status_patch(&pod, "Unschedulable", "old").is_some());
    }
}
