//! StatefulSets against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, cluster};
use minato_api::k8s::apps::v1::{ControllerRevision, StatefulSet};
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod};
use minato_api::kube::api::{DeleteParams, Patch, PatchParams};
use minato_controllers::ControllerManagerConfig;
use serde_json::{Value, json};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn set(replicas: i32, more: Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template("one"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
}

fn label<'a>(pod: &'a Pod, key: &str) -> &'a str {
    &pod.metadata.labels.as_ref().unwrap()[key]
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

/// Replicas, ready, current and updated ones, once the status is that of the newest spec.
fn counts(set: &StatefulSet) -> Option<[i32; 4]> {
    let status = set.status.as_ref()?;
    let number = |number: Option<i32>| number.unwrap_or(0);
    (status.observed_generation == set.metadata.generation).then(|| {
        [
            status.replicas,
            number(status.ready_replicas),
            number(status.current_replicas),
            number(status.updated_replicas),
        ]
    })
}

async fn set_phase(cluster: &Cluster, pod: &str, phase: &str) {
    let ready = if phase == "Running" { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": jiff::Timestamp::now()}]}});
    let pods = cluster.api::<Pod>();
    pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_in_order_with_names_and_claims_and_go_in_reverse() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (sets, pods, claims) = (
        cluster.api::<StatefulSet>(),
        cluster.api::<Pod>(),
        cluster.api::<PersistentVolumeClaim>(),
    );
    let retention = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    cluster
        .create(
            &sets,
            set(3, json!({"persistentVolumeClaimRetentionPolicy": retention})),
        )
        .await;
    for (last, expected) in [("web-0", 1), ("web-1", 2), ("web-2", 3)] {
        let all = cluster.until(&pods, "the next pod", |all| all.len() == expected).await;
        assert_eq!(*names(&all).last().unwrap(), last);
        // The status is written after all that a reconciliation did: no pod came beside this one.
        let told =
            |all: &[StatefulSet]| counts(&all[0]).is_some_and(|counts| counts[0] == i32::try_from(expected).unwrap());
        cluster.until(&sets, "its count", told).await;
        assert_eq!(cluster.until(&pods, "a list", |_| true).await.len(), expected);
        set_phase(&cluster, last, "Running").await;
    }
    let all = cluster.until(&pods, "a list", |_| true).await;
    let spec = all[1].spec.as_ref().unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("web-1"), Some("web"))
    );
    assert_eq!(label(&all[1], "statefulset.kubernetes.io/pod-name"), "web-1");
    assert_eq!(label(&all[1], "apps.kubernetes.io/pod-index"), "1");
    let volume = spec.volumes.as_ref().unwrap()[0]
        .persistent_volume_claim
        .as_ref()
        .unwrap();
    assert_eq!(volume.claim_name, "data-web-1");
    cluster.until(&claims, "three claims", |all| all.len() == 3).await;
    let told = |all: &[StatefulSet]| counts(&all[0]) == Some([3, 3, 3, 3]);
    cluster.until(&sets, "three of three", told).await;

    // A pod that ends or is deleted comes back under its name.
    let former = all[2].metadata.uid.clone();
    set_phase(&cluster, "web-2", "Failed").await;
    let anew = |all: &[Pod]| all.len() == 3 && all[2].metadata.uid != former;
    cluster.until(&pods, "another web-2", anew).await;
    set_phase(&cluster, "web-2", "Running").await;
    let former = all[0].metadata.uid.clone();
    pods.delete("web-0", &DeleteParams::default()).await.unwrap();
    let anew = |all: &[Pod]| all.len() == 3 && all[0].metadata.uid != former;
    cluster.until(&pods, "another web-0", anew).await;

    // Nothing goes while web-0 is not ready.
    cluster.patch(&sets, "web", json!({"spec": {"replicas": 1}})).await;
    let told = |all: &[StatefulSet]| counts(&all[0]).is_some_and(|counts| counts[..2] == [3, 2]);
    cluster.until(&sets, "an observed generation", told).await;
    assert_eq!(cluster.until(&pods, "a list", |_| true).await.len(), 3);
    set_phase(&cluster, "web-0", "Running").await;
    let one = |all: &[Pod]| names(all) == ["web-0"];
    cluster.until(&pods, "one pod", one).await;
    // The claims of those that were scaled away go along.
    let one = |all: &[PersistentVolumeClaim]| all.len() == 1 && all[0].metadata.name.as_deref() == Some("data-web-0");
    cluster.until(&claims, "one claim", one).await;
    cluster.patch(&sets, "web", json!({"spec": {"replicas": 2}})).await;
    cluster
        .until(&pods, "two pods", |all| names(all) == ["web-0", "web-1"])
        .await;
    cluster.until(&claims, "two claims", |all| all.len() == 2).await;

    sets.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until(&pods, "no pods", |all| all.is_empty()).await;
    assert_eq!(cluster.until(&claims, "a list", |_| true).await.len(), 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_stops_at_its_partition_goes_on_and_goes_back() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1"]);
    let (sets, pods, revisions) = (
        cluster.api::<StatefulSet>(),
        cluster.api::<Pod>(),
        cluster.api::<ControllerRevision>(),
    );
    cluster.create(&sets, set(3, json!({}))).await;
    let told = |expected: [i32; 4]| move |all: &[StatefulSet]| counts(&all[0]) == Some(expected);
    let all = cluster.until(&sets, "three of three", told([3, 3, 3, 3])).await;
    let first = all[0].status.clone().unwrap();
    assert_eq!(first.current_revision, first.update_revision);

    let partition = json!({"spec": {"template": template("two"),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}});
    cluster.patch(&sets, "web", partition).await;
    let all = cluster
        .until(&sets, "one of the new revision", told([3, 3, 2, 1]))
        .await;
    let status = all[0].status.clone().unwrap();
    assert_eq!(status.current_revision, first.current_revision);
    assert_ne!(status.update_revision, first.update_revision);
    let all = cluster.until(&pods, "a list", |_| true).await;
    assert_eq!(all.iter().map(image).collect::<Vec<_>>(), ["one", "one", "two"]);
    assert_eq!(
        Some(label(&all[2], "controller-revision-hash")),
        status.update_revision.as_deref()
    );
    // One below the partition comes back as it was.
    let former = all[0].metadata.uid.clone();
    pods.delete("web-0", &DeleteParams::default()).await.unwrap();
    let anew = |all: &[Pod]| all.len() == 3 && all[0].metadata.uid != former;
    let all = cluster.until(&pods, "another web-0", anew).await;
    assert_eq!(image(&all[0]), "one");

    let whole = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    cluster.patch(&sets, "web", whole).await;
    let all = cluster.until(&sets, "the rollout's end", told([3, 3, 3, 3])).await;
    let second = all[0].status.clone().unwrap();
    assert_eq!(second.current_revision, status.update_revision);
    assert_eq!(second.update_revision, status.update_revision);

    // Going back makes no third revision: the first gets a new number.
    cluster
        .patch(&sets, "web", json!({"spec": {"template": template("one")}}))
        .await;
    let back = |all: &[StatefulSet]| {
        counts(&all[0]) == Some([3, 3, 3, 3])
            && all[0].status.as_ref().unwrap().current_revision == first.current_revision
    };
    cluster.until(&sets, "the way back", back).await;
    let all = cluster.until(&revisions, "two revisions", |all| all.len() == 2).await;
    let number = |name: &Option<String>| {
        let found = all.iter().find(|revision| revision.metadata.name == *name);
        found.unwrap().revision
    };
    assert_eq!(
        (number(&first.current_revision), number(&second.current_revision)),
        (3, 2)
    );

    // Without a limit to speak of, only what pods are of is kept.
    cluster
        .patch(&sets, "web", json!({"spec": {"revisionHistoryLimit": 0}}))
        .await;
    cluster.until(&revisions, "one revision", |all| all.len() == 1).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_pods_come_and_go_at_once_and_orphans_are_adopted() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (sets, pods, claims) = (
        cluster.api::<StatefulSet>(),
        cluster.api::<Pod>(),
        cluster.api::<PersistentVolumeClaim>(),
    );
    // One of them has the name of a member, the other has not.
    for name in ["web-1", "stray"] {
        let orphan = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
        cluster.create(&pods, orphan).await;
    }
    let retention = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    let parallel = json!({"podManagementPolicy": "Parallel", "persistentVolumeClaimRetentionPolicy": retention});
    let set = cluster.create(&sets, set(4, parallel)).await;
    let owned = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners
            .filter(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
            .count()
            == 1
    };
    let all = cluster
        .until(&pods, "four pods and a stray", |all| all.len() == 5)
        .await;
    assert_eq!(names(&all), ["stray", "web-0", "web-1", "web-2", "web-3"]);
    let all = |all: &[Pod]| all.iter().filter(|pod| owned(pod)).count() == 4 && !owned(&all[0]);
    cluster.until(&pods, "four owned pods", all).await;
    // The adopted pod has what the set gives its own, and its claim too.
    let labelled = |all: &[Pod]| {
        let labels = all[2].metadata.labels.as_ref().unwrap();
        labels.get("apps.kubernetes.io/pod-index").map(String::as_str) == Some("1")
    };
    cluster.until(&pods, "labels", labelled).await;
    cluster.until(&claims, "four claims", |all| all.len() == 4).await;
    cluster.patch(&sets, "web", json!({"spec": {"replicas": 1}})).await;
    cluster
        .until(&pods, "one pod and a stray", |all| names(all) == ["stray", "web-0"])
        .await;
    assert_eq!(cluster.until(&claims, "a list", |_| true).await.len(), 4);
    sets.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until(&claims, "no claims", |all| all.is_empty()).await;
    cluster
        .until(&pods, "the stray alone", |all| names(all) == ["stray"])
        .await;
    cluster.stop().await;
}
