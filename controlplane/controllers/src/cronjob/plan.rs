//! From a CronJob and its jobs to what to do.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use minato_api::k8s::core::v1::ObjectReference;
use minato_api::meta_v1::{ObjectMeta, Time};
use minato_runtime::EventKind;

use super::due::{Timetable, zone};
use crate::names::CRONJOB_TIMESTAMP;
use crate::{job, ops, ownership};

/// Something to tell users in an event.
pub(super) type Note = (EventKind, &'static str, String);

/// A run to begin.
#[derive(Debug, PartialEq)]
pub(super) struct Start {
    pub(super) at: Timestamp,
    pub(super) job: Job,
    /// Jobs that must go first.
    pub(super) replaced: Vec<ObjectReference>,
}

/// What a reconciliation does.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Ended jobs beyond the limits.
    pub(super) delete: Vec<Arc<Job>>,
    /// Without what `start` will add.
    pub(super) status: CronJobStatus,
    pub(super) notes: Vec<Note>,
    pub(super) start: Option<Start>,
    pub(super) wake: Option<Duration>,
}

fn note(plan: &mut Plan, kind: EventKind, reason: &'static str, message: impl Into<String>) {
    plan.notes.push((kind, reason, message.into()));
}

/// Plans. `jobs` are those that the CronJob controls, `missing` the uids of active ones that do not exist.
pub(super) fn plan(cron: &CronJob, jobs: &[Arc<Job>], missing: &HashSet<String>, now: Timestamp) -> Plan {
    let mut plan = Plan {
        status: cron.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    let spec = &cron.spec;
    clean(spec, jobs, &mut plan);
    follow(jobs, missing, &mut plan);
    if cron.metadata.deletion_timestamp.is_none() && spec.suspend != Some(true) {
        schedule(cron, spec, now, &mut plan);
    }
    plan.status.active = plan.status.active.take().filter(|active| !active.is_empty());
    plan
}

/// Ended jobs beyond the limits go, the oldest first.
fn clean(spec: &CronJobSpec, jobs: &[Arc<Job>], plan: &mut Plan) {
    let limits = [
        (job::COMPLETE, spec.successful_jobs_history_limit),
        (job::FAILED, spec.failed_jobs_history_limit),
    ];
    for (type_, limit) in limits {
        let Some(limit) = limit else { continue };
        let is_such = |job: &&Arc<Job>| job::ended(job).is_some_and(|ended| ended.type_ == type_);
        let alive = |job: &&Arc<Job>| job.metadata.deletion_timestamp.is_none();
        let mut ended: Vec<_> = jobs.iter().filter(is_such).filter(alive).cloned().collect();
        ended.sort_by_cached_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            (start.map(|time| time.0), job.metadata.name.clone())
        });
        ended.truncate(ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
        plan.delete.extend(ended);
    }
}

/// Brings the status in step with the jobs.
fn follow(jobs: &[Arc<Job>], missing: &HashSet<String>, plan: &mut Plan) {
    let mut active = plan.status.active.take().unwrap_or_default();
    let alive = jobs
        .iter()
        .filter(|job| job.metadata.deletion_timestamp.is_none() || job::ended(job).is_some());
    for job in alive {
        let (name, uid) = (ops::name(&job.metadata), ops::uid(&job.metadata));
        let known = active
            .iter()
            .position(|reference| reference.uid.as_deref() == Some(uid));
        match (known, job::ended(job)) {
            (Some(known), Some(ended)) => {
                active.remove(known);
                let message = format!("Saw completed job: {name}, condition: {}", ended.type_);
                note(plan, EventKind::Normal, "SawCompletedJob", message);
            }
            // Begun by us, before a crash kept us from saying so.
            (None, None) if ops::annotation(&job.metadata, CRONJOB_TIMESTAMP).is_some() => active.push(reference(job)),
            (None, None) => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                note(plan, EventKind::Warning, "UnexpectedJob", message);
            }
            _ => {}
        }
        let succeeded = job::ended(job).filter(|ended| ended.type_ == job::COMPLETE);
        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
        if let (Some(_), Some(completed)) = (succeeded, completed) {
            let last = &mut plan.status.last_successful_time;
            if last.as_ref().is_none_or(|last| last.0 < completed.0) {
                *last = Some(completed);
            }
        }
    }
    active.retain(|reference| {
        let is_missing = reference.uid.as_ref().is_some_and(|uid| missing.contains(uid));
        if is_missing {
            let name = reference.name.as_deref().unwrap_or_default();
            note(
                plan,
                EventKind::Normal,
                "MissingJob",
                format!("Active job went missing: {name}"),
            );
        }
        !is_missing
    });
    plan.status.active = Some(active);
}

fn schedule(cron: &CronJob, spec: &CronJobSpec, now: Timestamp, plan: &mut Plan) {
    let name = spec.time_zone.as_deref();
    let zone = match zone(name) {
        Ok(zone) => zone,
        Err(why) => {
            let message = format!("invalid timeZone: {:?}: {why}", name.unwrap_or_default());
            return note(plan, EventKind::Warning, "UnknownTimeZone", message);
        }
    };
    let schedule = match minato_rules::Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            return note(plan, EventKind::Warning, "UnparseableSchedule", message);
        }
    };
    let timetable = Timetable { schedule, zone };
    plan.wake = timetable.wait(now);
    let last = plan
        .status
        .last_schedule_time
        .as_ref()
        .or(cron.metadata.creation_timestamp.as_ref());
    let Some(mut since) = last.map(|time| time.0) else {
        return;
    };
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    if let Some(deadline) = deadline {
        // What is older is too late anyway.
        since = since.max(now.checked_sub(deadline).unwrap_or(since));
    }
    let due = timetable.due(since, now);
    if due.many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        note(plan, EventKind::Warning, "TooManyMissedTimes", message);
    }
    let Some(at) = due.latest else { return };
    if deadline.is_some_and(|deadline| now.duration_since(at) > deadline) {
        let time = at
            .to_zoned(timetable.zone)
            .strftime("%a, %d %b %Y %H:%M:%S %z")
            .to_string();
        let message = format!("Missed scheduled time to start a job: {time}");
        return note(plan, EventKind::Warning, "MissSchedule", message);
    }
    begin(cron, spec, at, &timetable, plan);
}

fn begin(cron: &CronJob, spec: &CronJobSpec, at: Timestamp, timetable: &Timetable, plan: &mut Plan) {
    let job = job(cron, spec, at, timetable);
    let active = plan.status.active.clone().unwrap_or_default();
    if active.iter().any(|reference| reference.name == job.metadata.name) {
        return;
    }
    let mut replaced = Vec::new();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return note(plan, EventKind::Normal, "JobAlreadyActive", message);
        }
        Some("Replace") => {
            replaced = active;
            plan.status.active = None;
        }
        _ => {}
    }
    plan.start = Some(Start { at, job, replaced });
}

/// The job of a run. Its name tells the run, so that no run is begun twice.
fn job(cron: &CronJob, spec: &CronJobSpec, at: Timestamp, timetable: &Timetable) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    annotations.insert(CRONJOB_TIMESTAMP.to_owned(), time_text(at, timetable));
    let minutes = at.as_second().div_euclid(60);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{minutes}", ops::name(&cron.metadata))),
            namespace: cron.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![ownership::reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

/// A time as RFC 3339 has it, on the clocks of the zone.
fn time_text(at: Timestamp, timetable: &Timetable) -> String {
    let time = at.to_zoned(timetable.zone.clone());
    let offset = if time.offset().is_zero() { "Z" } else { "%:z" };
    time.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string()
}

/// A reference to a job that runs.
pub(super) fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

/// The status after a run was begun.
pub(super) fn begun(status: &mut CronJobStatus, at: Timestamp, reference: Option<ObjectReference>) {
    status.last_schedule_time = Some(Time(at));
    if let Some(reference) = reference {
        let active = status.active.get_or_insert_default();
        if !active.iter().any(|known| known.uid == reference.uid) {
            active.push(reference);
        }
    }
}
