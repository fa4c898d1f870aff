//! What a DaemonSet tells.

use minato_api::k8s::apps::v1::DaemonSetStatus;

use super::eligible::Eligible;
use super::model::Model;
use crate::pods;

/// The status after what was observed. `settled` tells that the present generation was acted upon.
pub(super) fn status(model: &Model<'_>, collisions: i32, settled: bool) -> DaemonSetStatus {
    let before = model.set.status.clone().unwrap_or_default();
    let (mut current, mut misplaced, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0);
    for (node, eligible) in &model.nodes {
        let Some(pod) = model.on(node).first() else { continue };
        if *eligible != Eligible::Yes {
            misplaced += 1;
            continue;
        }
        current += 1;
        ready += i32::from(pods::is_ready(pod));
        available += i32::from(model.is_available(pod));
        updated += i32::from(model.is_updated(pod));
    }
    DaemonSetStatus {
        desired_number_scheduled: model.desired(),
        current_number_scheduled: current,
        number_misscheduled: misplaced,
        number_ready: ready,
        number_available: some(available),
        number_unavailable: some(model.desired() - available),
        updated_number_scheduled: some(updated),
        observed_generation: match settled {
            true => model.set.metadata.generation,
            false => before.observed_generation,
        },
        collision_count: some(collisions),
        conditions: before.conditions,
    }
}

/// Zeros are not written.
fn some(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}
