//! kubectl's verbs for stateful sets and disruption budgets: rollouts, ways back, drains.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{kubectl_of, start, until_ok};
use minato_auth::UserInfo;
use minato_control_plane::ControlPlane;
use minato_meta::api::k8s::core::v1::Pod;
use minato_meta::api::kube::Api;
use minato_meta::api::kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// Plays the kubelet of `n1`: what is placed there runs, what is to go goes.
async fn play_kubelet(pods: Api<Pod>) {
    loop {
        let here = ListParams::default().fields("spec.nodeName=n1");
        for pod in pods.list(&here).await.unwrap().items {
            let name = pod.metadata.name.unwrap();
            let phase = pod.status.and_then(|status| status.phase);
            // What another changes at the same time is seen on the next round.
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            } else if phase.as_deref() == Some("Pending") {
                let status =
                    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
                let _ = pods
                    .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                    .await;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
        },
    })
}

fn pods_of(plane: &ControlPlane) -> Api<Pod> {
    let admin = UserInfo {
        name: "kubelet".to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..UserInfo::default()
    };
    Api::namespaced(plane.server().client_as(admin), "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_rolls_stateful_sets_out_and_back_and_drains_within_budgets() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let kubectl = kubectl_of(&plane);
    let kubelet = tokio::spawn(play_kubelet(pods_of(&plane)));
    kubectl.ok(&node().to_string(), &["create", "-f", "-"]).await;
    until_ok(plane.kubeconfig(), &["get", "serviceaccount", "default"]).await;
    kubectl.ok(&set().to_string(), &["apply", "-f", "-"]).await;
    let done = ["rollout", "status", "sts/web", "--timeout=30s"];
    let said = kubectl.ok("", &done).await;
    assert!(
        said.contains("partitioned roll out complete: 3 new pods have been updated")
            || said.contains("rolling update complete 3 pods at revision"),
        "{said}"
    );
    let images = [
        "get",
        "pods",
        "-l",
        "app=web",
        "-o",
        "jsonpath={.items[*].spec.containers[0].image}",
    ];
    kubectl.ok("", &["set", "image", "sts/web", "c=two"]).await;
    kubectl.ok("", &done).await;
    assert_eq!(kubectl.ok("", &images).await, "two two two");
    let history = kubectl.ok("", &["rollout", "history", "sts/web"]).await;
    let revisions: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(revisions.ends_with(&["REVISION", "1", "2"]), "{history}");
    kubectl.ok("", &["rollout", "undo", "sts/web"]).await;
    kubectl.ok("", &done).await;
    assert_eq!(kubectl.ok("", &images).await, "one one one");
    kubectl.ok("", &["rollout", "restart", "sts/web"]).await;
    kubectl.ok("", &done).await;
    kubectl
        .ok("", &["scale", "sts/web", "--replicas=2", "--timeout=30s"])
        .await;

    kubectl
        .ok("", &["create", "pdb", "web", "--selector=app=web", "--min-available=2"])
        .await;
    let counted = "--for=jsonpath={.status.expectedPods}=2";
    kubectl.ok("", &["wait", "pdb/web", counted, "--timeout=20s"]).await;
    let (drained, said) = kubectl.said("", &["drain", "n1", "--timeout=2s"]).await;
    assert!(!drained);
    let refusal = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert!(said.contains(refusal), "{said}");
    kubectl
        .ok("", &["patch", "pdb", "web", "-p", r#"{"spec":{"minAvailable":0}}"#])
        .await;
    // They come back, and wait for a node.
    kubectl.ok("", &["drain", "n1", "--timeout=30s"]).await;
    let waiting = [
        "wait",
        "pod/web-0",
        "--for=jsonpath={.status.phase}=Pending",
        "--timeout=20s",
    ];
    kubectl.ok("", &waiting).await;
    kubelet.abort();
    plane.stop().await;
}
