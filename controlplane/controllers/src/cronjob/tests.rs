//! Plans of CronJobs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::batch::v1::{CronJob, Job};
use serde_json::{Value, json};

use super::plan::{Plan, plan};

/// A Tuesday.
fn at(time: &str) -> Timestamp {
    format!("2026-12-01T{time}Z").parse().unwrap()
}

/// A CronJob, due each hour, that was made at 8:30.
fn cron(spec: Value, status: Value) -> CronJob {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}});
    let mut all = json!({"schedule": "0 * * * *", "jobTemplate": template});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": at("08:30:00")});
    serde_json::from_value(json!({"metadata": metadata, "spec": all, "status": status})).unwrap()
}

/// A job that began at this time and has this condition, if any.
fn job(name: &str, time: &str, condition: &str) -> Arc<Job> {
    let conditions = match condition {
        "" => json!([]),
        type_ => json!([{"type": type_, "status": "True"}]),
    };
    let completion = (condition == "Complete").then(|| at(time));
    let status = json!({"startTime": at(time), "completionTime": completion, "conditions": conditions});
    let metadata = json!({"name": name, "uid": name, "namespace": "n"});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": {"template": {}}, "status": status})).unwrap())
}

fn active(names: &[&str]) -> Value {
    let all: Vec<_> = names.iter().map(|name| json!({"name": name, "uid": name})).collect();
    json!({"lastScheduleTime": at("09:00:00"), "active": all})
}

fn planned(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> Plan {
    plan(cron, jobs, &HashSet::new(), at(now))
}

fn started(plan: &Plan) -> Option<Timestamp> {
    plan.start.as_ref().map(|start| start.at)
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.notes.iter().map(|(_, reason, _)| *reason).collect()
}

fn still_active(plan: &Plan) -> Vec<&str> {
    let active = plan.status.active.iter().flatten();
    active.map(|reference| reference.name.as_deref().unwrap()).collect()
}

#[test]
fn a_run_begins_when_it_is_due() {
    let hourly = cron(json!({}), json!({}));
    let early = planned(&hourly, &[], "08:59:59");
    assert_eq!(
        (started(&early), early.wake),
        (None, Some(Duration::from_millis(1_100)))
    );
    let due = planned(&hourly, &[], "09:00:00");
    assert_eq!(
        (started(&due), due.wake),
        (Some(at("09:00:00")), Some(Duration::from_millis(3_600_100)))
    );
    assert_eq!(
        serde_json::to_value(due.start.unwrap().job).unwrap(),
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                // Minutes since 1970.
                "name": "c-29935260", "namespace": "n", "labels": {"a": "b"},
                "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-12-01T09:00:00Z"},
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"template": {}},
        })
    );
    let begun = cron(json!({}), json!({"lastScheduleTime": at("09:00:00")}));
    assert_eq!(started(&planned(&begun, &[], "09:59:00")), None);
    // Of several missed ones the last is made up for.
    assert_eq!(started(&planned(&begun, &[], "12:10:00")), Some(at("12:00:00")));
    let suspended = cron(json!({"suspend": true}), json!({}));
    let plan = planned(&suspended, &[], "09:30:00");
    assert_eq!((started(&plan), plan.wake), (None, None));
}

#[test]
fn a_zone_moves_the_schedule() {
    let spec = json!({"schedule": "30 18 * * *", "timeZone": "Asia/Tokyo"});
    let plan = planned(&cron(spec, json!({})), &[], "09:40:00");
    assert_eq!(started(&plan), Some(at("09:30:00")));
    let annotations = plan.start.unwrap().job.metadata.annotations.unwrap();
    let time = &annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(time, "2026-12-01T18:30:00+09:00");
    let plan = planned(&cron(json!({"timeZone": "Mars/Base"}), json!({})), &[], "09:40:00");
    assert_eq!((started(&plan), reasons(&plan)), (None, vec!["UnknownTimeZone"]));
    let plan = planned(&cron(json!({"schedule": "soon"}), json!({})), &[], "09:40:00");
    assert_eq!((started(&plan), reasons(&plan)), (None, vec!["UnparseableSchedule"]));
}

#[test]
fn what_is_too_late_is_not_begun() {
    let patient = cron(json!({"startingDeadlineSeconds": 600}), json!({}));
    assert_eq!(started(&planned(&patient, &[], "09:09:59")), Some(at("09:00:00")));
    assert_eq!(started(&planned(&patient, &[], "09:10:01")), None);
    let minutely = cron(json!({"schedule": "* * * * *"}), json!({}));
    let plan = planned(&minutely, &[], "10:20:30");
    assert_eq!(
        (started(&plan), reasons(&plan)),
        (Some(at("10:20:00")), vec!["TooManyMissedTimes"])
    );
}

#[test]
fn what_still_runs_is_joined_awaited_or_replaced() {
    let running = [job("a", "09:00:00", "")];
    let with = |policy: &str| cron(json!({"concurrencyPolicy": policy}), active(&["a"]));
    let plan = planned(&with("Allow"), &running, "10:00:00");
    assert_eq!((started(&plan), still_active(&plan)), (Some(at("10:00:00")), vec!["a"]));
    let plan = planned(&with("Forbid"), &running, "10:00:00");
    assert_eq!((started(&plan), reasons(&plan)), (None, vec!["JobAlreadyActive"]));
    let plan = planned(&with("Replace"), &running, "10:00:00");
    assert!(still_active(&plan).is_empty());
    assert_eq!(plan.start.unwrap().replaced[0].name.as_deref(), Some("a"));
    // The one before has ended just now.
    let plan = planned(&with("Forbid"), &[job("a", "09:00:00", "Failed")], "10:00:00");
    assert_eq!(
        (started(&plan), reasons(&plan)),
        (Some(at("10:00:00")), vec!["SawCompletedJob"])
    );
}

#[test]
fn the_status_follows_the_jobs() {
    let jobs = [
        job("done", "09:00:00", "Complete"),
        job("failed", "09:10:00", "Failed"),
        job("runs", "09:20:00", ""),
        job("other", "09:30:00", ""),
    ];
    let known = cron(json!({}), active(&["done", "runs", "gone", "new"]));
    let missing = HashSet::from(["gone".to_owned()]);
    let plan = plan(&known, &jobs, &missing, at("09:40:00"));
    assert_eq!(still_active(&plan), ["runs", "new"]);
    assert_eq!(reasons(&plan), ["SawCompletedJob", "UnexpectedJob", "MissingJob"]);
    assert_eq!(plan.status.last_successful_time.unwrap().0, at("09:00:00"));
}

#[test]
fn a_run_that_was_begun_before_a_crash_is_still_known() {
    let mut ours = Job::clone(&job("c-29935260", "09:00:00", ""));
    let annotation = (
        "batch.kubernetes.io/cronjob-scheduled-timestamp".to_owned(),
        String::new(),
    );
    ours.metadata.annotations = Some([annotation].into());
    let forbids = cron(json!({"concurrencyPolicy": "Forbid"}), json!({}));
    // Although more runs are due, none may join it.
    let plan = planned(&forbids, &[Arc::new(ours)], "10:00:00");
    assert_eq!((started(&plan), still_active(&plan)), (None, vec!["c-29935260"]));
    assert_eq!(reasons(&plan), ["JobAlreadyActive"]);
}

#[test]
fn ended_jobs_beyond_the_limits_go() {
    let jobs = [
        job("c", "09:02:00", "Complete"),
        job("a", "09:00:00", "Complete"),
        job("b", "09:01:00", "Complete"),
        job("x", "09:00:00", "Failed"),
        job("r", "08:00:00", ""),
    ];
    let names = |successful: Option<i32>, failed: Option<i32>| {
        let spec = json!({"successfulJobsHistoryLimit": successful, "failedJobsHistoryLimit": failed});
        let plan = planned(&cron(spec, active(&[])), &jobs, "09:30:00");
        plan.delete
            .iter()
            .map(|job| job.metadata.name.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(Some(1), Some(1)), ["a", "b"]);
    assert_eq!(names(Some(3), Some(0)), ["x"]);
    assert_eq!(names(None, None), Vec::<String>::new());
}
