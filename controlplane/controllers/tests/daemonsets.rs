//! DaemonSets against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Cluster, cluster};
use minato_api::k8s::apps::v1::{ControllerRevision, DaemonSet};
use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use minato_controllers::ControllerManagerConfig;
use serde_json::{Value, json};

fn set(strategy: Value, image: &str) -> Value {
    json!({
        "metadata": {"name": "agent", "annotations": {"kubernetes.io/change-cause": image}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": strategy,
            "template": template(image),
        },
    })
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// The node that a pod says it is for.
fn target(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.clone()?.affinity?.node_affinity?;
    let terms = affinity
        .required_during_scheduling_ignored_during_execution?
        .node_selector_terms;
    terms
        .first()?
        .match_fields
        .as_ref()?
        .first()?
        .values
        .as_ref()?
        .first()
        .cloned()
}

/// Plays scheduler and kubelet: each pod comes to its node and is ready.
fn play(cluster: &Cluster) {
    let api = cluster.api::<Pod>();
    cluster.tasks.spawn("played kubelet", async move {
        loop {
            for pod in api.list(&ListParams::default()).await.unwrap().items {
                let name = pod.metadata.name.clone().unwrap();
                // What another actor changes at the same time is seen on the next round.
                if pod.metadata.deletion_timestamp.is_some() {
                    let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    continue;
                }
                if pod.spec.as_ref().unwrap().node_name.is_none() {
                    let bind = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": target(&pod)}});
                    let params = PostParams::default();
                    let _ = api
                        .create_subresource::<Value, Value>("binding", &name, &params, &bind)
                        .await;
                }
                if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending") {
                    let ready =
                        json!({"type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now()});
                    let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
                    let _ = api
                        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                        .await;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Whether all of so many nodes run an available pod of the present template.
fn rolled_out(nodes: i32) -> impl Fn(&[DaemonSet]) -> bool {
    move |all| {
        let status = all[0].status.clone().unwrap_or_default();
        status.observed_generation == all[0].metadata.generation
            && status.desired_number_scheduled == nodes
            && status.current_number_scheduled == nodes
            && status.number_misscheduled == 0
            && status.updated_number_scheduled == Some(nodes)
            && status.number_available == Some(nodes)
            && status.number_unavailable.is_none()
    }
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

fn all_of(count: usize, wanted: &str) -> impl Fn(&[Pod]) -> bool {
    move |all| all.len() == count && all.iter().all(|pod| image(pod) == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_eligible_node_runs_one_pod() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in ["n1", "n2", "n3"] {
        cluster.node(name).await;
    }
    let taint = json!([{"key": "example.com/reserved", "effect": "NoSchedule"}]);
    cluster.patch(&nodes, "n3", json!({"spec": {"taints": taint}})).await;
    let (sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    cluster
        .create(&sets, set(json!({"type": "RollingUpdate"}), "one"))
        .await;
    cluster.until(&sets, "two nodes", rolled_out(2)).await;
    // A node that becomes free gets its pod, and a new one too.
    cluster.patch(&nodes, "n3", json!({"spec": {"taints": null}})).await;
    cluster.until(&sets, "three nodes", rolled_out(3)).await;
    cluster.node("n4").await;
    cluster.until(&sets, "four nodes", rolled_out(4)).await;
    let all = cluster.until(&pods, "four pods", all_of(4, "one")).await;
    let on: BTreeSet<_> = all
        .iter()
        .map(|pod| pod.spec.clone().unwrap().node_name.unwrap())
        .collect();
    assert_eq!(on.len(), 4);
    assert!(
        all.iter()
            .all(|pod| pod.metadata.labels.as_ref().unwrap()["pod-template-generation"] == "1")
    );
    // One that drives pods out loses its pod.
    let taint = json!([{"key": "example.com/broken", "effect": "NoExecute"}]);
    cluster.patch(&nodes, "n1", json!({"spec": {"taints": taint}})).await;
    cluster.until(&sets, "three nodes again", rolled_out(3)).await;
    cluster.until(&pods, "three pods", all_of(3, "one")).await;
    // A failed pod is made anew.
    let failed = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0)
        .metadata;
    let status = json!({"status": {"phase": "Failed"}});
    let name = failed.name.unwrap();
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let renewed = |all: &[Pod]| all.len() == 3 && all.iter().all(|pod| pod.metadata.uid != failed.uid);
    cluster.until(&pods, "a new pod", renewed).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_forth_and_back() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster);
    for name in ["n1", "n2", "n3"] {
        cluster.node(name).await;
    }
    let (sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    let revisions = cluster.api::<ControllerRevision>();
    cluster
        .create(&sets, set(json!({"type": "RollingUpdate"}), "one"))
        .await;
    cluster.until(&sets, "the first rollout", rolled_out(3)).await;
    cluster
        .patch(&sets, "agent", json!({"spec": {"template": template("two")}}))
        .await;
    cluster.until(&sets, "the second rollout", rolled_out(3)).await;
    cluster.until(&pods, "new pods", all_of(3, "two")).await;
    let mut all = cluster.until(&revisions, "two revisions", |all| all.len() == 2).await;
    all.sort_by_key(|revision| revision.revision);
    assert_eq!((all[0].revision, all[1].revision), (1, 2));
    let cause = all[0].metadata.annotations.as_ref().unwrap()["kubernetes.io/change-cause"].clone();
    assert_eq!(cause, "one");

    // What `kubectl rollout undo` does.
    let back = all[0].data.clone().unwrap().0;
    sets.patch("agent", &PatchParams::default(), &Patch::Strategic(&back))
        .await
        .unwrap();
    cluster.until(&sets, "the way back", rolled_out(3)).await;
    cluster.until(&pods, "old pods", all_of(3, "one")).await;
    let renumbered = |all: &[ControllerRevision]| {
        let numbers: BTreeSet<_> = all.iter().map(|revision| revision.revision).collect();
        numbers == BTreeSet::from([2, 3])
    };
    cluster.until(&revisions, "two revisions, renumbered", renumbered).await;

    // Beyond the limit, what no pod is of goes.
    cluster
        .patch(&sets, "agent", json!({"spec": {"revisionHistoryLimit": 0}}))
        .await;
    cluster.until(&revisions, "one revision", |all| all.len() == 1).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_pods_stay_until_new_ones_are_available_or_until_they_are_deleted() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    play(&cluster);
    for name in ["n1", "n2", "n3"] {
        cluster.node(name).await;
    }
    let (sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    let limits = json!({"maxSurge": 1, "maxUnavailable": 0});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": limits});
    cluster.create(&sets, set(strategy, "one")).await;
    cluster.until(&sets, "the first rollout", rolled_out(3)).await;
    cluster
        .patch(&sets, "agent", json!({"spec": {"template": template("two")}}))
        .await;
    // All the while every node has a pod that serves.
    let served = |all: &[Pod]| {
        let nodes = all
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(target);
        assert_eq!(nodes.collect::<BTreeSet<_>>().len(), 3, "{all:#?}");
        all_of(3, "two")(all)
    };
    cluster.until(&pods, "new pods", served).await;
    cluster.until(&sets, "the second rollout", rolled_out(3)).await;

    let by_hand = json!({"spec": {
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": null}, "template": template("three"),
    }});
    cluster.patch(&sets, "agent", by_hand).await;
    let waits = |all: &[DaemonSet]| {
        let status = all[0].status.clone().unwrap_or_default();
        status.observed_generation == all[0].metadata.generation && status.updated_number_scheduled.is_none()
    };
    cluster.until(&sets, "nothing updated", waits).await;
    let one = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0)
        .metadata
        .name
        .unwrap();
    pods.delete(&one, &DeleteParams::default()).await.unwrap();
    let updated = |all: &[DaemonSet]| all[0].status.as_ref().unwrap().updated_number_scheduled == Some(1);
    cluster.until(&sets, "one updated", updated).await;
    cluster.stop().await;
}
