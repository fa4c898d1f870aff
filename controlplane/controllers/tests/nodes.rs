//! Controllers of nodes, and of what runs on them, against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Cluster, cluster};
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::{ConfigMap, Event, Node, PersistentVolumeClaim, Pod, ResourceQuota, Secret};
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use minato_controllers::{ControllerManager, ControllerManagerConfig};
use minato_runtime::{Metrics, Runtime, Tasks};
use serde_json::{Value, json};

fn nodes(cluster: &Cluster) -> Api<Node> {
    Api::all(cluster.client.clone())
}

/// Keeps a node's lease fresh until the returned group stops.
fn renew(cluster: &Cluster, node: &'static str) -> Tasks {
    let tasks = cluster.tasks.child();
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    tasks.spawn("renewal", async move {
        loop {
            let now = jiff::Timestamp::now();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": node}, "spec": {"holderIdentity": node, "renewTime": format!("{now:.6}")},
            });
            let params = PatchParams::apply("kubelet").force();
            api.patch(node, &params, &Patch::Apply(&lease)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    tasks
}

async fn pod(cluster: &Cluster, name: &str, node: &str, tolerations: Value) -> Pod {
    let api: Api<Pod> = cluster.api();
    let pod = json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "tolerations": tolerations,
        "containers": [{"name": "c", "image": "i"}],
    }});
    cluster.create(&api, pod).await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap()
}

fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().unwrap().conditions.clone().unwrap();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap()
        .status
}

fn taints(node: &Node) -> BTreeSet<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints
        .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
        .collect()
}

fn named<'a>(all: &'a [Node], name: &str) -> &'a Node {
    all.iter()
        .find(|node| node.metadata.name.as_deref() == Some(name))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_found_out_and_its_pods_move() {
    let config = ControllerManagerConfig {
        node_monitor_grace: Duration::from_secs(2),
        ..ControllerManagerConfig::default()
    };
    let cluster = cluster(config).await;
    for name in ["alive", "silent"] {
        cluster.node(name).await;
    }
    let _alive = renew(&cluster, "alive");
    let silent = renew(&cluster, "silent");
    let tolerates = |seconds: Value| json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    pod(&cluster, "stays", "silent", tolerates(Value::Null)).await;
    pod(&cluster, "waits", "silent", tolerates(json!(2))).await;
    pod(&cluster, "goes", "silent", json!([])).await;
    pod(&cluster, "elsewhere", "alive", json!([])).await;
    // Leases alone keep both alive beyond their grace.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let all = nodes(&cluster).list(&Default::default()).await.unwrap().items;
    assert!(
        all.iter().all(|node| ready(node) == "True" && taints(node).is_empty()),
        "{all:#?}"
    );

    silent.stop().await;
    let all = cluster
        .until(&nodes(&cluster), "the taints", |all| {
            taints(named(all, "silent")).len() == 2
        })
        .await;
    assert_eq!(ready(named(&all, "silent")), "Unknown");
    let expected = ["unreachable:NoExecute", "unreachable:NoSchedule"].map(str::to_owned);
    assert_eq!(taints(named(&all, "silent")), expected.into());
    let tainted = jiff::Timestamp::now();
    let pods: Api<Pod> = cluster.api();
    let names =
        |all: &[Pod]| -> BTreeSet<String> { all.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect() };
    let all = cluster
        .until(&pods, "the first eviction", |all| !names(all).contains("goes"))
        .await;
    assert!(names(&all).contains("waits"));
    cluster
        .until(&pods, "the second eviction", |all| !names(all).contains("waits"))
        .await;
    let waited = tainted.duration_until(jiff::Timestamp::now());
    assert!(waited > jiff::SignedDuration::from_millis(1500), "{waited:?}");
    let status = |pod: &Pod| pod.status.clone().unwrap().conditions.unwrap()[0].status.clone();
    let told = |all: &[Pod]| {
        let of = |name: &str| {
            all.iter()
                .find(|pod| pod.metadata.name.as_deref() == Some(name))
                .unwrap()
        };
        all.len() == 2 && status(of("stays")) == "False" && status(of("elsewhere")) == "True"
    };
    cluster.until(&pods, "the pod that stays to be not ready", told).await;

    // Its kubelet comes back.
    let back = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now()}]}});
    let _silent = renew(&cluster, "silent");
    nodes(&cluster)
        .patch_status("silent", &PatchParams::default(), &Patch::Merge(&back))
        .await
        .unwrap();
    cluster
        .until(&nodes(&cluster), "the end of the taints", |all| {
            taints(named(all, "silent")).is_empty()
        })
        .await;

    // When nothing answers at all, pods stay where they are: the fault is more likely ours.
    _alive.stop().await;
    _silent.stop().await;
    let all = cluster
        .until(&nodes(&cluster), "the end of both", |all| {
            all.iter().all(|node| ready(node) == "Unknown")
        })
        .await;
    assert_eq!(all.len(), 2);
    cluster
        .until(&nodes(&cluster), "no eviction", |all| {
            all.iter()
                .all(|node| taints(node) == ["unreachable:NoSchedule".to_owned()].into())
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_cordons_become_taints() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.node("n1").await;
    cluster
        .patch(&nodes(&cluster), "n1", json!({"spec": {"unschedulable": true}}))
        .await;
    let pressure = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "True"},
    ]}});
    nodes(&cluster)
        .patch_status("n1", &PatchParams::default(), &Patch::Merge(&pressure))
        .await
        .unwrap();
    let expected: BTreeSet<String> = [
        "disk-pressure:NoSchedule",
        "not-ready:NoSchedule",
        "unschedulable:NoSchedule",
    ]
    .map(str::to_owned)
    .into();
    cluster
        .until(&nodes(&cluster), "the taints", |all| taints(&all[0]) == expected)
        .await;
    let ttl = |all: &[Node]| {
        let annotations = all[0].metadata.annotations.clone().unwrap_or_default();
        annotations
            .get("node.alpha.kubernetes.io/ttl")
            .is_some_and(|ttl| ttl == "0")
    };
    cluster.until(&nodes(&cluster), "the annotation", ttl).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_given_once_also_after_a_restart() {
    let config = ControllerManagerConfig {
        cluster_cidrs: vec!["10.244.0.0/21".parse().unwrap(), "fd00:1::/56".parse().unwrap()],
        node_mask_v6: 64,
        ..ControllerManagerConfig::default()
    };
    let cluster = cluster(config.clone()).await;
    let ranges = |all: &[Node]| -> Vec<Vec<String>> {
        let cidrs = |node: &Node| node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone());
        all.iter().filter_map(cidrs).collect()
    };
    for i in 0..4 {
        cluster.node(&format!("a{i}")).await;
    }
    cluster
        .until(&nodes(&cluster), "four ranges", |all| ranges(all).len() == 4)
        .await;
    cluster.controllers.stop().await;
    nodes(&cluster).delete("a1", &DeleteParams::default()).await.unwrap();
    let runtime = Runtime::new(cluster.client.clone(), cluster.tasks.clone(), Metrics::new());
    let _again = ControllerManager::start(config, &runtime);
    // There are eight; three are given, so six more are one too many.
    for i in 0..6 {
        cluster.node(&format!("b{i}")).await;
    }
    let all = cluster
        .until(&nodes(&cluster), "eight ranges", |all| ranges(all).len() == 8)
        .await;
    let given = ranges(&all);
    let distinct: BTreeSet<&String> = given.iter().flatten().collect();
    assert_eq!(distinct.len(), 16, "{given:?}");
    assert!(
        given
            .iter()
            .all(|pair| pair[0].starts_with("10.244.") && pair[1].starts_with("fd00:1:")),
        "{given:?}"
    );
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let told = |all: &[Event]| {
        all.iter()
            .any(|event| event.reason.as_deref() == Some("CIDRNotAvailable"))
    };
    cluster.until(&events, "the event", told).await;
    // What is given back goes to whoever waits, at once.
    nodes(&cluster).delete("a0", &DeleteParams::default()).await.unwrap();
    let all = cluster
        .until(&nodes(&cluster), "eight again", |all| {
            all.len() == 8 && ranges(all).len() == 8
        })
        .await;
    let given = ranges(&all);
    assert_eq!(given.iter().flatten().collect::<BTreeSet<_>>().len(), 16);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_nobody_ends_are_cleared_away() {
    let config = ControllerManagerConfig {
        orphan_quarantine: Duration::from_millis(300),
        ..ControllerManagerConfig::default()
    };
    let cluster = cluster(config).await;
    for name in ["n1", "n2"] {
        cluster.node(name).await;
    }
    let pods: Api<Pod> = cluster.api();
    pod(&cluster, "kept", "n1", json!([])).await;
    pod(&cluster, "orphan", "n2", json!([])).await;
    // A finalizer keeps the orphan long enough to see what it is told.
    cluster
        .patch(
            &pods,
            "orphan",
            json!({"metadata": {"finalizers": ["example.com/look"]}}),
        )
        .await;
    nodes(&cluster).delete("n2", &DeleteParams::default()).await.unwrap();
    let all = cluster
        .until(&pods, "the orphan's deletion", |all| {
            all.iter().any(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await;
    let orphan = all
        .iter()
        .find(|pod| pod.metadata.name.as_deref() == Some("orphan"))
        .unwrap();
    let status = orphan.status.clone().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let condition = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|c| c.type_ == "DisruptionTarget")
        .unwrap();
    assert_eq!(condition.reason.as_deref(), Some("DeletionByPodGC"));
    cluster
        .patch(&pods, "orphan", json!({"metadata": {"finalizers": null}}))
        .await;
    let all = cluster.until(&pods, "the orphan's end", |all| all.len() == 1).await;
    assert_eq!(all[0].metadata.name.as_deref(), Some("kept"));

    // A claim in use stays until its pod is gone.
    let claims: Api<PersistentVolumeClaim> = cluster.api();
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create(&claims, claim).await;
    let held = |all: &[PersistentVolumeClaim]| all.iter().any(|claim| claim.metadata.finalizers.is_some());
    cluster.until(&claims, "the finalizer", held).await;
    let user = json!({"metadata": {"name": "user"}, "spec": {
        "nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    }});
    cluster.create(&pods, user).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(claims.get_opt("data").await.unwrap().is_some());
    pods.delete("user", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    cluster.until(&claims, "the claim's end", <[_]>::is_empty).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_tokens_end() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "kube-system");
    let token = |name: &str, seconds: i64| {
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}})
    };
    for (name, seconds) in [
        ("bootstrap-token-ended1", -5),
        ("bootstrap-token-ending", 2),
        ("bootstrap-token-abcdef", 3600),
    ] {
        let secret: Secret = serde_json::from_value(token(name, seconds)).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let all = cluster.until(&secrets, "the ends of two", |all| all.len() == 1).await;
    assert_eq!(all[0].metadata.name.as_deref(), Some("bootstrap-token-abcdef"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_tell_what_is_used() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let pods: Api<Pod> = cluster.api();
    let quotas: Api<ResourceQuota> = cluster.api();
    let maps: Api<ConfigMap> = cluster.api();
    let hard =
        json!({"pods": "10", "requests.cpu": "2", "configmaps": "5", "count/roles.rbac.authorization.k8s.io": "3"});
    cluster
        .create(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}))
        .await;
    let used = |name: &'static str, amount: &'static str| {
        move |all: &[ResourceQuota]| {
            let used = all[0]
                .status
                .as_ref()
                .and_then(|status| status.used.clone())
                .unwrap_or_default();
            used.get(name).is_some_and(|used| used.0 == amount)
        }
    };
    cluster.until(&quotas, "no pods", used("pods", "0")).await;
    cluster
        .until(&quotas, "no roles", used("count/roles.rbac.authorization.k8s.io", "0"))
        .await;
    let spec = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "750m"}}}]}})
    };
    cluster.create(&pods, spec("a")).await;
    cluster.create(&pods, spec("b")).await;
    cluster.until(&quotas, "two pods", used("requests.cpu", "1500m")).await;
    let done = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status("a", &PatchParams::default(), &Patch::Merge(&done))
        .await
        .unwrap();
    cluster.until(&quotas, "one pod", used("requests.cpu", "750m")).await;
    pods.delete("b", &DeleteParams::default()).await.unwrap();
    cluster.until(&quotas, "none", used("pods", "0")).await;
    cluster.create(&maps, json!({"metadata": {"name": "m"}})).await;
    cluster.until(&quotas, "one map", used("configmaps", "1")).await;
    // What is limited may change.
    cluster
        .patch(
            &quotas,
            "q",
            json!({"spec": {"hard": {"pods": "1", "configmaps": null}}}),
        )
        .await;
    let all = cluster
        .until(&quotas, "the new limits", |all| {
            let hard = all[0]
                .status
                .as_ref()
                .and_then(|status| status.hard.clone())
                .unwrap_or_default();
            hard.len() == 3 && hard["pods"].0 == "1"
        })
        .await;
    assert_eq!(all[0].status.as_ref().unwrap().used.as_ref().unwrap().len(), 3);
    cluster.stop().await;
}
