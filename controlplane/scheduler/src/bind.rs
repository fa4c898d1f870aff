//! Carries a decision out, and tells when there is none.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Binding, ObjectReference, Pod};
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use minato_api::kube::{self, Api, Client};
use minato_api::meta_v1::ObjectMeta;
use serde_json::json;

use crate::pod::{self, PodInfo};
use crate::preemption;

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
    (reason, message): (&str, &str),
    nomination: &Nomination,
) -> Result<(), kube::Error> {
    let api = pods(client, pod);
    for attempt in 1.. {
        if seen.metadata.uid.as_deref() != Some(pod.uid.as_str()) || pod::node_name(&seen).is_some() {
            return Ok(());
        }
        let Some(patch) = status_patch(&seen, reason, message, nomination) else {
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

/// What becomes of a pod's `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Nomination {
    Keep,
    Clear,
    To(String),
}

/// What to change so that the pod's status says it; `None` if it does.
fn status_patch(pod: &Pod, reason: &str, message: &str, nomination: &Nomination) -> Option<serde_json::Value> {
    let now = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_deref());
    let now = now.filter(|name| !name.is_empty());
    let nominate = match nomination {
        Nomination::Keep => None,
        Nomination::Clear => now.map(|_| serde_json::Value::Null),
        Nomination::To(node) => (now != Some(node)).then(|| json!(node)),
    };
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let old = conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let is = |field: Option<&String>, text: &str| field.map(String::as_str) == Some(text);
    if old.is_some_and(|old| is(old.reason.as_ref(), reason) && is(old.message.as_ref(), message)) && nominate.is_none()
    {
        return None;
    }
    let since = old.and_then(|old| old.last_transition_time.clone());
    let since = since.unwrap_or_else(|| minato_api::meta_v1::Time(jiff::Timestamp::now()));
    let mut patch = json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": since,
        }]},
    });
    if let Some(node) = nominate {
        patch["status"]["nominatedNodeName"] = node;
    }
    Some(patch)
}

/// Tells a pod to go, gracefully, with the reason in its status first. A pod that is gone or made anew is let be.
pub(crate) async fn preempt(client: &Client, victim: &PodInfo, scheduler: &str) -> Result<(), kube::Error> {
    let gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
    let api = pods(client, victim);
    let patch = json!({
        "metadata": {"uid": victim.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": preemption::REASON,
            "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
            "lastTransitionTime": minato_api::meta_v1::Time(jiff::Timestamp::now()),
        }]},
    });
    let patched = api
        .patch_status(&victim.key.name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await;
    match patched {
        Err(error) if gone(&error) => return Ok(()),
        other => drop(other?),
    }
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(victim.uid.clone()),
        resource_version: None,
    });
    match api.delete(&victim.key.name, &params).await {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Takes back that room is made for the pod, as one that matters more takes it.
pub(crate) async fn clear_nomination(client: &Client, pod: &PodInfo) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": null}});
    let patched = pods(client, pod)
        .patch_status(&pod.key.name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await;
    match patched {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.map(drop),
    }
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
        let patch = status_patch(&pod, "Unschedulable", "new", &Nomination::Keep).unwrap_or_default();
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        // It has been so since then; only the words are new.
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition["message"], "new");
        assert_eq!(status_patch(&pod, "Unschedulable", "old", &Nomination::Keep), None);
        assert_eq!(status_patch(&pod, "Unschedulable", "old", &Nomination::Clear), None);
        let to = status_patch(&pod, "Unschedulable", "old", &Nomination::To("n".to_owned())).unwrap_or_default();
        assert_eq!(to["status"]["nominatedNodeName"], "n");
        pod.status = None;
        assert!(status_patch(&pod, "Unschedulable", "old", &Nomination::Keep).is_some());
    }
}
