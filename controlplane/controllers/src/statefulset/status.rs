//! What a StatefulSet tells.

use jiff::Timestamp;
use minato_api::k8s::apps::v1::StatefulSetStatus;

use super::identity;
use super::model::{Model, is_running_and_ready};
use crate::pods::{self, Availability};

/// The status after what was observed.
pub(super) fn status(model: &Model, collisions: i32, now: Timestamp) -> StatefulSetStatus {
    let (mut replicas, mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0, 0);
    for pod in model.pods() {
        replicas += 1;
        if is_running_and_ready(pod) {
            ready += 1;
            let is_available = pods::availability(pod, model.min_ready_seconds(), now) == Availability::Yes;
            available += i32::from(is_available);
        }
        if !pods::is_terminating(pod) {
            let revision = identity::revision(pod);
            current += i32::from(revision == Some(model.current.name.as_str()));
            updated += i32::from(revision == Some(model.update.name.as_str()));
        }
    }
    let mut current_revision = &model.current.name;
    let all = model.replicas;
    let rolled_out = [updated, ready, replicas].iter().all(|count| i64::from(*count) == all);
    if model.rolls() && rolled_out {
        current_revision = &model.update.name;
        current = updated;
    }
    let before = model.set.status.clone().unwrap_or_default();
    StatefulSetStatus {
        replicas,
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        current_replicas: Some(current),
        updated_replicas: Some(updated),
        current_revision: Some(current_revision.clone()),
        update_revision: Some(model.update.name.clone()),
        observed_generation: model.set.metadata.generation,
        collision_count: Some(collisions),
        conditions: before.conditions,
    }
}

/// Whether a status tells nothing new. Counts that are absent are zero.
pub(super) fn same(a: &StatefulSetStatus, b: &StatefulSetStatus) -> bool {
    let counts = |status: &StatefulSetStatus| {
        let counts = [
            status.ready_replicas,
            status.available_replicas,
            status.current_replicas,
            status.updated_replicas,
            status.collision_count,
        ];
        (status.replicas, counts.map(|count| count.unwrap_or(0)))
    };
    counts(a) == counts(b)
        && a.observed_generation == b.observed_generation
        && a.current_revision == b.current_revision
        && a.update_revision == b.update_revision
}
