//! Mirror pods: what the API shows of a static pod.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::api::{DeleteParams, PostParams, Preconditions};
use minato_api::kube::{Api, Client};
use minato_api::meta_v1::{ObjectMeta, OwnerReference};

use crate::client::api_code;
use crate::pods::keys;

fn hash(pod: &Pod, key: &str) -> Option<String> {
    pod.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned()
}

/// The mirror of a static pod, owned by its node.
fn mirror_of(pod: &Pod, node: &Node) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = hash(pod, keys::CONFIG_HASH).unwrap_or_default();
    annotations.insert(keys::MIRROR.to_owned(), hash);
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.metadata.name.clone().unwrap_or_default(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}

async fn remove(api: &Api<Pod>, mirror: &Pod) -> Result<(), minato_api::kube::Error> {
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: mirror.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = mirror.metadata.name.as_deref().unwrap_or_default();
    match api.delete(name, &parameters).await {
        Err(error) if !matches!(api_code(&error), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}

/// The pod of that name, if there is one on this node: of others a node is told nothing.
async fn find(api: &Api<Pod>, name: &str) -> Result<Option<Pod>, minato_api::kube::Error> {
    match api.get_opt(name).await {
        Err(error) if api_code(&error) == Some(403) => Ok(None),
        other => other,
    }
}

/// The mirror of `pod` in the API, made if it is not there or shows another pod.
pub(super) async fn ensure(client: &Client, pod: &Pod, node: &Arc<Node>) -> Result<Pod, minato_api::kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let mirror = mirror_of(pod, node);
    let made = api.create(&PostParams::default(), &mirror).await;
    let Some(409) = made.as_ref().err().and_then(api_code) else {
        return made;
    };
    let Some(there) = find(&api, name).await? else {
        return made;
    };
    let same = hash(&there, keys::MIRROR) == hash(pod, keys::CONFIG_HASH);
    if same && there.metadata.deletion_timestamp.is_none() {
        return Ok(there);
    }
    // A pod of that name that is none of ours is left alone.
    if hash(&there, keys::MIRROR).is_none() {
        return made;
    }
    remove(&api, &there).await?;
    api.create(&PostParams::default(), &mirror).await
}

/// Removes the mirror of a static pod that has ended.
pub(crate) async fn remove_mirror(client: &Client, pod: &Pod) -> Result<(), minato_api::kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
    let there = find(&api, pod.metadata.name.as_deref().unwrap_or_default()).await?;
    match there.filter(|there| hash(there, keys::MIRROR) == hash(pod, keys::CONFIG_HASH)) {
        Some(there) => remove(&api, &there).await,
        None => Ok(()),
    }
}
