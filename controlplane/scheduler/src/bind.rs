//! Carries a decision out, and tells when there is none.

use minato_api::k8s::core::v1::{Binding, ObjectReference, Pod};
use minato_api::kube::api::{Patch, PatchParams, PostParams};
use minato_api::kube::{self, Api, Client};
use minato_api::meta_v1::ObjectMeta;
use serde_json::json;

use crate::pod::PodInfo;

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

/// Says in the pod's status why it has no node. Nothing is written when that is what it says already.
pub(crate) async fn say_unschedulable(
    client: &Client,
    pod: &PodInfo,
    reason: &str,
    message: &str,
) -> Result<(), kube::Error> {
    let conditions = pod
        .pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let old = conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled");
    let is = |field: Option<&String>, text: &str| field.map(String::as_str) == Some(text);
    if let Some(old) = old
        && old.status == "False"
        && is(old.reason.as_ref(), reason)
        && is(old.message.as_ref(), message)
    {
        return Ok(());
    }
    let now = jiff::Timestamp::now();
    let since = old
        .filter(|old| old.status == "False")
        .and_then(|old| old.last_transition_time.clone());
    let since = since.unwrap_or(minato_api::meta_v1::Time(now));
    let patch = json!({
        "metadata": {"uid": pod.uid},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": since,
        }]},
    });
    let patched = pods(client, pod)
        .patch_status(&pod.key.name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await;
    match patched {
        // Gone, or another pod by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.map(drop),
    }
}
