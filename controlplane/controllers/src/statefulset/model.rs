//! A StatefulSet as it was observed.

use std::collections::BTreeMap;
use std::sync::Arc;

use minato_api::k8s::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use minato_api::k8s::core::v1::{Pod, PodTemplateSpec};

use super::identity;
use crate::error::Result;
use crate::{history, ops, pods};

/// One state of the template.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: PodTemplateSpec,
}

impl Revision {
    pub(super) fn of(revision: &ControllerRevision) -> Result<Self> {
        Ok(Self {
            name: ops::name(&revision.metadata).to_owned(),
            template: history::template(revision)?,
        })
    }
}

/// The set, its pods by ordinal, and the revisions that a rollout goes between.
pub(super) struct Model {
    pub(super) set: Arc<StatefulSet>,
    pub(super) spec: StatefulSetSpec,
    /// First ordinal.
    pub(super) start: i64,
    /// How many there should be.
    pub(super) replicas: i64,
    /// The pods whose ordinals there should be. There may be any number of ordinals, so absent ones take no room.
    pub(super) kept: BTreeMap<i64, Arc<Pod>>,
    /// The pods beyond them.
    pub(super) condemned: BTreeMap<i64, Arc<Pod>>,
    /// What is rolled out.
    pub(super) current: Revision,
    /// What is being rolled out; the same once that is done.
    pub(super) update: Revision,
}

impl Model {
    pub(super) fn new(
        set: Arc<StatefulSet>,
        spec: StatefulSetSpec,
        claimed: Vec<Arc<Pod>>,
        current: Revision,
        update: Revision,
    ) -> Self {
        let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
        let start = i64::from(start.max(0));
        let replicas = i64::from(spec.replicas.unwrap_or(1).max(0));
        let name = ops::name(&set.metadata).to_owned();
        let numbered = claimed.into_iter().filter_map(|pod| {
            let ordinal = identity::ordinal(&name, ops::name(&pod.metadata))?;
            Some((ordinal, pod))
        });
        let range = start..start + replicas;
        let (kept, condemned) = numbered.partition(|(ordinal, _)| range.contains(ordinal));
        Self {
            set,
            spec,
            start,
            replicas,
            kept,
            condemned,
            current,
            update,
        }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.kept.values().chain(self.condemned.values())
    }

    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    /// Whether pods come and go without waiting for one another.
    pub(super) fn is_parallel(&self) -> bool {
        self.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    fn strategy(&self) -> &str {
        let strategy = self.spec.update_strategy.as_ref();
        strategy
            .and_then(|strategy| strategy.type_.as_deref())
            .unwrap_or("RollingUpdate")
    }

    /// Whether pods of the former revision are replaced at all, unless somebody deletes them.
    pub(super) fn rolls(&self) -> bool {
        self.strategy() != "OnDelete"
    }

    /// The first ordinal that a rollout replaces.
    pub(super) fn partition(&self) -> i64 {
        let rolling = self
            .spec
            .update_strategy
            .as_ref()
            .and_then(|s| s.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
        self.start + i64::from(partition.max(0))
    }

    /// The revision that a new pod of this ordinal is made from.
    pub(super) fn revision_for(&self, ordinal: i64) -> &Revision {
        let former = self.strategy() == "RollingUpdate" && ordinal < self.partition();
        if former { &self.current } else { &self.update }
    }
}

pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}
