//! Pods on a real node: a real kubelet, a real containerd, a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, NODE};
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::{ConfigMap, Node, Secret};
use minato_api::kube::Api;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_runs_pods() {
    let cluster = Cluster::start("kp").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = serde_json::to_value(nodes.get(NODE).await.unwrap()).unwrap();
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
    assert!(
        node["status"]["nodeInfo"]["containerRuntimeVersion"]
            .as_str()
            .unwrap()
            .starts_with("containerd://")
    );
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    assert!(leases.get(NODE).await.unwrap().spec.unwrap().renew_time.is_some());

    everything_a_pod_may_ask_for(&cluster).await;
    restarts_and_ends(&cluster).await;
    graceful_deletion(&cluster).await;
    cluster.stop().await;
}

async fn everything_a_pod_may_ask_for(cluster: &Cluster) {
    cluster
        .create::<ConfigMap>(
            "default",
            json!({"metadata": {"name": "cm"}, "data": {"key": "from-map", "file": "text"}}),
        )
        .await;
    cluster
        .create::<Secret>(
            "default",
            json!({"metadata": {"name": "s"}, "stringData": {"password": "hush"}}),
        )
        .await;
    let script = "cat /shared/made; echo env=$KEY-$PASSWORD-$POD-$COMBINED; cat /cm/file; echo; cat /s/password; echo;
        cat /var/run/secrets/t/token | cut -d. -f1 | base64 -d 2>/dev/null | grep -o ES256; hostname; id -u;
        cat /labels/all; echo; grep cluster.local /etc/resolv.conf; grep -c kubernetes /etc/hosts; echo out >&2; exec sleep 1000";
    let pod = cluster
        .pod(
            "rich",
            json!({
                "securityContext": {"fsGroup": 2000},
                "initContainers": [{"name": "i", "command": ["sh", "-c", "echo init > /shared/made"],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
                "containers": [{"name": "c", "command": ["sh", "-c", script],
                    "env": [
                        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key"}}},
                        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "COMBINED", "value": "$(POD)/$(KEY)"},
                    ],
                    "volumeMounts": [
                        {"name": "shared", "mountPath": "/shared"}, {"name": "cm", "mountPath": "/cm"},
                        {"name": "s", "mountPath": "/s"}, {"name": "t", "mountPath": "/var/run/secrets/t"},
                        {"name": "labels", "mountPath": "/labels"},
                    ]}],
                "volumes": [
                    {"name": "shared", "emptyDir": {}}, {"name": "cm", "configMap": {"name": "cm"}},
                    {"name": "s", "secret": {"secretName": "s"}},
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "me"}}]}},
                    {"name": "labels", "downwardAPI": {"items": [{"path": "all", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                ],
            }),
        )
        .await;
    let running = cluster
        .until_pod("rich", "ready", |pod| {
            pod["status"]["containerStatuses"][0]["ready"] == true
        })
        .await;
    let status = &running["status"];
    assert_eq!(status["phase"], "Running");
    assert!(status["podIP"].as_str().unwrap().starts_with("10.244."), "{status}");
    assert_eq!(
        status["initContainerStatuses"][0]["state"]["terminated"]["reason"],
        "Completed"
    );
    let condition = |name: &str| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == name).unwrap()["status"].clone()
    };
    for name in [
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
    ] {
        assert_eq!(condition(name), "True", "{name}");
    }
    let wanted = "init\nenv=from-map-hush-rich-rich/from-map\ntext\nhush\nES256\nrich\n0\ndefault\n\
        search default.svc.cluster.local svc.cluster.local cluster.local\n";
    let log = minato_test_support::until("the log is complete", common::LIMIT, async || {
        let log = cluster.log(&pod, "c", 0);
        log.contains("out").then_some(log)
    })
    .await;
    assert!(log.contains(wanted), "{log}");
    // A changed ConfigMap reaches the files of the running pod.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let patch = json!({"data": {"file": "changed"}});
    maps.patch("cm", &Default::default(), &minato_api::kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    let path = cluster.files().join(format!(
        "root/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/cm/file"
    ));
    minato_test_support::until("the file changes", common::LIMIT, async || {
        (std::fs::read_to_string(&path).ok()? == "changed").then_some(())
    })
    .await;
    cluster.delete("rich", Some(1)).await;
    cluster.until_gone("rich").await;
    assert!(
        !cluster
            .files()
            .join(format!("root/var/lib/kubelet/pods/{uid}"))
            .exists()
    );
}

async fn restarts_and_ends(cluster: &Cluster) {
    // Ends well, ends badly, is killed for its memory, is restarted with back-off.
    cluster
        .pod(
            "well",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"]}]}),
        )
        .await;
    let script = "echo last words > /dev/termination-log; exit 3";
    cluster
        .pod(
            "badly",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["sh", "-c", script]}]}),
        )
        .await;
    cluster
        .pod(
            "oom",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["sh", "-c", "x=a; while :; do x=$x$x; done"],
                "resources": {"limits": {"memory": "20Mi"}}}]}),
        )
        .await;
    cluster
        .pod("crash", json!({"containers": [{"name": "c", "command": ["false"]}]}))
        .await;
    cluster.until_phase("well", "Succeeded").await;
    let badly = cluster.until_phase("badly", "Failed").await;
    let terminated = &badly["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["reason"]),
        (&json!(3), &json!("Error"))
    );
    assert_eq!(terminated["message"], "last words\n");
    cluster
        .until_pod("oom", "killed for its memory", |pod| {
            let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            pod["status"]["phase"] == "Failed" && terminated["reason"] == "OOMKilled" && terminated["exitCode"] == 137
        })
        .await;
    let crash = cluster
        .until_pod("crash", "backing off", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let status = &crash["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(crash["status"]["phase"], "Running");
    for name in ["well", "badly", "oom", "crash"] {
        cluster.delete(name, None).await;
        cluster.until_gone(name).await;
    }
    cluster
        .pod(
            "nowhere",
            json!({"containers": [{"name": "c", "image": "minato.test/none:1", "imagePullPolicy": "Never"}]}),
        )
        .await;
    cluster
        .until_pod("nowhere", "without its image", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImageNeverPull"
        })
        .await;
    cluster.delete("nowhere", None).await;
    cluster.until_gone("nowhere").await;
}

async fn graceful_deletion(cluster: &Cluster) {
    let script = "trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let pod = cluster
        .pod(
            "graceful",
            json!({"containers": [{"name": "c", "command": ["sh", "-c", script],
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}}}]}),
        )
        .await;
    cluster.until_phase("graceful", "Running").await;
    minato_test_support::until("it is up", common::LIMIT, async || {
        cluster.log(&pod, "c", 0).contains("up").then_some(())
    })
    .await;
    // Its last words are read through a descriptor: the file goes with the pod.
    let uid = pod.metadata.uid.clone().unwrap();
    let log = cluster
        .files()
        .join(format!("root/var/log/pods/default_graceful_{uid}/c/0.log"));
    let mut file = std::fs::File::open(log).unwrap();
    cluster.delete("graceful", None).await;
    cluster.until_gone("graceful").await;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    let events = cluster.events("graceful").await;
    let (hook, term) = (text.find("hook"), text.find("got TERM"));
    assert!(hook.is_some() && term > hook, "{text} {events:?}");
    assert!(events.iter().any(|e| e.starts_with("Killing")), "{events:?}");
}
