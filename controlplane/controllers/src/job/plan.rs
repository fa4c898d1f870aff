//! From a job and its pods to what to do: which pods to make or to delete, and whether the job has come to its end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::batch::v1::{Job, JobCondition, JobStatus};
use minato_api::k8s::core::v1::Pod;
use minato_runtime::EventKind;

use super::backoff::{self, Backoff};
use super::count;
use super::pod::{self, Failures, NewPod};
use super::policy::{self, Verdict};
use super::spec::{COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, condition, holds};
use super::view::{Tally, View};
use crate::pods;

/// At most so many pods are made or deleted in one go.
pub(super) const BURST: usize = 500;

/// What to do about pods.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    Create(Vec<NewPod>),
    Delete {
        pods: Vec<Arc<Pod>>,
        /// Whether they end as failures of the job. Those that are merely too many do not.
        count: bool,
    },
}

/// Something to tell users in an event.
pub(super) type Note = (EventKind, String, String);

/// What a reconciliation does, in this order: the step, the status, the finalizers, the end.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) step: Step,
    /// To be written before any finalizer is taken off. `active` does not know of the step yet.
    pub(super) status: JobStatus,
    /// Pods whose finalizer goes.
    pub(super) release: Vec<Arc<Pod>>,
    /// The condition that ends the job, once every pod is counted.
    pub(super) end: Option<JobCondition>,
    pub(super) backoff: Backoff,
    /// When time alone makes a difference.
    pub(super) wake: Option<Duration>,
    pub(super) notes: Vec<Note>,
}

/// Plans. `settled` tells that the cache shows all that was made and deleted before; without it nothing more is.
pub(super) fn plan(
    job: &Job,
    pods: &[Arc<Pod>],
    untracked: &dyn Fn(&str) -> bool,
    past: Option<Backoff>,
    settled: bool,
    now: Timestamp,
) -> Plan {
    let mut view = View::new(job, pods, untracked);
    if !view.wanted.is_suspended() && !view.wanted.is_deleted() && view.status.start_time.is_none() {
        view.status.start_time = Some(minato_api::meta_v1::Time(now));
    }
    let tally = Tally::new(&view);
    let past = past.unwrap_or_else(|| Backoff::default().after(view.counted.iter().map(Arc::as_ref)));
    let backoff = past.after(view.newly_ended().map(Arc::as_ref));
    let target = target(&view, &tally, now);
    let mut plan = Plan {
        step: Step::Nothing,
        status: view.status.clone(),
        release: Vec::new(),
        end: None,
        backoff,
        wake: None,
        notes: Vec::new(),
    };
    if let Some(target) = &target {
        let pods = view.active.iter().take(BURST).cloned().collect();
        plan.step = Step::Delete {
            pods,
            count: target.type_ == FAILURE_TARGET,
        };
    } else if !view.wanted.is_deleted() {
        suspend_or_resume(&view, &mut plan, now);
        plan.wake = deadline(&view, now);
        if settled {
            let (step, wait) = manage(&view, &tally, backoff, now);
            plan.step = step;
            plan.wake = [plan.wake, wait].into_iter().flatten().min();
        }
    }
    if matches!(&plan.step, Step::Delete { pods, .. } if pods.is_empty()) {
        plan.step = Step::Nothing;
    }
    let all_counted = count::count(&view, &tally, target.is_some(), &mut plan);
    if let Some(target) = target {
        let quiet = view.active.is_empty() && view.terminating.is_empty();
        plan.end = (quiet && all_counted).then(|| end_of(&target, now));
        let conditions = plan.status.conditions.get_or_insert_default();
        if !conditions.contains(&target) {
            conditions.push(target);
        }
    }
    plan
}

/// The condition that says how the job is going to end, if it is.
fn target(view: &View<'_>, tally: &Tally, now: Timestamp) -> Option<JobCondition> {
    for type_ in [SUCCESS_CRITERIA_MET, FAILURE_TARGET] {
        if let Some(known) = holds(Some(&view.status), type_) {
            return Some(known.clone());
        }
    }
    if let Some((reason, message)) = failure(view, tally, now) {
        return Some(condition(FAILURE_TARGET, reason, &message, now));
    }
    let (reason, message) = success(view, tally)?;
    Some(condition(SUCCESS_CRITERIA_MET, reason, &message, now))
}

fn failure(view: &View<'_>, tally: &Tally, now: Timestamp) -> Option<(&'static str, String)> {
    let because = |reason, message: &str| Some((reason, message.to_owned()));
    for pod in view.tracked.iter().filter(|pod| view.wanted.has_failed(pod)) {
        if let Verdict::FailsJob(message) = view.verdict(pod) {
            return Some(("PodFailurePolicy", message));
        }
    }
    if tally.failed > view.wanted.backoff_limit() || restarted_too_often(view) {
        return because("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(view, now).is_some_and(|left| left.is_zero()) {
        return because("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    view.wanted.limit_per_index()?;
    let failed = tally.failed_indexes.len();
    let most = view.wanted.spec().and_then(|spec| spec.max_failed_indexes);
    if most.is_some_and(|most| failed > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return because("MaxFailedIndexesExceeded", message);
    }
    let completions = view.wanted.completions().unwrap_or(0);
    if failed > 0 && failed.saturating_add(tally.succeeded_indexes.len()) >= completions {
        return because("FailedIndexes", "Job has failed indexes");
    }
    None
}

/// Containers that are started again in place use up the limit without failing a pod.
fn restarted_too_often(view: &View<'_>) -> bool {
    if !view.wanted.restarts_in_place() {
        return false;
    }
    let restarts: i64 = view.active.iter().map(|pod| pods::all_restarts(pod)).sum();
    let limit = i64::from(view.wanted.backoff_limit());
    restarts > 0 && restarts >= limit
}

fn success(view: &View<'_>, tally: &Tally) -> Option<(&'static str, String)> {
    let completions = view.wanted.completions();
    if view.wanted.is_indexed() {
        let policy = view.wanted.spec().and_then(|spec| spec.success_policy.as_ref());
        let rule = policy::suffices(policy, completions.unwrap_or(0), &tally.succeeded_indexes);
        if let Some(rule) = rule {
            return Some(("SuccessPolicy", format!("Matched rules at index {rule}")));
        }
    }
    let reached = match completions {
        Some(completions) => tally.succeeded >= completions,
        // Whatever the pods work off is empty when one of them says so and the others have come to their end too.
        None => tally.succeeded > 0 && view.active.is_empty(),
    };
    reached.then(|| {
        let message = "Reached expected number of succeeded pods".to_owned();
        ("CompletionsReached", message)
    })
}

fn end_of(target: &JobCondition, now: Timestamp) -> JobCondition {
    let type_ = match target.type_.as_str() {
        SUCCESS_CRITERIA_MET => COMPLETE,
        _ => FAILED,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    condition(type_, &text(&target.reason), &text(&target.message), now)
}

/// The time that the job may still take, if that is limited.
fn deadline(view: &View<'_>, now: Timestamp) -> Option<Duration> {
    let seconds = view.wanted.spec()?.active_deadline_seconds?;
    let start = view.status.start_time.as_ref()?.0;
    if view.wanted.is_suspended() {
        return None;
    }
    let left = SignedDuration::from_secs(seconds).saturating_sub(now.duration_since(start));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn suspend_or_resume(view: &View<'_>, plan: &mut Plan, now: Timestamp) {
    let suspended = view.wanted.is_suspended();
    let known = holds(Some(&view.status), SUSPENDED).is_some();
    if suspended == known {
        return;
    }
    let (reason, message) = if suspended {
        ("JobSuspended", "Job suspended")
    } else {
        ("JobResumed", "Job resumed")
    };
    let mut next = condition(SUSPENDED, reason, message, now);
    if !suspended {
        "False".clone_into(&mut next.status);
    }
    let conditions = plan.status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == SUSPENDED) {
        Some(condition) => *condition = next,
        None => conditions.push(next),
    }
    // The time that a job may take begins anew.
    plan.status.start_time = (!suspended).then_some(minato_api::meta_v1::Time(now));
    let event = if suspended { "Suspended" } else { "Resumed" };
    plan.notes
        .push((EventKind::Normal, event.to_owned(), message.to_owned()));
}

/// How to come to the number of pods that should be active, and how long to wait before there is more to do.
fn manage(view: &View<'_>, tally: &Tally, backoff: Backoff, now: Timestamp) -> (Step, Option<Duration>) {
    let active = view.active.len();
    if view.wanted.is_suspended() {
        return (remove(view, active, now), None);
    }
    let parallelism = size(view.wanted.parallelism());
    let wanted = match view.wanted.completions() {
        Some(completions) => size(completions.saturating_sub(tally.succeeded)).min(parallelism),
        None if tally.succeeded > 0 => active,
        None => parallelism,
    };
    let removal = remove(view, active.saturating_sub(wanted), now);
    if removal != Step::Nothing {
        return (removal, None);
    }
    let leaving = match view.wanted.replaces_only_failed() {
        true => view.terminating.len(),
        false => 0,
    };
    let missing = wanted.saturating_sub(active).saturating_sub(leaving).min(BURST);
    if missing == 0 {
        return (Step::Nothing, None);
    }
    if view.wanted.limit_per_index().is_some() {
        return by_index(view, tally, missing, now);
    }
    let wait = backoff.left(now);
    if !wait.is_zero() {
        return (Step::Nothing, Some(wait));
    }
    let new = if view.wanted.is_indexed() {
        let indexes = pending(view, tally).take(missing);
        indexes
            .map(|index| NewPod {
                index: Some(index),
                failures: None,
            })
            .collect()
    } else {
        vec![NewPod::default(); missing]
    };
    (create(new), None)
}

fn create(new: Vec<NewPod>) -> Step {
    if new.is_empty() {
        Step::Nothing
    } else {
        Step::Create(new)
    }
}

/// The indexes that are neither done nor given up, and that no pod is at work on.
fn pending(view: &View<'_>, tally: &Tally) -> impl Iterator<Item = i32> {
    let leaving = view.terminating.iter().filter(|_| view.wanted.replaces_only_failed());
    let busy = view.active.iter().chain(leaving).filter_map(|pod| view.index(pod));
    let taken = tally.succeeded_indexes.union(&tally.failed_indexes).with(busy);
    taken.missing(view.wanted.completions().unwrap_or(0))
}

/// Pods whose indexes each have waited for long enough.
fn by_index(view: &View<'_>, tally: &Tally, missing: usize, now: Timestamp) -> (Step, Option<Duration>) {
    let (mut new, mut wait) = (Vec::new(), None::<Duration>);
    for index in pending(view, tally) {
        if new.len() == missing {
            break;
        }
        let last = tally.last_failed.get(&index);
        let failures = last.map_or_else(Failures::default, |pod| failures_with(view, pod));
        let since = last.and_then(|pod| backoff::ended_at(pod));
        let all = u32::try_from(failures.all()).unwrap_or(0);
        let left = backoff::left(all, since, now);
        if left.is_zero() {
            new.push(NewPod {
                index: Some(index),
                failures: Some(failures),
            });
        } else {
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        }
    }
    (create(new), wait)
}

/// The failures of an index with that of the pod.
fn failures_with(view: &View<'_>, pod: &Pod) -> Failures {
    let mut failures = pod::failures(pod);
    let more = if view.verdict(pod).counts() {
        &mut failures.counted
    } else {
        &mut failures.ignored
    };
    *more = more.saturating_add(1);
    failures
}

/// Takes away pods that share an index with another or have none, and of the others as many as are too many, the least
/// harmful first.
fn remove(view: &View<'_>, at_least: usize, now: Timestamp) -> Step {
    let mut left = view.active.clone();
    pods::sort_for_deletion(&mut left, now);
    let mut gone = Vec::new();
    if view.wanted.is_indexed() {
        let mut kept = HashSet::new();
        // From the back, so that of several pods the one is kept whose deletion would do most harm.
        let keep: Vec<bool> = left
            .iter()
            .rev()
            .map(|pod| view.index(pod).is_some_and(|index| kept.insert(index)))
            .collect();
        let (stay, go): (Vec<_>, Vec<_>) = left
            .into_iter()
            .zip(keep.into_iter().rev())
            .partition(|(_, keep)| *keep);
        gone = go.into_iter().map(|(pod, _)| pod).collect();
        left = stay.into_iter().map(|(pod, _)| pod).collect();
    }
    let more = at_least.saturating_sub(gone.len());
    gone.extend(left.into_iter().take(more));
    gone.truncate(BURST);
    if gone.is_empty() {
        return Step::Nothing;
    }
    Step::Delete {
        pods: gone,
        count: false,
    }
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}
