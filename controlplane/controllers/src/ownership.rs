//! Who controls what: controller references, adoption of orphans and release of strays.

use std::sync::Arc;

use minato_api::kube::{Api, Resource};
use minato_api::meta_v1::{ObjectMeta, OwnerReference};
use minato_meta::LabelSelector;
use minato_runtime::{Informer, Object};
use serde_json::json;

use crate::error::{Error, Result, is_not_found};
use crate::ops;

/// Index of objects without a controller, by namespace.
const ORPHANS: &str = "orphan";

/// The reference to the controller, if there is one.
pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Whether `meta` is controlled by the object with this uid.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller(meta).is_some_and(|owner| owner.uid == uid)
}

/// A controller reference to `owner`.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: ops::name(owner.meta()).to_owned(),
        uid: ops::uid(owner.meta()).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Adds the indexes that [`claim`] reads.
pub(crate) fn add_indexes<K: Object>(informer: &Informer<K>) {
    informer.index_by_controller();
    informer.add_index(ORPHANS, |object| {
        let orphan = controller(object.meta()).is_none();
        orphan
            .then(|| ops::namespace(object.meta()).to_owned())
            .into_iter()
            .collect()
    });
}

/// The objects of a namespace that nobody controls.
pub(crate) fn orphans<K: Object>(informer: &Informer<K>, namespace: &str) -> Vec<Arc<K>> {
    informer.indexed(ORPHANS, namespace)
}

/// The dependents that `owner` has or should have: those it controls, less those its selector no longer matches
/// (they are released), plus orphans that it matches (they are adopted).
pub(crate) async fn claim<O, K>(
    owner: &O,
    owners: &Api<O>,
    selector: &LabelSelector,
    dependents: &Informer<K>,
    api: &Api<K>,
    may_adopt: impl Fn(&K) -> bool,
) -> Result<Vec<Arc<K>>>
where
    O: Object,
    K: Object,
{
    claim_with(owner, owners, selector, dependents, api, may_adopt, None).await
}

/// [`claim`] for an owner that holds its dependents by a finalizer: what is adopted gets it, what is released loses it.
pub(crate) async fn claim_with<O, K>(
    owner: &O,
    owners: &Api<O>,
    selector: &LabelSelector,
    dependents: &Informer<K>,
    api: &Api<K>,
    may_adopt: impl Fn(&K) -> bool,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<K>>>
where
    O: Object,
    K: Object,
{
    let meta = owner.meta();
    let matches = |object: &K| match &object.meta().labels {
        Some(labels) => selector.matches_map(labels),
        None => selector.matches_map(&Default::default()),
    };
    let deleting = meta.deletion_timestamp.is_some();
    let mut claimed = Vec::new();
    for object in dependents.controlled_by(ops::uid(meta)) {
        if matches(&object) {
            claimed.push(object);
        } else if !deleting {
            release_with(api, object.meta(), ops::uid(meta), finalizer).await?;
        }
    }
    if deleting {
        return Ok(claimed);
    }
    let mut confirmed = false;
    for object in orphans(dependents, ops::namespace(meta)) {
        if object.meta().deletion_timestamp.is_some() || !matches(&object) || !may_adopt(&object) {
            continue;
        }
        if !confirmed {
            confirm(owner, owners).await?;
            confirmed = true;
        }
        if let Some(adopted) = adopt(api, object.meta(), reference(owner), finalizer).await? {
            claimed.push(Arc::new(adopted));
        }
    }
    Ok(claimed)
}

/// The cache may not know yet that the owner is being deleted or was replaced: ask before adopting.
async fn confirm<O: Object>(owner: &O, owners: &Api<O>) -> Result<()> {
    let fresh = owners.get_opt(ops::name(owner.meta())).await?;
    let fresh = fresh.as_ref().map(Resource::meta);
    match fresh {
        Some(fresh) if fresh.uid == owner.meta().uid && fresh.deletion_timestamp.is_none() => Ok(()),
        _ => Err(Error::Behind("the owner is going or gone")),
    }
}

async fn adopt<K: Object>(
    api: &Api<K>,
    meta: &ObjectMeta,
    reference: OwnerReference,
    finalizer: Option<&str>,
) -> Result<Option<K>> {
    let mut owners = meta.owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != reference.uid);
    owners.push(reference);
    let mut patch = json!({"metadata": {"ownerReferences": owners}});
    if let Some(finalizer) = finalizer.filter(|finalizer| !ops::has_finalizer(meta, finalizer)) {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer.to_owned());
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    match ops::merge(api, meta, patch).await {
        Ok(adopted) => Ok(Some(adopted)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn release_with<K: Object>(api: &Api<K>, meta: &ObjectMeta, uid: &str, finalizer: Option<&str>) -> Result<()> {
    let owners: Vec<_> = meta
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.uid != uid)
        .collect();
    let mut patch = json!({"metadata": {"ownerReferences": owners}});
    if let Some(finalizer) = finalizer {
        let finalizers = meta.finalizers.iter().flatten();
        patch["metadata"]["finalizers"] = json!(finalizers.filter(|held| *held != finalizer).collect::<Vec<_>>());
    }
    match ops::merge(api, meta, patch).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
