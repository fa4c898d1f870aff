//! Plans of jobs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::batch::v1::{Job, JobStatus};
use minato_api::k8s::core::v1::Pod;
use serde_json::{Value, json};

use super::backoff::Backoff;
use super::plan::{Plan, Step, plan};
use super::pod::{Failures, NewPod};

/// Long after everything that the pods here did.
const NOW: i64 = 100_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A job with these fields besides its template.
fn job(spec: Value, status: Value) -> Job {
    let mut all = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}});
    let (fields, more) = (all.as_object_mut().unwrap(), spec.as_object().unwrap().clone());
    fields.extend(more);
    let metadata = json!({"name": "j", "namespace": "n", "uid": "job"});
    serde_json::from_value(json!({"metadata": metadata, "spec": all, "status": status})).unwrap()
}

/// A pod of the job in this phase, which ended at second 1000 if it ended.
fn pod(name: &str, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "creationTimestamp": at(500),
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {"containers": [], "nodeName": "node"},
        "status": {"phase": phase, "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": if matches!(phase, "Failed" | "Succeeded") {
                json!({"terminated": {"exitCode": i32::from(phase == "Failed"), "finishedAt": at(1000)}})
            } else {
                json!({"running": {}})
            },
        }]},
    }))
    .unwrap()
}

fn indexed(name: &str, phase: &str, index: i32) -> Pod {
    let mut pod = pod(name, phase);
    let index = index.to_string();
    pod.metadata.annotations = Some([("batch.kubernetes.io/job-completion-index".to_owned(), index)].into());
    pod
}

fn failed_before(mut pod: Pod, times: i32) -> Pod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(
        "batch.kubernetes.io/job-index-failure-count".to_owned(),
        times.to_string(),
    );
    pod
}

fn deleted(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(at(1000)));
    pod
}

fn free(mut pod: Pod) -> Pod {
    pod.metadata.finalizers = None;
    pod
}

fn planned(job: &Job, pods: impl IntoIterator<Item = Pod>) -> Plan {
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    plan(job, &pods, &|_| false, None, true, at(NOW))
}

fn created(plan: &Plan) -> usize {
    match &plan.step {
        Step::Create(new) => new.len(),
        Step::Nothing => 0,
        Step::Delete { .. } => panic!("{:?}", plan.step),
    }
}

fn indexes(plan: &Plan) -> Vec<i32> {
    let Step::Create(new) = &plan.step else {
        return Vec::new();
    };
    new.iter().map(|new| new.index.unwrap()).collect()
}

fn deleted_names(plan: &Plan) -> (Vec<&str>, bool) {
    let Step::Delete { pods, count } = &plan.step else {
        panic!("{:?}", plan.step)
    };
    let mut names: Vec<_> = pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
    names.sort_unstable();
    (names, *count)
}

fn released(plan: &Plan) -> Vec<&str> {
    plan.release
        .iter()
        .map(|pod| pod.metadata.name.as_deref().unwrap())
        .collect()
}

fn uncounted(status: &JobStatus) -> (Vec<String>, Vec<String>) {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap();
    (
        uncounted.succeeded.unwrap_or_default(),
        uncounted.failed.unwrap_or_default(),
    )
}

/// Type and reason of each condition that is true.
fn conditions(status: &JobStatus) -> Vec<(&str, &str)> {
    let all = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True");
    all.map(|condition| (condition.type_.as_str(), condition.reason.as_deref().unwrap()))
        .collect()
}

fn end(plan: &Plan) -> Option<(&str, &str)> {
    plan.end
        .as_ref()
        .map(|end| (end.type_.as_str(), end.reason.as_deref().unwrap()))
}

#[test]
fn never_more_are_active_than_parallelism_and_than_are_missing() {
    let wanted = job(json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 1}));
    assert_eq!(created(&planned(&wanted, [])), 3);
    assert_eq!(
        created(&planned(&wanted, [pod("a", "Running"), pod("b", "Pending")])),
        1
    );
    let nearly = job(json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 3}));
    assert_eq!(created(&planned(&nearly, [])), 2);
    // A pod that succeeded counts at once, although the status does not know yet.
    assert_eq!(created(&planned(&nearly, [pod("a", "Succeeded")])), 1);
    let fewer = job(json!({"parallelism": 1, "completions": 5}), json!({}));
    let plan = planned(&fewer, [pod("a", "Running"), pod("b", "Pending")]);
    assert_eq!(deleted_names(&plan), (vec!["b"], false));
    let unsettled = super::plan::plan(&wanted, &[], &|_| false, None, false, at(NOW));
    assert_eq!(unsettled.step, Step::Nothing);
}

#[test]
fn pods_that_are_leaving_are_replaced_at_once_or_when_they_ended() {
    let wanted = |policy: &str| job(json!({"completions": 1, "podReplacementPolicy": policy}), json!({}));
    let later = |mut pod: Pod| {
        pod.status.as_mut().unwrap().container_statuses = None;
        deleted(pod)
    };
    let plan = planned(&wanted("TerminatingOrFailed"), [later(pod("a", "Running"))]);
    assert_eq!((created(&plan), plan.status.terminating), (1, Some(1)));
    assert_eq!(
        (uncounted(&plan.status).1, released(&plan)),
        (vec!["a".to_owned()], vec!["a"])
    );
    let plan = planned(&wanted("Failed"), [later(pod("a", "Running"))]);
    assert_eq!((created(&plan), plan.status.terminating), (0, Some(1)));
    assert!(released(&plan).is_empty());
    let plan = planned(&wanted("Failed"), [deleted(pod("a", "Failed"))]);
    assert_eq!((created(&plan), plan.status.terminating), (1, Some(0)));
}

#[test]
fn a_pod_is_counted_in_three_steps_and_in_whatever_step_a_crash_comes() {
    let spec = json!({"completions": 3, "parallelism": 1});
    // Ended: the uid goes into the status, and nothing is counted yet.
    let plan = planned(
        &job(spec.clone(), json!({"succeeded": 1})),
        [pod("a", "Succeeded"), pod("b", "Failed")],
    );
    assert_eq!(plan.status.succeeded, Some(1));
    assert_eq!(uncounted(&plan.status), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(released(&plan), ["a", "b"]);
    // A crash before the finalizer went: again, and not twice.
    let known = json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}});
    let again = planned(
        &job(spec.clone(), known.clone()),
        [pod("a", "Succeeded"), pod("b", "Failed")],
    );
    assert_eq!(uncounted(&again.status), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!((released(&again), again.status.succeeded), (vec!["a", "b"], Some(1)));
    // A crash after it: counted, whether the pod is still there or not.
    let after = planned(&job(spec.clone(), known.clone()), [free(pod("a", "Succeeded"))]);
    assert_eq!((after.status.succeeded, after.status.failed), (Some(2), Some(1)));
    assert_eq!(uncounted(&after.status), (vec![], vec![]));
    // Counted, but the cache still shows the finalizer.
    let counted = job(spec, json!({"succeeded": 2, "uncountedTerminatedPods": {}}));
    let pods = [Arc::new(pod("a", "Succeeded"))];
    let behind = super::plan::plan(&counted, &pods, &|uid| uid == "a", None, true, at(NOW));
    assert_eq!(
        (behind.status.succeeded, uncounted(&behind.status).0),
        (Some(2), vec![])
    );
    assert_eq!((created(&behind), released(&behind)), (1, vec![]));
}

#[test]
fn a_pod_known_as_failed_is_not_one_that_succeeded() {
    let known = json!({"uncountedTerminatedPods": {"failed": ["a"]}});
    let plan = planned(&job(json!({"completions": 1}), known), [deleted(pod("a", "Succeeded"))]);
    assert_eq!(uncounted(&plan.status), (vec![], vec!["a".to_owned()]));
    assert_eq!((created(&plan), released(&plan), end(&plan)), (1, vec!["a"], None));
}

#[test]
fn a_job_completes_when_all_is_counted_and_nothing_runs() {
    let wanted = job(json!({"completions": 1}), json!({}));
    let plan = planned(&wanted, [pod("a", "Succeeded")]);
    assert_eq!(conditions(&plan.status), [("SuccessCriteriaMet", "CompletionsReached")]);
    assert_eq!(end(&plan), Some(("Complete", "CompletionsReached")));
    // One too many is taken away first, and is no failure.
    let plan = planned(&wanted, [pod("a", "Succeeded"), pod("b", "Running")]);
    assert_eq!((deleted_names(&plan), end(&plan)), ((vec!["b"], false), None));
    let none = job(json!({"completions": 0}), json!({}));
    assert_eq!(end(&planned(&none, [])), Some(("Complete", "CompletionsReached")));
}

#[test]
fn a_work_queue_is_done_when_one_succeeded_and_all_ended() {
    let wanted = job(json!({"parallelism": 2}), json!({}));
    assert_eq!(created(&planned(&wanted, [])), 2);
    let plan = planned(&wanted, [pod("a", "Succeeded"), pod("b", "Running")]);
    assert_eq!((created(&plan), end(&plan)), (0, None));
    let plan = planned(&wanted, [pod("a", "Succeeded"), pod("b", "Failed")]);
    assert_eq!(end(&plan), Some(("Complete", "CompletionsReached")));
}

#[test]
fn too_many_failures_end_the_job() {
    let wanted = job(
        json!({"completions": 2, "parallelism": 2, "backoffLimit": 1}),
        json!({"failed": 1}),
    );
    let plan = planned(&wanted, [pod("a", "Failed"), pod("b", "Running")]);
    assert_eq!(conditions(&plan.status), [("FailureTarget", "BackoffLimitExceeded")]);
    assert_eq!((deleted_names(&plan), end(&plan)), ((vec!["b"], true), None));
    // What is leaving is waited for.
    let target = json!([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]);
    let failing = job(json!({"completions": 2}), json!({"failed": 2, "conditions": target}));
    assert_eq!(end(&planned(&failing, [free(deleted(pod("b", "Running")))])), None);
    let plan = planned(&failing, [free(pod("b", "Failed"))]);
    assert_eq!(end(&plan), Some(("Failed", "BackoffLimitExceeded")));
    assert_eq!(plan.end.unwrap().message.as_deref(), Some("m"));
}

#[test]
fn restarts_in_place_use_up_the_limit() {
    let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": []}});
    let wanted = |limit: i32| {
        job(
            json!({"completions": 1, "backoffLimit": limit, "template": template}),
            json!({}),
        )
    };
    let mut restarted = pod("a", "Running");
    restarted.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 2;
    assert_eq!(planned(&wanted(3), [restarted.clone()]).step, Step::Nothing);
    let plan = planned(&wanted(2), [restarted]);
    assert_eq!(conditions(&plan.status), [("FailureTarget", "BackoffLimitExceeded")]);
    assert_eq!(planned(&wanted(0), [pod("a", "Running")]).step, Step::Nothing);
}

#[test]
fn a_deadline_ends_the_job_and_wakes_us() {
    let spec = json!({"completions": 1, "activeDeadlineSeconds": 100});
    let since = |seconds: i64| json!({"startTime": at(NOW - seconds)});
    let plan = planned(&job(spec.clone(), since(40)), [pod("a", "Running")]);
    assert_eq!((plan.wake, plan.step), (Some(Duration::from_secs(60)), Step::Nothing));
    let plan = planned(&job(spec.clone(), since(100)), [pod("a", "Running")]);
    assert_eq!(conditions(&plan.status), [("FailureTarget", "DeadlineExceeded")]);
    assert_eq!(deleted_names(&plan), (vec!["a"], true));
    let plan = planned(&job(spec, json!({})), []);
    assert_eq!(
        (plan.wake, plan.status.start_time.unwrap().0),
        (Some(Duration::from_secs(100)), at(NOW))
    );
}

#[test]
fn failed_pods_are_replaced_after_a_wait() {
    let wanted = job(json!({"completions": 1, "parallelism": 1}), json!({}));
    let pods = [Arc::new(pod("a", "Failed"))];
    let early = super::plan::plan(&wanted, &pods, &|_| false, None, true, at(1004));
    assert_eq!((created(&early), early.wake), (0, Some(Duration::from_secs(6))));
    let counted = job(json!({"completions": 1}), json!({"failed": 1}));
    let pods = [Arc::new(free(pod("a", "Failed")))];
    // After a restart the pods that are there tell how it went before.
    let restarted = super::plan::plan(&counted, &pods, &|_| false, None, true, at(1004));
    assert_eq!((created(&restarted), restarted.wake), (0, Some(Duration::from_secs(6))));
    let known = super::plan::plan(&counted, &pods, &|_| false, Some(Backoff::default()), true, at(1004));
    assert_eq!(created(&known), 1);
    assert_eq!(
        created(&super::plan::plan(&counted, &pods, &|_| false, None, true, at(1010))),
        1
    );
}

#[test]
fn suspending_takes_all_away_and_resuming_starts_the_clock() {
    let status = json!({"startTime": at(5)});
    let plan = planned(
        &job(json!({"completions": 2, "suspend": true}), status),
        [pod("a", "Running")],
    );
    assert_eq!(deleted_names(&plan), (vec!["a"], false));
    assert_eq!(conditions(&plan.status), [("Suspended", "JobSuspended")]);
    assert_eq!((plan.status.start_time, plan.notes[0].1.as_str()), (None, "Suspended"));
    let suspended = json!({"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]});
    let plan = planned(&job(json!({"completions": 2, "parallelism": 2}), suspended), []);
    assert_eq!((created(&plan), conditions(&plan.status)), (2, vec![]));
    assert_eq!(plan.status.conditions.unwrap()[0].reason.as_deref(), Some("JobResumed"));
    assert_eq!(
        (plan.status.start_time.unwrap().0, plan.notes[0].1.as_str()),
        (at(NOW), "Resumed")
    );
}

#[test]
fn each_index_is_done_once() {
    let spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
    let status = json!({"completedIndexes": "1", "succeeded": 1});
    let plan = planned(&job(spec.clone(), status.clone()), [indexed("a", "Running", 0)]);
    assert_eq!(indexes(&plan), [2, 3]);
    let plan = planned(
        &job(spec.clone(), status.clone()),
        [indexed("a", "Succeeded", 0), indexed("b", "Succeeded", 9)],
    );
    assert_eq!(plan.status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!((plan.status.succeeded, indexes(&plan)), (Some(2), vec![2, 3, 4]));
    assert_eq!(
        (uncounted(&plan.status), released(&plan)),
        ((vec![], vec![]), vec!["a", "b"])
    );
    // Again after a crash before the finalizer went.
    let known = json!({"completedIndexes": "0,1", "succeeded": 2});
    let plan = planned(&job(spec.clone(), known), [indexed("a", "Succeeded", 0)]);
    assert_eq!((plan.status.succeeded, released(&plan)), (Some(2), vec!["a"]));
    // Two of one index, and one beyond the completions.
    let twice = [
        indexed("a", "Pending", 0),
        indexed("b", "Running", 0),
        indexed("c", "Running", 7),
    ];
    assert_eq!(
        deleted_names(&planned(&job(spec, status), twice)),
        (vec!["a", "c"], false)
    );
}

#[test]
fn indexes_fail_each_for_itself() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": i32::MAX,
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 1,
    });
    let wanted = job(spec.clone(), json!({}));
    // The failed pod is kept until there is one in its place, which knows of it.
    let plan = planned(&wanted, [failed_before(indexed("a", "Failed", 0), 0)]);
    let again = NewPod {
        index: Some(0),
        failures: Some(Failures { counted: 1, ignored: 0 }),
    };
    let first = |index| NewPod {
        index: Some(index),
        failures: Some(Failures::default()),
    };
    assert_eq!(plan.step, Step::Create(vec![again, first(1), first(2)]));
    assert!(released(&plan).is_empty());
    let pods = [
        failed_before(indexed("a", "Failed", 0), 0),
        failed_before(indexed("b", "Running", 0), 1),
    ];
    assert_eq!(released(&planned(&wanted, pods)), ["a"]);
    let pods = [Arc::new(failed_before(indexed("a", "Failed", 0), 0))];
    let early = super::plan::plan(&wanted, &pods, &|_| false, None, true, at(1003));
    assert_eq!(
        (indexes(&early), early.wake),
        (vec![1, 2], Some(Duration::from_secs(7)))
    );
    // The second failure is the last of an index.
    let plan = planned(&wanted, [failed_before(indexed("b", "Failed", 0), 1)]);
    assert_eq!(
        (plan.status.failed_indexes.as_deref(), indexes(&plan)),
        (Some("0"), vec![1, 2])
    );
    assert_eq!(released(&plan), ["b"]);
    let rest = json!({"completedIndexes": "1,2", "succeeded": 2, "failedIndexes": "0"});
    assert_eq!(
        end(&planned(&job(spec.clone(), rest), [])),
        Some(("Failed", "FailedIndexes"))
    );
    let plan = planned(&job(spec, json!({"failedIndexes": "0,2"})), []);
    assert_eq!(end(&plan), Some(("Failed", "MaxFailedIndexesExceeded")));
}

#[test]
fn policies_judge_failures_and_success() {
    let rules = json!([
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}},
    ]);
    let wanted = job(
        json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}}),
        json!({}),
    );
    let mut disrupted = pod("a", "Failed");
    let condition = json!([{"type": "DisruptionTarget", "status": "True"}]);
    disrupted.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
    let plan = planned(&wanted, [disrupted]);
    assert_eq!((created(&plan), released(&plan)), (1, vec!["a"]));
    assert_eq!(uncounted(&plan.status), (vec![], vec![]));
    let plan = planned(&wanted, [pod("a", "Failed")]);
    assert_eq!(conditions(&plan.status), [("FailureTarget", "PodFailurePolicy")]);
    assert_eq!(end(&plan), Some(("Failed", "PodFailurePolicy")));

    let spec = json!({
        "completionMode": "Indexed", "completions": 9, "parallelism": 9,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
    });
    let plan = planned(
        &job(spec, json!({})),
        [indexed("a", "Succeeded", 0), indexed("b", "Running", 1)],
    );
    assert_eq!(conditions(&plan.status), [("SuccessCriteriaMet", "SuccessPolicy")]);
    assert_eq!(deleted_names(&plan), (vec!["b"], false));
}

#[test]
fn a_deleted_job_lets_all_go_and_makes_nothing() {
    let mut wanted = job(json!({"completions": 5}), json!({}));
    wanted.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(at(1)));
    let plan = planned(&wanted, [pod("a", "Running"), pod("b", "Failed")]);
    assert_eq!(plan.step, Step::Nothing);
    assert_eq!(released(&plan), ["a", "b"]);
}
