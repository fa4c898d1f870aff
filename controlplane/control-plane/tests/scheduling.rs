//! Pods get nodes: the scheduler in a whole control plane.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{kubectl, start, until_ok};
use minato_control_plane::{Config, ControlPlane, Role, Workloads};
use minato_scheduler::{Configuration, SchedulerConfig};
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

fn pod(name: &str, class: Option<&str>, cpu: &str) -> Value {
    let mut value = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    if let Some(class) = class {
        value["spec"]["priorityClassName"] = json!(class);
    }
    value
}

async fn create(admin: &std::path::Path, objects: &[Value]) {
    for object in objects {
        let (success, text) = kubectl(admin, &object.to_string(), &["create", "-f", "-"]).await;
        assert!(success, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn less_important_pods_make_room_within_their_budgets() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    create(&admin, &[class, node("n1", "a", "1"), node("n2", "b", "1")]).await;
    create(&admin, &[pod("kept", None, "1"), pod("taken", None, "1")]).await;
    let scheduled = |name: &'static str| ["wait", "--for=condition=PodScheduled", name, "--timeout=20s"];
    until_ok(&admin, &scheduled("pod/kept")).await;
    until_ok(&admin, &scheduled("pod/taken")).await;
    // Until a controller has looked at it, the budget allows nothing.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}});
    // It stays to be looked at after it was told to go.
    let mut taken = json!({"metadata": {"finalizers": ["example.com/hold"]}}).to_string();
    create(&admin, &[budget]).await;
    until_ok(&admin, &["patch", "pod", "taken", "-p", &taken]).await;
    let (_, of_taken) = kubectl(&admin, "", &["get", "pod", "taken", "-o", "jsonpath={.spec.nodeName}"]).await;
    create(&admin, &[pod("urgent", Some("high"), "1")]).await;
    let nominated = format!("--for=jsonpath={{.status.nominatedNodeName}}={of_taken}");
    until_ok(&admin, &["wait", "pod/urgent", &nominated, "--timeout=20s"]).await;
    until_ok(
        &admin,
        &["wait", "pod/taken", "--for=condition=DisruptionTarget", "--timeout=20s"],
    )
    .await;
    let victim = until_ok(&admin, &["get", "pod", "taken", "-o", "json"]).await;
    assert!(victim.contains("PreemptionByScheduler"), "{victim}");
    taken = json!({"metadata": {"finalizers": null}}).to_string();
    until_ok(&admin, &["patch", "pod", "taken", "-p", &taken]).await;
    until_ok(&admin, &scheduled("pod/urgent")).await;
    let placed = until_ok(&admin, &["get", "pod", "urgent", "-o", "jsonpath={.spec.nodeName}"]).await;
    assert_eq!(placed, of_taken);
    until_ok(&admin, &["get", "pod", "kept"]).await;
    let (_, events) = kubectl(&admin, "", &["get", "events", "-o", "jsonpath={.items[*].reason}"]).await;
    assert!(events.contains("Preempted"), "{events}");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_chosen_by_its_labels_as_they_are_now() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    create(
        &admin,
        &[node("n1", "a", "2"), node("n2", "b", "2"), pod("db", None, "1")],
    )
    .await;
    until_ok(&admin, &["create", "namespace", "other"]).await;
    until_ok(
        &admin,
        &["wait", "--for=condition=PodScheduled", "pod/db", "--timeout=20s"],
    )
    .await;
    let mut near = pod("near", None, "1");
    near["metadata"]["namespace"] = json!("other");
    near["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
    }]}});
    create(&admin, &[near]).await;
    let waits = [
        "wait",
        "-n",
        "other",
        "pod/near",
        "--for=condition=PodScheduled=False",
        "--timeout=20s",
    ];
    until_ok(&admin, &waits).await;
    until_ok(&admin, &["label", "namespace", "default", "team=x"]).await;
    until_ok(
        &admin,
        &[
            "wait",
            "-n",
            "other",
            "pod/near",
            "--for=condition=PodScheduled",
            "--timeout=20s",
        ],
    )
    .await;
    let node = ["-o", "jsonpath={.spec.nodeName}"];
    let of_db = until_ok(&admin, &["get", "pod", "db", node[0], node[1]]).await;
    let of_near = until_ok(&admin, &["get", "pod", "near", "-n", "other", node[0], node[1]]).await;
    assert_eq!(of_db, of_near);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_choose_a_profile_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{}, {
            "schedulerName": "packed",
            "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
        }],
    });
    let mut config = Config::new("c1", directory.path().join("c1"));
    config.role = Role::Workloads(Workloads {
        scheduler: SchedulerConfig {
            configuration: Configuration::parse(&configuration).unwrap(),
            ..SchedulerConfig::default()
        },
        ..Workloads::default()
    });
    let plane = ControlPlane::start(config).await.unwrap();
    let admin = plane.kubeconfig().to_owned();
    let named = |name: &str, scheduler: &str| {
        let mut value = pod(name, None, "1");
        value["spec"]["schedulerName"] = json!(scheduler);
        value
    };
    let mut first = pod("first", None, "1");
    first["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    create(
        &admin,
        &[
            node("n1", "a", "4"),
            node("n2", "b", "4"),
            named("nobody", "mine"),
            first,
        ],
    )
    .await;
    // One after the other: the fuller node for one, the emptier for the other.
    let mut nodes = Vec::new();
    for object in [
        None,
        Some(named("packed", "packed")),
        Some(named("even", "default-scheduler")),
    ] {
        let name = object
            .as_ref()
            .map_or("first", |object| object["metadata"]["name"].as_str().unwrap());
        if let Some(object) = &object {
            create(&admin, std::slice::from_ref(object)).await;
        }
        let name = format!("pod/{name}");
        until_ok(
            &admin,
            &["wait", "--for=condition=PodScheduled", &name, "--timeout=20s"],
        )
        .await;
        nodes.push(until_ok(&admin, &["get", &name, "-o", "jsonpath={.spec.nodeName}"]).await);
    }
    assert_eq!(nodes, ["n1", "n1", "n2"]);
    // Another scheduler's pod is not touched.
    let other = until_ok(
        &admin,
        &[
            "get",
            "pod",
            "nobody",
            "-o",
            "jsonpath={.spec.nodeName}{.status.conditions}",
        ],
    )
    .await;
    assert_eq!(other, "");
    plane.stop().await;
}
