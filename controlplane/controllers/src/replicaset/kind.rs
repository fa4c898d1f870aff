//! What ReplicaSets and ReplicationControllers have in common, and their statuses.

use std::collections::BTreeMap;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use minato_api::k8s::core::v1::{
    Pod, PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use minato_api::k8s_openapi::NamespaceResourceScope;
use minato_api::kube::Resource;
use minato_api::meta_v1::Time;
use minato_meta::LabelSelector;
use minato_runtime::Object;
use serde::Serialize;

use super::plan::Observed;
use crate::error::Result;

/// A kind that keeps a number of pods.
pub(super) trait ReplicaKind: Object + Serialize + Resource<Scope = NamespaceResourceScope> {
    /// Name of the work queue, as upstream's metrics call it.
    const QUEUE: &'static str;
    /// Source of events.
    const CONTROLLER: &'static str;

    /// Which pods are its own.
    fn selector(&self) -> Result<LabelSelector>;
    /// How many there should be.
    fn desired(&self) -> usize;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn min_ready_seconds(&self) -> i32;
    /// This object with the status after a reconciliation; `None` when nothing changed.
    fn next_status(&self, observed: &Observed, failure: Option<(&'static str, String)>, now: Timestamp)
    -> Option<Self>;

    /// Whether the selector matches `pod`; a selector that cannot be evaluated matches none.
    fn selects(&self, pod: &Pod) -> bool {
        let empty = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
        self.selector().is_ok_and(|selector| selector.matches_map(labels))
    }

    fn template_labels(&self) -> BTreeMap<String, String> {
        let meta = self.template().and_then(|template| template.metadata.as_ref());
        meta.and_then(|meta| meta.labels.clone()).unwrap_or_default()
    }
}

fn desired(replicas: Option<i32>) -> usize {
    usize::try_from(replicas.unwrap_or(1)).unwrap_or(0)
}

const FAILURE: &str = "ReplicaFailure";

impl ReplicaKind for ReplicaSet {
    const QUEUE: &'static str = "replicaset";
    const CONTROLLER: &'static str = "replicaset-controller";

    fn selector(&self) -> Result<LabelSelector> {
        let selector = self.spec.as_ref().map(|spec| &spec.selector);
        Ok(LabelSelector::from_typed(selector)?)
    }

    fn desired(&self) -> usize {
        desired(self.spec.as_ref().and_then(|spec| spec.replicas))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn next_status(
        &self,
        observed: &Observed,
        failure: Option<(&'static str, String)>,
        now: Timestamp,
    ) -> Option<Self> {
        let current = self.status.clone().unwrap_or_default();
        let mut conditions = current.conditions.clone().unwrap_or_default();
        let known = conditions.iter().any(|condition| condition.type_ == FAILURE);
        match failure {
            Some((reason, message)) if !known => conditions.push(ReplicaSetCondition {
                type_: FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            }),
            Some(_) => {}
            None => conditions.retain(|condition| condition.type_ != FAILURE),
        }
        let status = ReplicaSetStatus {
            replicas: observed.replicas,
            fully_labeled_replicas: Some(observed.fully_labeled),
            ready_replicas: Some(observed.ready),
            available_replicas: Some(observed.available),
            terminating_replicas: Some(observed.terminating),
            observed_generation: self.metadata.generation,
            conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        };
        let same = status.replicas == current.replicas
            && status.fully_labeled_replicas.unwrap_or(0) == current.fully_labeled_replicas.unwrap_or(0)
            && status.ready_replicas.unwrap_or(0) == current.ready_replicas.unwrap_or(0)
            && status.available_replicas.unwrap_or(0) == current.available_replicas.unwrap_or(0)
            && status.terminating_replicas.unwrap_or(0) == current.terminating_replicas.unwrap_or(0)
            && status.observed_generation.unwrap_or(0) == current.observed_generation.unwrap_or(0)
            && status
                .conditions
                .iter()
                .flatten()
                .eq(current.conditions.iter().flatten());
        (!same).then(|| Self {
            status: Some(status),
            ..self.clone()
        })
    }
}

impl ReplicaKind for ReplicationController {
    const QUEUE: &'static str = "replicationmanager";
    const CONTROLLER: &'static str = "replication-controller";

    fn selector(&self) -> Result<LabelSelector> {
        let pairs = self.spec.iter().flat_map(|spec| spec.selector.iter().flatten());
        let mut pairs = pairs.map(|(key, value)| (key.as_str(), value.as_str())).peekable();
        // An empty map selector selects nothing, unlike an empty LabelSelector.
        if pairs.peek().is_none() {
            return Ok(LabelSelector::nothing());
        }
        Ok(LabelSelector::from_pairs(pairs))
    }

    fn desired(&self) -> usize {
        desired(self.spec.as_ref().and_then(|spec| spec.replicas))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn next_status(
        &self,
        observed: &Observed,
        failure: Option<(&'static str, String)>,
        now: Timestamp,
    ) -> Option<Self> {
        let current = self.status.clone().unwrap_or_default();
        let mut conditions = current.conditions.clone().unwrap_or_default();
        let known = conditions.iter().any(|condition| condition.type_ == FAILURE);
        match failure {
            Some((reason, message)) if !known => conditions.push(ReplicationControllerCondition {
                type_: FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            }),
            Some(_) => {}
            None => conditions.retain(|condition| condition.type_ != FAILURE),
        }
        let status = ReplicationControllerStatus {
            replicas: observed.replicas,
            fully_labeled_replicas: Some(observed.fully_labeled),
            ready_replicas: Some(observed.ready),
            available_replicas: Some(observed.available),
            observed_generation: self.metadata.generation,
            conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        };
        let same = status.replicas == current.replicas
            && status.fully_labeled_replicas.unwrap_or(0) == current.fully_labeled_replicas.unwrap_or(0)
            && status.ready_replicas.unwrap_or(0) == current.ready_replicas.unwrap_or(0)
            && status.available_replicas.unwrap_or(0) == current.available_replicas.unwrap_or(0)
            && status.observed_generation.unwrap_or(0) == current.observed_generation.unwrap_or(0)
            && status
                .conditions
                .iter()
                .flatten()
                .eq(current.conditions.iter().flatten());
        (!same).then(|| Self {
            status: Some(status),
            ..self.clone()
        })
    }
}
