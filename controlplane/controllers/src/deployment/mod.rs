//! Deployments: ReplicaSets that replace one another, at the pace that the strategy allows.

mod apply;
mod model;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{Deployment, ReplicaSet};
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::Resource;
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey, Recorder};

use crate::Context;
use crate::error::Result;
use crate::{ops, ownership, pods};
use model::Model;

struct Deployments {
    cx: Context,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Deployments {
        cx: cx.clone(),
        deployments: cx.informer(),
        sets: cx.informer(),
        pods: cx.informer(),
        recorder: cx.runtime.recorder("deployment-controller"),
    });
    ownership::add_indexes(&this.sets);
    ownership::add_indexes(&this.pods);
    let (deployments, sets) = (this.deployments.clone(), this.sets.clone());
    Controller::new("deployment", &cx.runtime)
        .workers(10)
        .watch_primary(&this.deployments)
        .watch(&this.sets, move |change, add| set_changed(change, &deployments, add))
        .watch(&this.pods, move |change, add| {
            // A Recreate rollout goes on when the last old pod is gone.
            let Change::Deleted(pod) = change else { return };
            let Some(owner) = ownership::controller(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
                return;
            };
            let set = sets.get_in(ops::namespace(&pod.metadata), &owner.name);
            if let Some(key) = set.and_then(|set| owner_key(&set)) {
                add(key);
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

fn owner_key(set: &ReplicaSet) -> Option<ObjectKey> {
    let owner = ownership::controller(&set.metadata).filter(|owner| owner.kind == Deployment::kind(&()))?;
    Some(ObjectKey::new(ops::namespace(&set.metadata), &owner.name))
}

fn set_changed(change: &Change<ReplicaSet>, deployments: &Informer<Deployment>, add: &mut dyn FnMut(ObjectKey)) {
    let set = change.object();
    let current = owner_key(set);
    if let Some(key) = current.clone() {
        add(key);
    } else if !matches!(change, Change::Deleted(_)) {
        let labels = set.metadata.labels.clone().unwrap_or_default();
        for deployment in deployments.list_in(ops::namespace(&set.metadata)) {
            let selector = LabelSelector::from_typed(deployment.spec.as_ref().map(|spec| &spec.selector));
            if selector.is_ok_and(|selector| selector.matches_map(&labels)) {
                add(ObjectKey::of(deployment.as_ref()));
            }
        }
    }
    if let Some(former) = change.old().and_then(|old| owner_key(old))
        && current.as_ref() != Some(&former)
    {
        add(former);
    }
}

impl Deployments {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(deployment) = self.deployments.get(&key) else {
            return Ok(Next::Done);
        };
        let selector = LabelSelector::from_typed(deployment.spec.as_ref().map(|spec| &spec.selector))?;
        if selector.is_everything() {
            return Ok(Next::Done);
        }
        let deployments = ops::namespaced::<Deployment>(self.cx.client(), &key.namespace);
        let api = ops::namespaced::<ReplicaSet>(self.cx.client(), &key.namespace);
        let sets = ownership::claim(deployment.as_ref(), &deployments, &selector, &self.sets, &api, |_| true).await?;
        let lives = |set: &Arc<ReplicaSet>| {
            let pods = self.pods.controlled_by(ops::uid(&set.metadata));
            pods.iter().any(|pod| !pods::is_finished(pod))
        };
        let now = Timestamp::now();
        let model = Model::new(deployment.clone(), sets, lives)?;
        let plan = plan::plan(&model, now)?;
        self.apply(&model, &deployments, &api, plan, now).await
    }
}
