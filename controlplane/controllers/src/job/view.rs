//! What is there of a job: its pods by what they do, and how many count as done.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use minato_api::k8s::batch::v1::{Job, JobStatus};
use minato_api::k8s::core::v1::Pod;

use super::indexes::Indexes;
use super::pod;
use super::policy::{self, Verdict};
use super::spec::Wanted;
use crate::names::JOB_TRACKING;
use crate::{ops, pods};

/// The pods of a job.
pub(super) struct View<'a> {
    pub(super) wanted: Wanted<'a>,
    pub(super) status: JobStatus,
    pub(super) active: Vec<Arc<Pod>>,
    pub(super) terminating: Vec<Arc<Pod>>,
    /// Those with the finalizer: as far as they have ended, they may not be counted yet.
    pub(super) tracked: Vec<Arc<Pod>>,
    /// Those that ended and lost the finalizer: they are counted.
    pub(super) counted: Vec<Arc<Pod>>,
    pub(super) ready: i32,
    /// The uids by which the status knows pods that it does not count yet: succeeded and failed.
    noted: (HashSet<String>, HashSet<String>),
    done: Indexes,
}

impl<'a> View<'a> {
    /// `untracked` tells of a uid whether its finalizer was taken off, which the cache may not show yet.
    pub(super) fn new(job: &'a Job, all: &[Arc<Pod>], untracked: &dyn Fn(&str) -> bool) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let set = |uids: Option<Vec<String>>| uids.into_iter().flatten().collect();
        let is_tracked =
            |pod: &Arc<Pod>| ops::has_finalizer(&pod.metadata, JOB_TRACKING) && !untracked(ops::uid(&pod.metadata));
        let those = |which: &dyn Fn(&Arc<Pod>) -> bool| -> Vec<Arc<Pod>> {
            all.iter().filter(|pod| which(pod)).cloned().collect()
        };
        let active = those(&|pod| pods::is_active(pod));
        let ready = active.iter().filter(|pod| pods::is_ready(pod)).count();
        let wanted = Wanted::of(job);
        let done = status.completed_indexes.as_deref().unwrap_or("");
        let done = Indexes::parse(done, wanted.completions().unwrap_or(0));
        Self {
            wanted,
            status,
            done,
            active,
            terminating: those(&|pod| pods::is_terminating(pod) && !pods::is_finished(pod)),
            tracked: those(&is_tracked),
            counted: those(&|pod| pods::is_finished(pod) && !is_tracked(pod)),
            ready: i32::try_from(ready).unwrap_or(i32::MAX),
            noted: (set(uncounted.succeeded), set(uncounted.failed)),
        }
    }

    pub(super) fn verdict(&self, pod: &Pod) -> Verdict {
        let policy = self.wanted.spec().and_then(|spec| spec.pod_failure_policy.as_ref());
        policy::judge(policy, pod)
    }

    pub(super) fn has_succeeded(&self, pod: &Pod) -> bool {
        pods::phase(pod) == "Succeeded" && !self.noted.1.contains(ops::uid(&pod.metadata))
    }

    fn is_noted(&self, pod: &Pod) -> bool {
        let uid = ops::uid(&pod.metadata);
        let done = || self.has_succeeded(pod) && self.index(pod).is_some_and(|index| self.done.contains(index));
        self.noted.0.contains(uid) || self.noted.1.contains(uid) || done()
    }

    /// The pods that ended since the status was last written.
    pub(super) fn newly_ended(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.tracked.iter().filter(|pod| {
            let ended = self.has_succeeded(pod) || self.wanted.has_failed(pod);
            ended && !self.is_noted(pod) && self.wanted.has_place_for(pod)
        })
    }

    /// The indexes that the status counts as done.
    pub(super) fn done(&self) -> &Indexes {
        &self.done
    }

    /// The index of a pod that belongs to one.
    pub(super) fn index(&self, pod: &Pod) -> Option<i32> {
        self.wanted.index(pod)
    }
}

/// How far a job is.
pub(super) struct Tally {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Indexes,
    /// By index, the failed pod that keeps the finalizer until there is one in its place, on which the number of
    /// failures is written.
    pub(super) last_failed: BTreeMap<i32, Arc<Pod>>,
}

impl Tally {
    pub(super) fn new(view: &View<'_>) -> Self {
        let (mut succeeded, mut failed) = (
            view.status
                .succeeded
                .unwrap_or(0)
                .saturating_add(count(view.noted.0.len())),
            view.status
                .failed
                .unwrap_or(0)
                .saturating_add(count(view.noted.1.len())),
        );
        let (mut new_succeeded, mut new_failed) = (Vec::new(), Vec::new());
        for pod in view.newly_ended() {
            if view.has_succeeded(pod) {
                succeeded = succeeded.saturating_add(1);
                new_succeeded.extend(view.index(pod));
            } else {
                let verdict = view.verdict(pod);
                failed = failed.saturating_add(i32::from(verdict.counts()));
                new_failed.extend(view.index(pod).filter(|_| fails_index(view, pod, &verdict)));
            }
        }
        let completions = view.wanted.completions().unwrap_or(0);
        let failed_before = view.status.failed_indexes.as_deref().unwrap_or("");
        let mut tally = Self {
            succeeded,
            failed,
            succeeded_indexes: view.done.with(new_succeeded),
            failed_indexes: Indexes::parse(failed_before, completions).with(new_failed),
            last_failed: BTreeMap::new(),
        };
        if view.wanted.is_indexed() {
            tally.succeeded = tally.succeeded_indexes.len();
        }
        if view.wanted.limit_per_index().is_some() {
            tally.last_failed = last_failed(view, &tally);
        }
        tally
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Whether the failure of `pod` is the last one that its index was allowed.
fn fails_index(view: &View<'_>, pod: &Pod, verdict: &Verdict) -> bool {
    let Some(limit) = view.wanted.limit_per_index() else {
        return false;
    };
    *verdict == Verdict::FailsIndex || verdict.counts() && pod::failures(pod).counted >= limit
}

fn last_failed(view: &View<'_>, tally: &Tally) -> BTreeMap<i32, Arc<Pod>> {
    let active: HashSet<i32> = view.active.iter().filter_map(|pod| view.index(pod)).collect();
    let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
    for pod in view.tracked.iter().filter(|pod| view.wanted.has_failed(pod)) {
        let Some(index) = view.index(pod) else { continue };
        let settled = tally.succeeded_indexes.contains(index) || tally.failed_indexes.contains(index);
        if settled || active.contains(&index) {
            continue;
        }
        let older = |known: &Arc<Pod>| pod::failures(known).all() >= pod::failures(pod).all();
        if !last.get(&index).is_some_and(older) {
            last.insert(index, pod.clone());
        }
    }
    last
}
