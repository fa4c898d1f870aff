//! Jobs, cron jobs and daemon sets by the real kubectl, with scheduler and controllers; pods run by assertion.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::kubectl_of;
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use minato_auth::UserInfo;
use minato_control_plane::ControlPlane;
use minato_test_support::Kubectl;
use serde_json::{Value, json};

fn node(name: &str) -> Value {
    let capacity = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "allocatable": capacity, "capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

const DAEMON_SET: &str = r#"{
  "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
  "spec": {
    "selector": {"matchLabels": {"app": "agent"}},
    "template": {
      "metadata": {"labels": {"app": "agent"}},
      "spec": {"containers": [{"name": "c", "image": "one"}]}
    }
  }
}"#;

/// Plays kubelet: pods of jobs succeed, others become ready.
fn play(plane: &ControlPlane) {
    let client = plane.server().client_as(UserInfo {
        name: "kubelet".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    });
    let api: Api<Pod> = Api::namespaced(client, "default");
    tokio::spawn(async move {
        // Ends with the control plane.
        while let Ok(pods) = api.list(&ListParams::default()).await {
            for pod in pods.items {
                run(&api, &pod).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// What another actor changes at the same time is seen on the next round.
async fn run(api: &Api<Pod>, pod: &Pod) {
    let name = pod.metadata.name.as_deref().unwrap();
    let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = api.delete(name, &DeleteParams::default().grace_period(0)).await;
    } else if placed && phase == "Pending" {
        let ends = pod
            .metadata
            .labels
            .iter()
            .flatten()
            .any(|(key, _)| key == "batch.kubernetes.io/job-name");
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = match ends {
            true => json!({"status": {"phase": "Succeeded"}}),
            false => json!({"status": {"phase": "Running", "conditions": ready}}),
        };
        let _ = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
    }
}

async fn until(kubectl: &Kubectl, arguments: &[&str], reached: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = kubectl.ok("", arguments).await;
        if reached(&text) {
            return;
        }
        assert!(Instant::now() < deadline, "kubectl {arguments:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_and_daemon_sets_roll_forth_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let plane = common::start(directory.path()).await;
    let kubectl = kubectl_of(&plane);
    for name in ["n1", "n2"] {
        kubectl.ok(&node(name).to_string(), &["create", "-f", "-"]).await;
    }
    play(&plane);

    kubectl
        .ok("", &["create", "job", "work", "--image=i", "--", "true"])
        .await;
    kubectl
        .ok("", &["wait", "--for=condition=complete", "job/work", "--timeout=20s"])
        .await;
    let row = kubectl.ok("", &["get", "job", "work", "--no-headers"]).await;
    assert_eq!(
        row.split_whitespace().take(3).collect::<Vec<_>>(),
        ["work", "Complete", "1/1"]
    );
    let described = kubectl.ok("", &["describe", "job", "work"]).await;
    assert!(
        described.contains("Completed") && described.contains("1 Succeeded / 0 Failed"),
        "{described}"
    );
    kubectl
        .ok(
            "",
            &[
                "create",
                "cronjob",
                "tick",
                "--image=i",
                "--schedule=@yearly",
                "--",
                "true",
            ],
        )
        .await;
    kubectl
        .ok("", &["create", "job", "by-hand", "--from=cronjob/tick"])
        .await;
    kubectl
        .ok(
            "",
            &["wait", "--for=condition=complete", "job/by-hand", "--timeout=20s"],
        )
        .await;
    until(
        &kubectl,
        &["get", "cronjob", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}"],
        |time| !time.is_empty(),
    )
    .await;
    kubectl.ok("", &["delete", "job/work", "cronjob/tick"]).await;
    until(&kubectl, &["get", "pods,jobs", "-o", "name"], str::is_empty).await;

    let rolled_out = ["rollout", "status", "daemonset/agent", "--timeout=20s"];
    kubectl.ok(DAEMON_SET, &["apply", "-f", "-"]).await;
    kubectl.ok("", &rolled_out).await;
    kubectl.ok("", &["set", "image", "daemonset/agent", "c=two"]).await;
    kubectl.ok("", &rolled_out).await;
    let images = [
        "get",
        "pods",
        "-o",
        "jsonpath={range .items[*]}{.spec.nodeName}={.spec.containers[0].image} {end}",
    ];
    let sorted = |text: &str| {
        let mut all: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        all.sort();
        all.join(" ")
    };
    until(&kubectl, &images, |text| sorted(text) == "n1=two n2=two").await;
    let history = kubectl
        .ok("", &["rollout", "history", "daemonset/agent", "--revision=1"])
        .await;
    assert!(history.contains("one"), "{history}");
    kubectl.ok("", &["rollout", "undo", "daemonset/agent"]).await;
    kubectl.ok("", &rolled_out).await;
    until(&kubectl, &images, |text| sorted(text) == "n1=one n2=one").await;
    kubectl.ok("", &["delete", "daemonset/agent"]).await;
    until(
        &kubectl,
        &["get", "pods,controllerrevisions", "-o", "name"],
        str::is_empty,
    )
    .await;
    plane.stop().await;
}
