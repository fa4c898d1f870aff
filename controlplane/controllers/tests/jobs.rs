//! Jobs and what begins and clears them, against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Cluster, cluster};
use minato_api::k8s::batch::v1::{CronJob, Job};
use minato_api::k8s::core::v1::{ConfigMap, Event, Pod};
use minato_api::kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use minato_controllers::{ControllerManager, ControllerManagerConfig};
use minato_runtime::{Metrics, Runtime};
use serde_json::{Value, json};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

fn job(name: &str, spec: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    let mut all = json!({"template": template});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": all})
}

/// Plays kubelet: brings pods to the phase that `phase` gives.
fn play(cluster: &Cluster, phase: fn(&Pod) -> &'static str) {
    let api = cluster.api::<Pod>();
    cluster.tasks.spawn("played kubelet", async move {
        loop {
            for pod in api.list(&ListParams::default()).await.unwrap().items {
                let name = pod.metadata.name.clone().unwrap();
                let now = self::phase(&pod);
                // What another actor changes at the same time is seen on the next round.
                if pod.metadata.deletion_timestamp.is_some() {
                    let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
                } else if !matches!(now, "Succeeded" | "Failed") && now != phase(&pod) {
                    let status = json!({"status": {"phase": phase(&pod)}});
                    let _ = api
                        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                        .await;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

fn succeed(_: &Pod) -> &'static str {
    "Succeeded"
}

/// Whether the job has this condition, for this reason.
fn holds(job: &Job, type_: &str, reason: &str) -> bool {
    let status = job.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| {
        condition.type_ == type_ && condition.status == "True" && condition.reason.as_deref() == Some(reason)
    })
}

fn is_held(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_its_pods_to_completion() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster, succeed);
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    let made = cluster
        .create(&jobs, job("work", json!({"completions": 3, "parallelism": 2})))
        .await;
    let complete = |all: &[Job]| holds(&all[0], "Complete", "CompletionsReached");
    let ended = cluster.until(&jobs, "completion", complete).await.remove(0);
    let status = ended.status.unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), None, None));
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert!(status.start_time.unwrap().0 <= status.completion_time.unwrap().0);
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    let all = cluster
        .until(&pods, "three free pods", |all| !all.iter().any(is_held))
        .await;
    assert_eq!(all.len(), 3);
    let labels = all[0].metadata.labels.clone().unwrap();
    assert_eq!(labels["batch.kubernetes.io/job-name"], "work");
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], made.metadata.uid.unwrap());
    let events = cluster.api::<Event>();
    let told = |all: &[Event]| {
        let count = |reason: &str| {
            all.iter()
                .filter(|event| event.reason.as_deref() == Some(reason))
                .count()
        };
        count("Completed") == 1 && count("SuccessfulCreate") == 3
    };
    cluster.until(&events, "events", told).await;

    // Its pods go with it, whatever still holds them.
    pods.patch(
        all[0].metadata.name.as_deref().unwrap(),
        &PatchParams::default(),
        &Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}})),
    )
    .await
    .unwrap();
    jobs.delete("work", &DeleteParams::background()).await.unwrap();
    cluster.until(&pods, "no pods", |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexed_job_has_a_pod_for_each_index() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    let spec = json!({
        "completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
    });
    cluster.create(&jobs, job("work", spec)).await;
    let all = cluster.until(&pods, "four pods", |all| all.len() == 4).await;
    let mut hosts: Vec<_> = all
        .iter()
        .map(|pod| pod.spec.clone().unwrap().hostname.unwrap())
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["work-0", "work-1", "work-2", "work-3"]);
    assert!(all.iter().all(is_held));
    play(&cluster, |pod| {
        let index = &pod.metadata.annotations.as_ref().unwrap()["batch.kubernetes.io/job-completion-index"];
        if index == "2" { "Failed" } else { "Succeeded" }
    });
    let failed = |all: &[Job]| holds(&all[0], "Failed", "FailedIndexes");
    let status = cluster.until(&jobs, "the end", failed).await.remove(0).status.unwrap();
    assert_eq!(status.completed_indexes.as_deref(), Some("0,1,3"));
    assert_eq!(status.failed_indexes.as_deref(), Some("2"));
    assert_eq!((status.succeeded, status.failed), (Some(3), Some(1)));
    assert_eq!(status.completion_time, None);
    cluster.until(&pods, "free pods", |all| !all.iter().any(is_held)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_end_a_job_and_take_the_others_away() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    let spec = json!({"completions": 2, "parallelism": 2, "backoffLimit": 0});
    cluster.create(&jobs, job("work", spec)).await;
    let all = cluster.until(&pods, "two pods", |all| all.len() == 2).await;
    let failed = json!({"status": {"phase": "Failed"}});
    let first = all[0].metadata.name.clone().unwrap();
    pods.patch_status(&first, &PatchParams::default(), &Patch::Merge(&failed))
        .await
        .unwrap();
    let ended = |all: &[Job]| holds(&all[0], "Failed", "BackoffLimitExceeded");
    let ended = cluster.until(&jobs, "the end", ended).await.remove(0);
    assert!(holds(&ended, "FailureTarget", "BackoffLimitExceeded"));
    // The other one was taken away, and counts as failed.
    assert_eq!(ended.status.unwrap().failed, Some(2));
    let left = cluster.until(&pods, "one pod", |all| all.len() == 1).await;
    assert_eq!(left[0].metadata.name, Some(first));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_suspended_resumed_and_scaled() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    let spec = json!({"completions": 9, "parallelism": 2, "suspend": true});
    cluster.create(&jobs, job("work", spec)).await;
    let suspended = |all: &[Job]| holds(&all[0], "Suspended", "JobSuspended");
    let waiting = cluster.until(&jobs, "a suspended job", suspended).await.remove(0);
    assert_eq!(waiting.status.unwrap().start_time, None);
    cluster.patch(&jobs, "work", json!({"spec": {"suspend": false}})).await;
    cluster.until(&pods, "two pods", |all| all.len() == 2).await;
    cluster.patch(&jobs, "work", json!({"spec": {"parallelism": 3}})).await;
    cluster.until(&pods, "three pods", |all| all.len() == 3).await;
    let active = |count: Option<i32>| {
        move |all: &[Job]| {
            let status = all[0].status.clone().unwrap_or_default();
            status.active == count && status.start_time.is_some() == count.is_some()
        }
    };
    cluster.until(&jobs, "three active", active(Some(3))).await;
    cluster.patch(&jobs, "work", json!({"spec": {"suspend": true}})).await;
    let after = cluster.until(&jobs, "none active", active(None)).await.remove(0);
    assert_eq!(after.status.unwrap().failed, None);
    cluster.until(&pods, "no pods", |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_job_leaves_behind_are_free() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    cluster
        .create(&jobs, job("work", json!({"completions": 3, "parallelism": 3})))
        .await;
    let held = |all: &[Pod]| all.len() == 3 && all.iter().all(is_held);
    let all = cluster.until(&pods, "three pods", held).await;
    // One whose labels change is let go, and replaced.
    let name = all[0].metadata.name.clone().unwrap();
    let labels = json!({"batch.kubernetes.io/controller-uid": "another"});
    cluster
        .patch(&pods, &name, json!({"metadata": {"labels": labels}}))
        .await;
    let released = |all: &[Pod]| all.len() == 4 && all.iter().filter(|pod| is_held(pod)).count() == 3;
    cluster.until(&pods, "a release", released).await;
    jobs.delete("work", &DeleteParams::orphan()).await.unwrap();
    cluster.until(&jobs, "no job", |all| all.is_empty()).await;
    let free = |pod: &Pod| !is_held(pod) && pod.metadata.owner_references.iter().flatten().next().is_none();
    cluster.until(&pods, "four free pods", |all| all.iter().all(free)).await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 4);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_manager_s_job_is_left_alone_and_orphans_are_adopted() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster, succeed);
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    cluster
        .create(&jobs, job("other", json!({"managedBy": "example.com/other"})))
        .await;
    let orphan = json!({
        "metadata": {"name": "orphan", "labels": {"app": "mine"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
    });
    let mine = json!({
        "completions": 2, "manualSelector": true, "selector": {"matchLabels": {"app": "mine"}},
        "template": {"metadata": {"labels": {"app": "mine"}}, "spec": orphan["spec"]},
    });
    cluster.create(&pods, orphan).await;
    cluster.create(&jobs, job("mine", mine)).await;
    let complete = |all: &[Job]| all.iter().any(|job| holds(job, "Complete", "CompletionsReached"));
    let all = cluster.until(&jobs, "completion", complete).await;
    let other = all
        .iter()
        .find(|job| job.metadata.name.as_deref() == Some("other"))
        .unwrap();
    assert_eq!(other.status.clone().unwrap_or_default(), Default::default());
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_pods_counts_them_all() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster, succeed);
    let jobs = cluster.api::<Job>();
    let begun = std::time::Instant::now();
    cluster
        .create(&jobs, job("work", json!({"completions": 100, "parallelism": 50})))
        .await;
    let complete = |all: &[Job]| holds(&all[0], "Complete", "CompletionsReached");
    let status = cluster
        .until(&jobs, "completion", complete)
        .await
        .remove(0)
        .status
        .unwrap();
    println!("100 pods after {:?}", begun.elapsed());
    assert_eq!((status.succeeded, status.failed), (Some(100), None));
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!((pods.len(), pods.iter().filter(|pod| is_held(pod)).count()), (100, 0));
    cluster.stop().await;
}

/// The controllers stop and start anew in the middle of everything; all the while no more pods are active than allowed,
/// and in the end no more were made than needed and each was counted once.
#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_lost_or_counted_twice_when_the_controllers_restart() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster, succeed);
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    let indexed = json!({"completions": 12, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    cluster
        .create(&jobs, job("plain", json!({"completions": 20, "parallelism": 4})))
        .await;
    cluster.create(&jobs, job("indexed", indexed)).await;
    let maps = cluster.api::<ConfigMap>();
    cluster.create(&maps, json!({"metadata": {"name": "leader"}})).await;
    cluster.controllers.stop().await;
    let mut rounds = 0_u64;
    let all = loop {
        let tasks = cluster.tasks.child();
        let runtime = Runtime::new(cluster.client.clone(), tasks.clone(), Metrics::new());
        let controllers = ControllerManager::start(ControllerManagerConfig::default(), &runtime);
        tokio::time::sleep(Duration::from_millis(20 + rounds * 7 % 40)).await;
        controllers.stop().await;
        tasks.stop().await;
        // What was sent last may still be on its way to the disk. As a new leader's lease does, this comes after it.
        let mark = json!({"metadata": {"annotations": {"example.com/round": rounds.to_string()}}});
        cluster.patch(&maps, "leader", mark).await;
        for (name, most) in [("plain", 4), ("indexed", 3)] {
            let of = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
            let items = pods.list(&of).await.unwrap().items;
            let active = items
                .iter()
                .filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed"))
                .count();
            assert!(active <= most, "{name}: {active} active");
        }
        let all = jobs.list(&ListParams::default()).await.unwrap().items;
        if all.iter().all(|job| holds(job, "Complete", "CompletionsReached")) {
            break all;
        }
        rounds += 1;
        assert!(rounds < 500, "{all:?}");
    };
    println!("{rounds} restarts");
    assert!(rounds > 2);
    for job in all {
        let status = job.status.unwrap();
        let expected = match status.completed_indexes.as_deref() {
            None => (Some(20), None),
            Some(indexes) => {
                assert_eq!(indexes, "0-11");
                (Some(12), None)
            }
        };
        assert_eq!((status.succeeded, status.failed), expected);
    }
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 20 + 12);
    cluster.tasks.stop().await;
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_job_is_deleted_when_its_time_is_up() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster, succeed);
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    cluster.create(&jobs, job("kept", json!({}))).await;
    cluster
        .create(&jobs, job("gone", json!({"ttlSecondsAfterFinished": 1})))
        .await;
    let ended = |all: &[Job]| {
        all.iter()
            .filter(|job| holds(job, "Complete", "CompletionsReached"))
            .count()
            == 2
    };
    cluster.until(&jobs, "two ended jobs", ended).await;
    let left = cluster.until(&jobs, "one job", |all| all.len() == 1).await;
    assert_eq!(left[0].metadata.name.as_deref(), Some("kept"));
    // Its pods went before it.
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
    cluster
        .patch(&jobs, "kept", json!({"spec": {"ttlSecondsAfterFinished": 0}}))
        .await;
    cluster.until(&jobs, "no job", |all| all.is_empty()).await;
    cluster.stop().await;
}

/// Makes a cron job believe that its last run was years ago.
async fn set_back(crons: &minato_api::kube::Api<CronJob>) {
    let long_ago = json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}});
    crons
        .patch_status("cron", &PatchParams::default(), &Patch::Merge(&long_ago))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_begins_follows_and_clears_its_jobs() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (crons, jobs) = (cluster.api::<CronJob>(), cluster.api::<Job>());
    let template = job("", json!({}))["spec"].clone();
    let cron = json!({
        "metadata": {"name": "cron"},
        "spec": {
            "schedule": "0 0 1 1 *", "timeZone": "Asia/Tokyo", "concurrencyPolicy": "Forbid", "suspend": true,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": template},
        },
    });
    cluster.create(&crons, cron).await;
    set_back(&crons).await;
    cluster.patch(&crons, "cron", json!({"spec": {"suspend": false}})).await;
    let first = cluster.until(&jobs, "a job", |all| all.len() == 1).await.remove(0);
    let time = first.metadata.annotations.as_ref().unwrap()["batch.kubernetes.io/cronjob-scheduled-timestamp"].clone();
    assert!(time.ends_with("-01-01T00:00:00+09:00"), "{time}");
    let minutes = time.parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    assert_eq!(first.metadata.name, Some(format!("cron-{minutes}")));
    assert_eq!(first.metadata.labels.as_ref().unwrap()["a"], "b");
    let active = |count: usize| {
        move |all: &[CronJob]| {
            let status = all[0].status.clone().unwrap_or_default();
            status.active.map_or(0, |active| active.len()) == count
        }
    };
    let now = cluster
        .until(&crons, "an active job", active(1))
        .await
        .remove(0)
        .status
        .unwrap();
    assert_eq!(now.last_schedule_time.unwrap().0.as_second() / 60, minutes);

    // Another run is due while the first goes on: it is not begun, and then it replaces the first.
    let forbidden = json!({"spec": {"schedule": "0 0 1 2 *"}});
    cluster.patch(&crons, "cron", forbidden).await;
    set_back(&crons).await;
    let events = cluster.api::<Event>();
    let told = |all: &[Event]| {
        all.iter()
            .any(|event| event.reason.as_deref() == Some("JobAlreadyActive"))
    };
    cluster.until(&events, "a refusal", told).await;
    cluster
        .patch(&crons, "cron", json!({"spec": {"concurrencyPolicy": "Replace"}}))
        .await;
    let replaced = |all: &[Job]| all.len() == 1 && all[0].metadata.name != first.metadata.name;
    cluster.until(&jobs, "another job", replaced).await;
    cluster.until(&crons, "one active job", active(1)).await;

    play(&cluster, succeed);
    let succeeded = |all: &[CronJob]| active(0)(all) && all[0].status.as_ref().unwrap().last_successful_time.is_some();
    cluster.until(&crons, "success", succeeded).await;
    cluster
        .patch(&crons, "cron", json!({"spec": {"successfulJobsHistoryLimit": 0}}))
        .await;
    cluster.until(&jobs, "no job", |all| all.is_empty()).await;
    cluster.stop().await;
}
