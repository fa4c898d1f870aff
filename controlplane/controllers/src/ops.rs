//! The requests that controllers send, in their safe forms: deletes name the uid they mean, patches the revision.

use std::future::Future;

use futures::stream::{FuturesUnordered, StreamExt};
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use minato_api::kube::{self, Api, Client, Resource};
use minato_api::meta_v1::ObjectMeta;
use minato_runtime::Object;
use serde_json::{Value, json};

use crate::error::{code, is_not_found};

/// The API of a namespaced kind.
pub(crate) fn namespaced<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Object + Resource<Scope = minato_api::k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

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

pub(crate) fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|present| present == finalizer)
}

/// Deletes exactly the object with this uid. That it is gone already, or replaced by another, is success.
pub(crate) async fn delete<K: Object>(api: &Api<K>, meta: &ObjectMeta) -> Result<(), kube::Error> {
    delete_with(api, meta, DeleteParams::default()).await
}

/// [`delete`] with its dependents left to the garbage collector.
pub(crate) async fn delete_background<K: Object>(api: &Api<K>, meta: &ObjectMeta) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    delete_with(api, meta, params).await
}

/// [`delete`] with further options.
pub(crate) async fn delete_with<K>(api: &Api<K>, meta: &ObjectMeta, params: DeleteParams) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = params.preconditions(Preconditions {
        uid: meta.uid.clone(),
        resource_version: None,
    });
    match api.delete(name(meta), &params).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Merge-patches the object if it is still at the revision that `meta` shows.
pub(crate) async fn merge<K: Object>(api: &Api<K>, meta: &ObjectMeta, patch: Value) -> Result<K, kube::Error> {
    let patch = with_revision(meta, patch);
    api.patch(name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

/// [`merge`] of the status.
pub(crate) async fn merge_status<K: Object>(api: &Api<K>, meta: &ObjectMeta, patch: Value) -> Result<K, kube::Error> {
    let patch = with_revision(meta, patch);
    api.patch_status(name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

fn with_revision(meta: &ObjectMeta, mut patch: Value) -> Value {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".to_owned(), json!(meta.uid));
            metadata.insert("resourceVersion".to_owned(), json!(meta.resource_version));
        }
    }
    patch
}

/// Takes a finalizer off. The object being gone is success.
pub(crate) async fn remove_finalizer<K: Object>(
    api: &Api<K>,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<(), kube::Error> {
    if !has_finalizer(meta, finalizer) {
        return Ok(());
    }
    let kept: Vec<_> = meta
        .finalizers
        .iter()
        .flatten()
        .filter(|present| *present != finalizer)
        .collect();
    let patch = json!({"metadata": {"finalizers": kept}});
    match merge(api, meta, patch).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Puts a finalizer on.
pub(crate) async fn add_finalizer<K: Object>(
    api: &Api<K>,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<(), kube::Error> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer.to_owned());
    merge(api, meta, json!({"metadata": {"finalizers": finalizers}}))
        .await
        .map(drop)
}

/// Runs `job` for 0 to `count`, in batches that double as long as all succeed: when a quota or a webhook refuses the
/// first, the rest is not even tried. Returns how many were tried and the first error.
pub(crate) async fn slow_start<E, F>(count: usize, job: impl Fn(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let mut tried = 0;
    let mut batch = 1;
    while tried < count {
        let size = batch.min(count - tried);
        let mut running: FuturesUnordered<F> = (tried..tried + size).map(&job).collect();
        let mut failure = None;
        while let Some(outcome) = running.next().await {
            if let Err(error) = outcome {
                failure.get_or_insert(error);
            }
        }
        tried += size;
        if failure.is_some() {
            return (tried, failure);
        }
        batch *= 2;
    }
    (tried, None)
}

/// Runs all, and returns the first error.
pub(crate) async fn all<E>(jobs: impl IntoIterator<Item = impl Future<Output = Result<(), E>>>) -> Result<(), E> {
    let mut running: FuturesUnordered<_> = jobs.into_iter().collect();
    let mut result = Ok(());
    while let Some(outcome) = running.next().await {
        if result.is_ok() {
            result = outcome;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_slow_start_stops_after_the_batch_that_fails() {
        let begun = Mutex::new(Vec::new());
        let (tried, error) = slow_start(100, |i| {
            begun.lock().push(i);
            async move { if i == 2 { Err("no") } else { Ok(()) } }
        })
        .await;
        // Batches of 1 and 2; index 2 is in the second.
        assert_eq!((tried, error), (3, Some("no")));
        assert_eq!(*begun.lock(), [0, 1, 2]);
        let (tried, error) = slow_start(100, |_| async { Ok::<_, &str>(()) }).await;
        assert_eq!((tried, error), (100, None));
    }
}
