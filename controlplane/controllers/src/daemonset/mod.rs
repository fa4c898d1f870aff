//! DaemonSets: a pod on every node that is meant.
//!
//! ```text
//!  eligible.rs  which nodes    pod.rs  their pods    model.rs  what is there
//!  plan.rs      what to do     status.rs  what to tell    apply.rs  doing it
//! ```
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>.

mod apply;
mod backoff;
mod eligible;
mod model;
mod plan;
mod pod;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{ControllerRevision, DaemonSet};
use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, Expectations, Informer, Next, ObjectKey, Recorder};

use crate::Context;
use crate::error::Result;
use crate::names::CONTROLLER_REVISION_HASH;
use crate::{history, ops, ownership, pods};
use backoff::Backoff;
use model::Model;

struct DaemonSets {
    cx: Context,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
    expectations: Expectations,
    backoff: Backoff,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(DaemonSets {
        cx: cx.clone(),
        sets: cx.informer(),
        pods: cx.informer(),
        nodes: cx.informer(),
        revisions: cx.informer(),
        expectations: Expectations::new(),
        backoff: Backoff::default(),
        recorder: cx.runtime.recorder("daemonset-controller"),
    });
    ownership::add_indexes(&this.pods);
    ownership::add_indexes(&this.revisions);
    let (on_set, on_pod, of_nodes) = (this.clone(), this.clone(), this.sets.clone());
    Controller::new("daemonset", &cx.runtime)
        .workers(2)
        .watch(&this.sets, move |change, add| {
            let key = ObjectKey::of(change.object().as_ref());
            if matches!(change, Change::Deleted(_)) {
                on_set.forget(&key);
            }
            add(key);
        })
        .watch(&this.pods, move |change, add| on_pod.pod_changed(change, add))
        .watch(&this.nodes, move |change, add| {
            if matters(change) {
                of_nodes.keys().into_iter().for_each(add);
            }
        })
        .reads(&this.revisions)
        .resync({
            let sets = this.sets.clone();
            move || sets.keys()
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// Whether a change of a node may make it one that is meant, or one that is not. Heartbeats do not.
fn matters(change: &Change<Node>) -> bool {
    let Change::Updated { old, new } = change else {
        return true;
    };
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    old.metadata.labels != new.metadata.labels || taints(old) != taints(new)
}

fn set_key(pod: &Pod) -> Option<ObjectKey> {
    let owner = ownership::controller(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
    Some(ObjectKey::new(ops::namespace(&pod.metadata), &owner.name))
}

impl DaemonSets {
    fn forget(&self, key: &ObjectKey) {
        self.expectations.forget(key);
        self.backoff.forget(key);
    }

    fn pod_changed(&self, change: &Change<Pod>, add: &mut dyn FnMut(ObjectKey)) {
        let pod = change.object();
        let gone = matches!(change, Change::Deleted(_));
        let current = set_key(pod);
        if let Some(key) = &current {
            if matches!(change, Change::Added(_)) {
                self.expectations.created(key);
            }
            if gone || pods::is_terminating(pod) {
                self.expectations.deleted(key, ops::uid(&pod.metadata));
            }
            add(key.clone());
        } else if !gone && ownership::controller(&pod.metadata).is_none() {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            for set in self.sets.list_in(ops::namespace(&pod.metadata)) {
                let selector = LabelSelector::from_typed(set.spec.as_ref().map(|spec| &spec.selector));
                if selector.is_ok_and(|selector| selector.matches_map(&labels)) {
                    add(ObjectKey::of(set.as_ref()));
                }
            }
        }
        if let Some(former) = change.old().and_then(|old| set_key(old))
            && current.as_ref() != Some(&former)
        {
            add(former);
        }
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(set) = self.sets.get(&key) else {
            self.forget(&key);
            return Ok(Next::Done);
        };
        let Some(spec) = set.spec.as_ref().filter(|_| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(Next::Done);
        };
        let selector = LabelSelector::from_typed(Some(&spec.selector))?;
        if selector.is_everything() {
            return Ok(Next::Done);
        }
        let settled = self.expectations.satisfied(&key);
        let client = self.cx.client();
        let sets = ops::namespaced::<DaemonSet>(client, &key.namespace);
        let api = ops::namespaced::<Pod>(client, &key.namespace);
        let revision_api = ops::namespaced::<ControllerRevision>(client, &key.namespace);
        let claimed = ownership::claim(set.as_ref(), &sets, &selector, &self.revisions, &revision_api, |_| true);
        let mut revisions = claimed.await?;
        history::sort(&mut revisions);
        let collisions = set
            .status
            .as_ref()
            .and_then(|status| status.collision_count)
            .unwrap_or(0);
        let (owner, label) = (set.as_ref(), CONTROLLER_REVISION_HASH);
        let current = history::settle(&revision_api, owner, &spec.template, &revisions, label, collisions).await?;
        let hash = ops::label(&current.revision.metadata, CONTROLLER_REVISION_HASH).unwrap_or_default();
        let claimed = ownership::claim(set.as_ref(), &sets, &selector, &self.pods, &api, |_| true).await?;
        let model = Model::new(&set, spec, hash, &self.nodes.list(), &claimed, Timestamp::now());
        let done = self.apply(&key, &model, &sets, &api, current.collisions, settled).await;
        if done.is_ok() {
            self.truncate(&model, &current.revision, &revisions, &revision_api)
                .await?;
        }
        done
    }

    /// Deletes the oldest revisions that no pod is of, beyond the limit.
    async fn truncate(
        &self,
        model: &Model<'_>,
        current: &ControllerRevision,
        revisions: &[Arc<ControllerRevision>],
        api: &Api<ControllerRevision>,
    ) -> Result<()> {
        let limit = usize::try_from(model.spec.revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX);
        let pods = model.pods.values().flatten();
        let live: HashSet<&str> = pods
            .filter_map(|pod| ops::label(&pod.metadata, CONTROLLER_REVISION_HASH))
            .collect();
        let in_use = |revision: &ControllerRevision| {
            let hash = ops::label(&revision.metadata, CONTROLLER_REVISION_HASH);
            revision.metadata.uid == current.metadata.uid || hash.is_some_and(|hash| live.contains(hash))
        };
        for revision in history::surplus(revisions, in_use, limit) {
            ops::delete(api, &revision.metadata).await?;
        }
        Ok(())
    }
}
