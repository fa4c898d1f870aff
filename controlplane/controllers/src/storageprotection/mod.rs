//! Volumes in use are not deleted: claims wait for the pods that use them, volumes for the claims that they are bound
//! to. A finalizer holds them until then.
//!
//! Source: <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>.

use std::sync::Arc;

use minato_api::k8s::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use minato_api::kube::Api;
use minato_runtime::{Controller, Informer, Next, ObjectKey};

use crate::error::{Result, is_conflict, is_not_found};
use crate::{Context, ops, pods};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// Pods by the claims that they name, as `namespace/name`.
const BY_CLAIM: &str = "claim";

struct Claims {
    cx: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let name = ops::name(&pod.metadata);
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    });
    claims
        .map(|claim| format!("{}/{claim}", ops::namespace(&pod.metadata)))
        .collect()
}

/// Starts the protection of claims.
pub(crate) fn start_claims(cx: &Context) {
    let this = Arc::new(Claims {
        cx: cx.clone(),
        claims: cx.informer(),
        pods: cx.informer(),
    });
    this.pods.add_index(BY_CLAIM, claims_of);
    Controller::new("pvc-protection", &cx.runtime)
        .watch_primary(&this.claims)
        .watch(&this.pods, |change, add| {
            for claim in claims_of(change.object()) {
                if let Some((namespace, name)) = claim.split_once('/') {
                    add(ObjectKey::new(namespace, name));
                }
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl Claims {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(claim) = self.claims.get(&key) else {
            return Ok(Next::Done);
        };
        let api = ops::namespaced::<PersistentVolumeClaim>(self.cx.client(), &key.namespace);
        let held = ops::has_finalizer(&claim.metadata, CLAIM_FINALIZER);
        if claim.metadata.deletion_timestamp.is_none() {
            return if held {
                Ok(Next::Done)
            } else {
                settle(ops::add_finalizer(&api, &claim.metadata, CLAIM_FINALIZER).await)
            };
        }
        if !held {
            return Ok(Next::Done);
        }
        let uses = |pod: &Pod| pods::node_name(pod).is_some() && !pods::is_finished(pod);
        if self
            .pods
            .indexed(BY_CLAIM, &key.to_string())
            .iter()
            .any(|pod| uses(pod))
        {
            return Ok(Next::Done);
        }
        // The cache may not know a pod yet that was placed just now.
        let pods = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        let all = pods.list(&minato_api::kube::api::ListParams::default()).await?.items;
        if all
            .iter()
            .any(|pod| uses(pod) && claims_of(pod).contains(&key.to_string()))
        {
            return Ok(Next::Done);
        }
        settle(ops::remove_finalizer(&api, &claim.metadata, CLAIM_FINALIZER).await)
    }
}

struct Volumes {
    cx: Context,
    volumes: Informer<PersistentVolume>,
}

/// Starts the protection of volumes.
pub(crate) fn start_volumes(cx: &Context) {
    let this = Arc::new(Volumes {
        cx: cx.clone(),
        volumes: cx.informer(),
    });
    Controller::new("pv-protection", &cx.runtime)
        .watch_primary(&this.volumes)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl Volumes {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(volume) = self.volumes.get(&key) else {
            return Ok(Next::Done);
        };
        let api: Api<PersistentVolume> = Api::all(self.cx.client().clone());
        let held = ops::has_finalizer(&volume.metadata, VOLUME_FINALIZER);
        let bound = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        match volume.metadata.deletion_timestamp.is_some() {
            false if !held => settle(ops::add_finalizer(&api, &volume.metadata, VOLUME_FINALIZER).await),
            true if held && !bound => settle(ops::remove_finalizer(&api, &volume.metadata, VOLUME_FINALIZER).await),
            _ => Ok(Next::Done),
        }
    }
}

/// A conflict means that the cache will show something newer, which wakes us.
fn settle(sent: std::result::Result<(), minato_api::kube::Error>) -> Result<Next> {
    match sent {
        Ok(()) => Ok(Next::Done),
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(Next::Done),
        Err(error) => Err(error.into()),
    }
}
