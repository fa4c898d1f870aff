//! What a plan is made from: the Deployment and its ReplicaSets, sorted into the one of the current template and the
//! old ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use minato_api::k8s::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use minato_api::kube::ResourceExt;

use crate::error::{Error, Result};
use crate::intstr::{Round, scaled};
use crate::{names, ops, template};

pub(super) struct Model {
    pub(super) deployment: Arc<Deployment>,
    pub(super) spec: DeploymentSpec,
    /// The ReplicaSet of the current template.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
    /// Whether pods of old ReplicaSets still run or stop.
    pub(super) old_pods: bool,
    pub(super) replicas: i32,
    pub(super) max_surge: i32,
    pub(super) max_unavailable: i32,
}

pub(super) fn spec_replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

pub(super) fn revision(set: &ReplicaSet) -> i64 {
    ops::annotation(&set.metadata, names::REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

impl Model {
    pub(super) fn new(
        deployment: Arc<Deployment>,
        mut sets: Vec<Arc<ReplicaSet>>,
        lives: impl Fn(&Arc<ReplicaSet>) -> bool,
    ) -> Result<Self> {
        let spec = deployment
            .spec
            .clone()
            .ok_or_else(|| Error::Invalid("a Deployment without spec".to_owned()))?;
        sets.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
        // Of several with the same template the oldest counts, so that the choice is stable.
        let is_new = |set: &Arc<ReplicaSet>| {
            let other = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            other.is_some_and(|other| template::same(other, &spec.template))
        };
        let new = sets.iter().position(is_new).map(|at| sets.remove(at));
        let replicas = spec.replicas.unwrap_or(1);
        let rolling = spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.clone())
            .unwrap_or_default();
        let is_rolling = !is_recreate(&spec);
        let quarter = minato_api::apimachinery::pkg::util::intstr::IntOrString::String("25%".to_owned());
        let surge = scaled(rolling.max_surge.as_ref().unwrap_or(&quarter), replicas, Round::Up)?;
        let down = scaled(
            rolling.max_unavailable.as_ref().unwrap_or(&quarter),
            replicas,
            Round::Down,
        )?;
        // With neither a rollout could not move.
        let down = if surge == 0 && down == 0 { 1 } else { down };
        Ok(Self {
            old_pods: sets.iter().any(lives),
            new,
            old: sets,
            replicas,
            max_surge: if is_rolling { surge } else { 0 },
            max_unavailable: if is_rolling { down.min(replicas) } else { 0 },
            deployment,
            spec,
        })
    }

    pub(super) fn is_recreate(&self) -> bool {
        is_recreate(&self.spec)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// The revision that the current template has or gets.
    pub(super) fn next_revision(&self) -> i64 {
        self.old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1
    }

    /// The Deployment's annotations that its ReplicaSets carry as well.
    pub(super) fn copied_annotations(&self) -> BTreeMap<String, String> {
        const OWN: [&str; 6] = [
            names::LAST_APPLIED,
            names::REVISION,
            names::REVISION_HISTORY,
            names::DESIRED_REPLICAS,
            names::MAX_REPLICAS,
            names::ROLLBACK,
        ];
        let annotations = self.deployment.metadata.annotations.clone().unwrap_or_default();
        annotations
            .into_iter()
            .filter(|(key, _)| !OWN.contains(&key.as_str()))
            .collect()
    }

    /// What a scaled ReplicaSet is annotated with.
    pub(super) fn size_annotations(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (names::DESIRED_REPLICAS.to_owned(), self.replicas.to_string()),
            (
                names::MAX_REPLICAS.to_owned(),
                (self.replicas + self.max_surge).to_string(),
            ),
        ])
    }
}

fn is_recreate(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}
