//! ReplicaSets and ReplicationControllers: as many pods as asked for.

mod apply;
mod kind;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::ReplicaSet;
use minato_api::k8s::core::v1::{Pod, ReplicationController};
use minato_runtime::{Change, Controller, Expectations, Informer, Next, ObjectKey, Recorder};

use crate::Context;
use crate::error::Result;
use crate::{ops, ownership, pods};
use kind::ReplicaKind;

struct Replicas<K: ReplicaKind> {
    cx: Context,
    sets: Informer<K>,
    pods: Informer<Pod>,
    expectations: Arc<Expectations>,
    recorder: Recorder,
}

/// Starts both controllers.
pub(crate) fn start(cx: &Context) {
    start_kind::<ReplicaSet>(cx);
}

/// Starts the controller of ReplicationControllers.
pub(crate) fn start_replication(cx: &Context) {
    start_kind::<ReplicationController>(cx);
}

fn start_kind<K: ReplicaKind>(cx: &Context) {
    let pods: Informer<Pod> = cx.informer();
    ownership::add_indexes(&pods);
    let this = Arc::new(Replicas::<K> {
        cx: cx.clone(),
        sets: cx.informer(),
        pods,
        expectations: Arc::default(),
        recorder: cx.runtime.recorder(K::CONTROLLER),
    });
    let (sets, expectations) = (this.sets.clone(), this.expectations.clone());
    Controller::new(K::QUEUE, &cx.runtime)
        .workers(10)
        .watch(&this.sets, {
            let expectations = this.expectations.clone();
            move |change, add| {
                let key = ObjectKey::of(change.object().as_ref());
                if matches!(change, Change::Deleted(_)) {
                    expectations.forget(&key);
                }
                add(key);
            }
        })
        .watch(&this.pods, move |change, add| {
            pod_changed(change, &sets, &expectations, add)
        })
        .resync({
            let sets = this.sets.clone();
            move || sets.keys()
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// Tells expectations and queues the sets that a pod concerns.
fn pod_changed<K: ReplicaKind>(
    change: &Change<Pod>,
    sets: &Informer<K>,
    expectations: &Expectations,
    add: &mut dyn FnMut(ObjectKey),
) {
    let pod = change.object();
    let owner = |pod: &Pod| {
        let owner = ownership::controller(&pod.metadata).filter(|owner| owner.kind == K::kind(&()))?;
        Some(ObjectKey::new(ops::namespace(&pod.metadata), &owner.name))
    };
    let current = owner(pod);
    if let Some(key) = &current {
        match change {
            Change::Added(_) => expectations.created(key),
            Change::Deleted(_) => expectations.deleted(key, ops::uid(&pod.metadata)),
            Change::Updated { .. } => {}
        }
        // From then on it no longer counts, which is what the deletion was for.
        if pods::is_terminating(pod) {
            expectations.deleted(key, ops::uid(&pod.metadata));
        }
        add(key.clone());
    } else if !matches!(change, Change::Deleted(_)) {
        for set in sets.list_in(ops::namespace(&pod.metadata)) {
            if set.selects(pod) {
                add(ObjectKey::of(set.as_ref()));
            }
        }
    }
    if let Some(former) = change.old().and_then(|old| owner(old))
        && current.as_ref() != Some(&former)
    {
        add(former);
    }
}

impl<K: ReplicaKind> Replicas<K> {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(set) = self.sets.get(&key) else {
            self.expectations.forget(&key);
            return Ok(Next::Done);
        };
        let settled = self.expectations.satisfied(&key);
        let selector = set.selector()?;
        let sets = ops::namespaced::<K>(self.cx.client(), &key.namespace);
        let api = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        let may_adopt = |pod: &Pod| !pods::is_finished(pod);
        let claimed = ownership::claim(set.as_ref(), &sets, &selector, &self.pods, &api, may_adopt).await?;
        let now = Timestamp::now();
        let mut failure = None;
        if settled && set.meta().deletion_timestamp.is_none() {
            let step = plan::step(set.desired(), &claimed, now);
            failure = self.apply(set.as_ref(), &key, &api, step).await;
        }
        let min_ready = set.min_ready_seconds();
        let observed = plan::observe(&claimed, &set.template_labels(), min_ready, now);
        let status = set.next_status(
            &observed,
            failure.as_ref().map(|(reason, error)| (*reason, error.to_string())),
            now,
        );
        self.write_status(&sets, set.as_ref(), status).await?;
        match failure {
            Some((_, error)) if crate::error::is_namespace_terminating(&error) => Ok(Next::Done),
            Some((_, error)) => Err(error.into()),
            None => Ok(observed.wake.map_or(Next::Done, Next::After)),
        }
    }
}
