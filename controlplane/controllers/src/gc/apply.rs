//! Looks at the live objects and acts.

use minato_api::k8s::core::v1::ObjectReference;
use minato_api::kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use minato_api::meta_v1::{ObjectMeta, OwnerReference};
use minato_runtime::{EventKind, Next};
use serde_json::{Value, json};

use super::graph::{Node, Place};
use super::plan::{OwnerState, Verdict, judge};
use super::{Collector, Work};
use crate::error::{Error, Result, code, is_not_found};
use crate::names::{FOREGROUND, ORPHAN};
use crate::ops;

impl Collector {
    pub(super) async fn reconcile(&self, work: Work) -> Result<Next> {
        match work {
            Work::Collect(uid) => self.collect(&uid).await,
            Work::Orphan(uid) => self.orphan(&uid).await,
        }
        .map(|()| Next::Done)
    }

    async fn collect(&self, uid: &str) -> Result<()> {
        let Some(node) = self.graph.lock().get(uid).cloned() else {
            return Ok(());
        };
        let Some((api, id)) = self.locate(&node)? else {
            return Ok(());
        };
        let Some(meta) = live(&api, &node.name, uid).await? else {
            let effects = self.graph.lock().gone(uid);
            self.queue(effects);
            return Ok(());
        };
        if matches!(node.place, Place::Named { .. }) {
            // It is there after all: from now on its watch tells.
            let effects = self.graph.lock().confirm(uid, &id, &meta);
            self.queue(effects);
            return Ok(());
        }
        if meta.deletion_timestamp.is_some() {
            if ops::has_finalizer(&meta, FOREGROUND) {
                return self.await_dependents(&api, &meta, uid).await;
            }
            return Ok(());
        }
        self.judge(&api, &node, &meta, uid).await
    }

    async fn judge(&self, api: &Api<DynamicObject>, node: &Node, meta: &ObjectMeta, uid: &str) -> Result<()> {
        let mut states = Vec::new();
        for owner in meta.owner_references.iter().flatten() {
            states.push(self.owner_state(node, owner).await?);
        }
        let (has_dependents, dependent_waits) = {
            let graph = self.graph.lock();
            let has = graph.get(uid).is_some_and(|node| !node.dependents.is_empty());
            (has, graph.dependent_waits(uid))
        };
        match judge(meta, &states, has_dependents, dependent_waits) {
            Verdict::Keep => Ok(()),
            Verdict::Detach(owners) => patch(api, meta, json!({"metadata": {"ownerReferences": owners}})).await,
            Verdict::Delete { policy, unblock } => {
                let mut meta = meta.clone();
                if unblock {
                    let owners = meta.owner_references.iter().flatten();
                    let owners: Vec<_> = owners
                        .map(|owner| OwnerReference {
                            block_owner_deletion: Some(false),
                            ..owner.clone()
                        })
                        .collect();
                    patch(api, &meta, json!({"metadata": {"ownerReferences": owners}})).await?;
                    meta.resource_version = None;
                }
                tracing::debug!(name = node.name, namespace = node.namespace, ?policy, "collecting");
                let params = DeleteParams {
                    propagation_policy: Some(policy),
                    preconditions: Some(Preconditions {
                        uid: meta.uid.clone(),
                        // Who changed its owners at the last moment wins.
                        resource_version: meta.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                match api.delete(&node.name, &params).await {
                    Ok(_) => Ok(()),
                    Err(error) if is_not_found(&error) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Where the object of a node lives. `None` if its kind is no longer served and it was seen before: then it went
    /// with its kind.
    fn locate(&self, node: &Node) -> Result<Option<(Api<DynamicObject>, super::ResourceId)>> {
        let served = match &node.place {
            Place::Known(id) => match self.served(id) {
                Some(served) => served,
                None => return Ok(None),
            },
            Place::Named { api_version, kind } => self.served_kind(api_version, kind).ok_or_else(|| {
                self.rediscover.notify_one();
                Error::Invalid(format!("kind {kind} of {api_version} is not served"))
            })?,
        };
        let id = (served.resource.group.clone(), served.resource.plural.clone());
        if served.namespaced && node.namespace.is_empty() {
            // A cluster-scoped object cannot have an owner in a namespace; nothing tells which one is meant.
            return Ok(None);
        }
        Ok(Some((self.api(&served, &node.namespace), id)))
    }

    async fn owner_state(&self, dependent: &Node, owner: &OwnerReference) -> Result<OwnerState> {
        let served = self.served_kind(&owner.api_version, &owner.kind).ok_or_else(|| {
            self.rediscover.notify_one();
            Error::Invalid(format!("kind {} of {} is not served", owner.kind, owner.api_version))
        })?;
        if served.namespaced && dependent.namespace.is_empty() {
            self.warn(dependent, owner);
            return Ok(OwnerState::Solid);
        }
        let api = self.api(&served, &dependent.namespace);
        Ok(match live(&api, &owner.name, &owner.uid).await? {
            None => OwnerState::Gone,
            Some(meta) if meta.deletion_timestamp.is_some() && ops::has_finalizer(&meta, FOREGROUND) => {
                OwnerState::Waiting
            }
            Some(_) => OwnerState::Solid,
        })
    }

    /// Tells the user about a reference that means nothing.
    fn warn(&self, dependent: &Node, owner: &OwnerReference) {
        let Place::Known(id) = &dependent.place else { return };
        let Some(served) = self.served(id) else { return };
        let object = ObjectReference {
            api_version: Some(served.resource.api_version.clone()),
            kind: Some(served.resource.kind.clone()),
            name: Some(dependent.name.clone()),
            ..ObjectReference::default()
        };
        let message = format!(
            "cluster-scoped objects cannot be owned by {} {}, which is namespaced",
            owner.kind, owner.name
        );
        self.recorder
            .event_for(object, EventKind::Warning, "OwnerRefInvalidNamespace", message);
    }

    /// An owner that waits: its dependents are looked at, and without blocking ones it may go.
    async fn await_dependents(&self, api: &Api<DynamicObject>, meta: &ObjectMeta, uid: &str) -> Result<()> {
        let blocking = self.graph.lock().blocking(uid);
        if blocking.is_empty() {
            return remove_finalizer(api, meta, FOREGROUND).await;
        }
        for dependent in blocking {
            let waits = self.graph.lock().get(&dependent).is_some_and(|node| node.foreground);
            if !waits {
                self.queue.add(Work::Collect(dependent));
            }
        }
        Ok(())
    }

    async fn orphan(&self, uid: &str) -> Result<()> {
        let Some(node) = self.graph.lock().get(uid).cloned() else {
            return Ok(());
        };
        let Some((api, _)) = self.locate(&node)? else {
            return Ok(());
        };
        let Some(meta) = live(&api, &node.name, uid).await? else {
            return Ok(());
        };
        if meta.deletion_timestamp.is_none() || !ops::has_finalizer(&meta, ORPHAN) {
            return Ok(());
        }
        let dependents: Vec<(String, Node)> = {
            let graph = self.graph.lock();
            let known = node
                .dependents
                .iter()
                .filter_map(|uid| Some((uid.clone(), graph.get(uid)?.clone())));
            known.collect()
        };
        ops::all(
            dependents
                .iter()
                .map(|(dependent, node)| self.disown(dependent, node, uid)),
        )
        .await?;
        remove_finalizer(&api, &meta, ORPHAN).await
    }

    async fn disown(&self, dependent: &str, node: &Node, owner: &str) -> Result<()> {
        let Some((api, _)) = self.locate(node)? else {
            return Ok(());
        };
        let Some(meta) = live(&api, &node.name, dependent).await? else {
            return Ok(());
        };
        let owners: Vec<_> = meta
            .owner_references
            .iter()
            .flatten()
            .filter(|reference| reference.uid != owner)
            .collect();
        patch(&api, &meta, json!({"metadata": {"ownerReferences": owners}})).await
    }
}

/// The object with this name, if it has this uid.
async fn live(api: &Api<DynamicObject>, name: &str, uid: &str) -> Result<Option<ObjectMeta>> {
    let found = api.get_metadata_opt(name).await?;
    Ok(found
        .map(|object| object.metadata)
        .filter(|meta| meta.uid.as_deref() == Some(uid)))
}

async fn patch(api: &Api<DynamicObject>, meta: &ObjectMeta, mut patch: Value) -> Result<()> {
    patch["metadata"]["uid"] = json!(meta.uid);
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    match api
        .patch_metadata(ops::name(meta), &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if code(&error) == Some(404) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn remove_finalizer(api: &Api<DynamicObject>, meta: &ObjectMeta, finalizer: &str) -> Result<()> {
    let kept: Vec<_> = meta
        .finalizers
        .iter()
        .flatten()
        .filter(|present| *present != finalizer)
        .collect();
    patch(api, meta, json!({"metadata": {"finalizers": kept}})).await
}
