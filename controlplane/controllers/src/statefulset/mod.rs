//! StatefulSets: pods with names and storage of their own, made, replaced and taken away in order.
//!
//! ```text
//!  model.rs     the pods by ordinal, and the two revisions
//!  identity.rs  what the pod of an ordinal is called and made of
//!  claims.rs    its claims, and who owns them
//!  plan.rs      what to do    status.rs  what to tell    apply.rs  doing it
//! ```
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>.

mod apply;
mod claims;
mod identity;
mod model;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{ControllerRevision, StatefulSet};
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod};
use minato_api::kube::Resource;
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey, Recorder};

use crate::Context;
use crate::error::Result;
use crate::{history, names, ops, ownership};
use model::{Model, Revision};

struct StatefulSets {
    cx: Context,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(StatefulSets {
        cx: cx.clone(),
        sets: cx.informer(),
        pods: cx.informer(),
        claims: cx.informer(),
        revisions: cx.informer(),
        recorder: cx.runtime.recorder("statefulset-controller"),
    });
    ownership::add_indexes(&this.pods);
    ownership::add_indexes(&this.revisions);
    let (of_pods, of_claims) = (this.sets.clone(), this.sets.clone());
    Controller::new("statefulset", &cx.runtime)
        .watch_primary(&this.sets)
        .watch(&this.pods, move |change, add| pod_changed(change, &of_pods, add))
        .watch(&this.claims, move |change, add| {
            // A pod may wait for a claim of its predecessor to be gone.
            let Change::Deleted(claim) = change else { return };
            let name = ops::name(&claim.metadata);
            for set in of_claims.list_in(ops::namespace(&claim.metadata)) {
                if claims::may_belong(&set, name) {
                    add(ObjectKey::of(set.as_ref()));
                }
            }
        })
        .reads(&this.revisions)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

fn owner_key(pod: &Pod) -> Option<ObjectKey> {
    let owner = ownership::controller(&pod.metadata).filter(|owner| owner.kind == StatefulSet::kind(&()))?;
    Some(ObjectKey::new(ops::namespace(&pod.metadata), &owner.name))
}

fn pod_changed(change: &Change<Pod>, sets: &Informer<StatefulSet>, add: &mut dyn FnMut(ObjectKey)) {
    let pod = change.object();
    let current = owner_key(pod);
    if let Some(key) = current.clone() {
        add(key);
    } else {
        // It may be adopted; and one that goes makes room for the set's own pod of that name.
        let name = ops::name(&pod.metadata);
        let set = identity::parent(name).and_then(|set| sets.get_in(ops::namespace(&pod.metadata), set));
        if let Some(set) = set {
            add(ObjectKey::of(set.as_ref()));
        }
    }
    if let Some(former) = change.old().and_then(|old| owner_key(old))
        && current.as_ref() != Some(&former)
    {
        add(former);
    }
}

impl StatefulSets {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(set) = self.sets.get(&key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = set.spec.clone() else {
            return Ok(Next::Done);
        };
        let selector = LabelSelector::from_typed(Some(&spec.selector))?;
        if selector.is_everything() {
            return Ok(Next::Done);
        }
        let client = self.cx.client();
        let sets = ops::namespaced::<StatefulSet>(client, &key.namespace);
        let pod_api = ops::namespaced::<Pod>(client, &key.namespace);
        let revision_api = ops::namespaced::<ControllerRevision>(client, &key.namespace);
        let mut revisions =
            ownership::claim(set.as_ref(), &sets, &selector, &self.revisions, &revision_api, |_| true).await?;
        let is_member = |pod: &Pod| identity::ordinal(&key.name, ops::name(&pod.metadata)).is_some();
        let claimed = ownership::claim(set.as_ref(), &sets, &selector, &self.pods, &pod_api, is_member).await?;
        history::sort(&mut revisions);
        let collisions = set
            .status
            .as_ref()
            .and_then(|status| status.collision_count)
            .unwrap_or(0);
        let settled = if set.metadata.deletion_timestamp.is_some() {
            // Nothing is made any more; the status goes on telling what is left.
            let last = revisions.last().cloned();
            last.map(|revision| history::Current { revision, collisions })
        } else {
            let (owner, label) = (set.as_ref(), names::STATE_HASH);
            Some(history::settle(&revision_api, owner, &spec.template, &revisions, label, collisions).await?)
        };
        let Some(history::Current {
            revision: update,
            collisions,
        }) = settled
        else {
            return Ok(Next::Done);
        };
        let before = set
            .status
            .as_ref()
            .and_then(|status| status.current_revision.as_deref());
        let current = revisions
            .iter()
            .find(|revision| Some(ops::name(&revision.metadata)) == before);
        let current = current.unwrap_or(&update).clone();
        let model = Model::new(set, spec, claimed, Revision::of(&current)?, Revision::of(&update)?);
        let next = self.apply(&model, &sets, &pod_api, collisions, Timestamp::now()).await;
        self.truncate(&model, &revisions, &revision_api).await?;
        next
    }

    /// Deletes the oldest revisions that no pod is of, beyond the limit.
    async fn truncate(
        &self,
        model: &Model,
        revisions: &[Arc<ControllerRevision>],
        api: &minato_api::kube::Api<ControllerRevision>,
    ) -> Result<()> {
        let limit = usize::try_from(model.spec.revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX);
        let mut live: HashSet<&str> = model.pods().filter_map(|pod| identity::revision(pod)).collect();
        live.extend([model.current.name.as_str(), model.update.name.as_str()]);
        let in_use = |revision: &ControllerRevision| live.contains(ops::name(&revision.metadata));
        for revision in history::surplus(revisions, in_use, limit) {
            ops::delete(api, &revision.metadata).await?;
        }
        Ok(())
    }
}
