//! Pods get nodes: the scheduler in a whole control plane.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{kubectl, start, until_ok};
use serde_json::{Value, json};

fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn deployment(name: &str, replicas: i32, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": name}},
                    }],
                },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_spread_never_overcommitted_and_wait_for_room() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    for object in [node("n1", "a", "2"), node("n2", "b", "2"), deployment("web", 5, "1")] {
        let (success, text) = kubectl(&admin, &object.to_string(), &["create", "-f", "-"]).await;
        assert!(success, "{text}");
    }
    // Four fit; the fifth says why it waits.
    let waiting = &[
        "get",
        "pods",
        "-o",
        "jsonpath={range .items[*]}{.status.conditions[?(@.reason=='Unschedulable')].message}{end}",
    ];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let (_, text) = kubectl(&admin, "", waiting).await;
        if text.contains("0/2 nodes are available: 2 Insufficient cpu.") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no reason: {text}");
    }
    let placed = || async {
        let (_, text) = kubectl(
            &admin,
            "",
            &[
                "get",
                "pods",
                "-o",
                "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}",
            ],
        )
        .await;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    };
    assert_eq!(
        placed().await,
        BTreeMap::from([("n1".to_owned(), 2), ("n2".to_owned(), 2)])
    );
    // A cordoned node is no help, one that takes pods is.
    let mut cordoned = node("n3", "a", "4");
    cordoned["spec"] = json!({"unschedulable": true});
    kubectl(&admin, &cordoned.to_string(), &["create", "-f", "-"]).await;
    assert_eq!(placed().await.len(), 2);
    until_ok(&admin, &["uncordon", "n3"]).await;
    until_ok(
        &admin,
        &["wait", "--for=condition=PodScheduled", "pods", "--all", "--timeout=20s"],
    )
    .await;
    assert_eq!(placed().await["n3"], 1);
    let (_, events) = kubectl(&admin, "", &["get", "events", "-o", "jsonpath={.items[*].message}"]).await;
    assert!(events.contains("Successfully assigned default/web-"), "{events}");
    plane.stop().await;
}
