//! What the controllers ask of objects, and the writes that they send.

use std::time::Duration;

use futures::StreamExt;
use minato_api::k8s::core::v1::{Node, NodeCondition, Taint};
use minato_api::kube::api::{Patch, PatchParams};
use minato_api::kube::{self, Api};
use minato_api::meta_v1::ObjectMeta;
use minato_provider_interface::{CloudError, CloudErrorKind, NodeRef, ProviderId};
use minato_runtime::Object;
use serde_json::{Value, json};

/// Requests to the API server that one pass has in flight.
const AT_ONCE: usize = 10;
/// Nodes that one cloud call asks for.
pub(crate) const PER_CALL: usize = 100;

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Taints of a node.
pub(crate) fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

pub(crate) fn condition<'n>(node: &'n Node, type_: &str) -> Option<&'n NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// A node as providers know it.
pub(crate) fn node_ref(node: &Node) -> NodeRef {
    NodeRef {
        name: name(&node.metadata).to_owned(),
        provider_id: provider_id(node).map(ProviderId::new),
    }
}

/// Merge-patches exactly the object with the uid of `meta`, whatever else changed of it meanwhile: for fields that are
/// ours alone.
pub(crate) async fn merge_status<K: Object>(api: &Api<K>, meta: &ObjectMeta, patch: Value) -> Result<K, kube::Error> {
    let patch = with_identity(patch, json!({"uid": meta.uid}));
    api.patch_status(name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

/// Merge-patches the object if it is still at the revision that `meta` shows.
pub(crate) async fn merge(api: &Api<Node>, meta: &ObjectMeta, patch: Value) -> Result<Node, kube::Error> {
    let patch = with_identity(
        patch,
        json!({"uid": meta.uid, "resourceVersion": meta.resource_version}),
    );
    api.patch(name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

/// [`merge`] through the status subresource.
pub(crate) async fn merge_status_at<K: Object>(
    api: &Api<K>,
    meta: &ObjectMeta,
    patch: Value,
) -> Result<K, kube::Error> {
    let patch = with_identity(
        patch,
        json!({"uid": meta.uid, "resourceVersion": meta.resource_version}),
    );
    api.patch_status(name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

fn with_identity(mut patch: Value, identity: Value) -> Value {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let (Some(metadata), Value::Object(identity)) = (metadata.as_object_mut(), identity) {
            metadata.extend(identity);
        }
    }
    patch
}

/// A cloud call that ends in time, one way or the other. What it did in the cloud by then is found there the next time.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CloudError>>,
) -> Result<T, CloudError> {
    let late = || CloudError::new(CloudErrorKind::Transient, "the cloud did not answer in time");
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(late()))
}

/// Runs all jobs, a few at a time, and collects what they give.
pub(crate) async fn gather<T>(jobs: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let jobs: Vec<_> = jobs.into_iter().collect();
    futures::stream::iter(jobs).buffer_unordered(AT_ONCE).collect().await
}

/// `period`, spread a little so that many clusters do not act in step.
pub(crate) fn jittered(period: Duration) -> Duration {
    period.mul_f64(rand::random_range(0.9..1.1))
}
