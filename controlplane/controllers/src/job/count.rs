//! Counting pods that have ended, once each, whatever crashes in between.
//!
//! The finalizer says of a pod that it may not be counted yet. A pod is counted in three steps: its uid is written
//! into the status, its finalizer is taken off, its uid is replaced by one more in a counter. A uid in the status whose
//! pod has no finalizer, or is gone, is thus one that the third step is missing for. Indexes need no uids: a set takes
//! an index only once.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers>.

use std::collections::HashSet;

use minato_api::k8s::batch::v1::{JobStatus, UncountedTerminatedPods};
use minato_api::k8s::core::v1::Pod;

use super::plan::Plan;
use super::view::{Tally, View};
use crate::ops;

/// A status holds at most about so many uids.
const MOST_UNCOUNTED: usize = 500;

/// Writes what has ended into the status of the plan, and which finalizers may go. Returns whether that was all.
pub(super) fn count(view: &View<'_>, tally: &Tally, ending: bool, plan: &mut Plan) -> bool {
    let tracked: HashSet<&str> = view.tracked.iter().map(|pod| ops::uid(&pod.metadata)).collect();
    let status = &mut plan.status;
    status.uncounted_terminated_pods.get_or_insert_default();
    settle(status, |uid| !tracked.contains(uid));
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let fresh: HashSet<&str> = view.newly_ended().map(|pod| ops::uid(&pod.metadata)).collect();
    let mut noted = 0;
    let mut all = true;
    let mut succeeded_indexes = Vec::new();
    for pod in &view.tracked {
        if !may_be_released(view, tally, ending, pod) {
            continue;
        }
        if noted >= MOST_UNCOUNTED {
            all = false;
            break;
        }
        let uid = ops::uid(&pod.metadata);
        plan.release.push(pod.clone());
        if !fresh.contains(uid) {
            continue;
        }
        if view.has_succeeded(pod) {
            noted += 1;
            match view.index(pod) {
                Some(index) => succeeded_indexes.push(index),
                None => uncounted.succeeded.get_or_insert_default().push(uid.to_owned()),
            }
        } else if view.verdict(pod).counts() {
            noted += 1;
            uncounted.failed.get_or_insert_default().push(uid.to_owned());
        }
    }
    status.uncounted_terminated_pods = Some(uncounted);
    write(view, tally, succeeded_indexes, status);
    all
}

/// Whether a pod has ended and nothing is read from it any more.
fn may_be_released(view: &View<'_>, tally: &Tally, ending: bool, pod: &Pod) -> bool {
    if view.wanted.is_deleted() || view.has_succeeded(pod) {
        return true;
    }
    let awaits_successor = || {
        let last = view.index(pod).and_then(|index| tally.last_failed.get(&index));
        last.is_some_and(|last| last.metadata.uid == pod.metadata.uid)
    };
    // A pod that is known by its uid has ended, even if it says otherwise now.
    let noted = view
        .status
        .uncounted_terminated_pods
        .iter()
        .flat_map(|uncounted| uncounted.failed.iter().flatten());
    let ended = view.wanted.has_failed(pod) || noted.into_iter().any(|uid| *uid == ops::uid(&pod.metadata));
    ended && (ending || !awaits_successor())
}

fn write(view: &View<'_>, tally: &Tally, succeeded: Vec<i32>, status: &mut JobStatus) {
    if view.wanted.is_indexed() {
        let indexes = view.done().with(succeeded);
        status.succeeded = some(indexes.len());
        status.completed_indexes = Some(indexes.text()).filter(|text| !text.is_empty());
    }
    if view.wanted.limit_per_index().is_some() {
        status.failed_indexes = Some(tally.failed_indexes.text());
    }
    status.active = some(i32::try_from(view.active.len()).unwrap_or(i32::MAX));
    status.terminating = Some(i32::try_from(view.terminating.len()).unwrap_or(i32::MAX));
    status.ready = Some(view.ready);
    status.succeeded = status.succeeded.and_then(some);
    status.failed = status.failed.and_then(some);
}

/// Counters that are zero are not written.
pub(super) fn some(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}

/// Counts the uids whose pods have no finalizer any more. Returns whether none is left.
pub(super) fn settle(status: &mut JobStatus, released: impl Fn(&str) -> bool) -> bool {
    let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let split = |uids: Option<Vec<String>>| -> (i32, Option<Vec<String>>) {
        let (done, left): (Vec<_>, Vec<_>) = uids.into_iter().flatten().partition(|uid| released(uid));
        let count = i32::try_from(done.len()).unwrap_or(i32::MAX);
        (count, Some(left).filter(|left| !left.is_empty()))
    };
    let (succeeded, left_succeeded) = split(uncounted.succeeded);
    let (failed, left_failed) = split(uncounted.failed);
    status.succeeded = some(status.succeeded.unwrap_or(0).saturating_add(succeeded));
    status.failed = some(status.failed.unwrap_or(0).saturating_add(failed));
    let settled = left_succeeded.is_none() && left_failed.is_none();
    status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
        failed: left_failed,
        succeeded: left_succeeded,
    });
    settled
}
