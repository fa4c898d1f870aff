//! Services, and what depends on what, against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Cluster, cluster};
use minato_api::k8s::apps::v1::{Deployment, ReplicaSet};
use minato_api::k8s::core::v1::{ConfigMap, Endpoints, Pod, Service};
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_api::kube::api::DeleteParams;
use minato_controllers::ControllerManagerConfig;
use serde_json::json;

async fn web(cluster: &Cluster, replicas: i32) {
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x", "ports": [{"name": "web", "containerPort": 8080}]}]},
            },
        },
    });
    cluster.create(&cluster.api::<Deployment>(), deployment).await;
}

fn ready(slices: &[EndpointSlice]) -> Vec<String> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(true)));
    ready.flat_map(|endpoint| endpoint.addresses.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_pods() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1", "n2"]);
    web(&cluster, 3).await;
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "web"}]},
    });
    let services = cluster.api::<Service>();
    cluster.create(&services, service).await;
    let (slices, pods) = (cluster.api::<EndpointSlice>(), cluster.api::<Pod>());
    let all = cluster
        .until(&slices, "three endpoints more", |all| ready(all).len() == 4)
        .await;
    let ports: Vec<_> = all
        .iter()
        .filter(|slice| slice.metadata.name.as_deref() != Some("kubernetes"))
        .flat_map(|slice| slice.ports.iter().flatten())
        .map(|port| port.port)
        .collect();
    assert_eq!(ports, [Some(8080)]);
    let endpoints = cluster.api::<Endpoints>();
    let addresses = |all: &[Endpoints]| {
        let web = all
            .iter()
            .find(|endpoints| endpoints.metadata.name.as_deref() == Some("web"));
        let subsets = web.map(|web| web.subsets.iter().flatten()).into_iter().flatten();
        subsets
            .flat_map(|subset| subset.addresses.clone().unwrap_or_default())
            .count()
    };
    cluster
        .until(&endpoints, "three addresses", |all| addresses(all) == 3)
        .await;

    let victim = cluster.until(&pods, "three pods", |all| all.len() == 3).await.remove(0);
    let address = victim.status.unwrap().pod_ip.unwrap();
    let begun = Instant::now();
    pods.delete(&victim.metadata.name.unwrap(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    cluster
        .until(&slices, "an endpoint less", |all| !ready(all).contains(&address))
        .await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "endpoints followed after {:?}",
        begun.elapsed()
    );
    cluster
        .until(&slices, "a replacement", |all| ready(all).len() == 4)
        .await;

    services.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until(&slices, "no slices", |all| all.len() == 1).await;
    let no_web = |all: &[Endpoints]| {
        all.iter()
            .all(|endpoints| endpoints.metadata.name.as_deref() != Some("web"))
    };
    cluster.until(&endpoints, "no endpoints", no_web).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_cascades_in_the_background() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    web(&cluster, 3).await;
    let (deployments, sets, pods) = (
        cluster.api::<Deployment>(),
        cluster.api::<ReplicaSet>(),
        cluster.api::<Pod>(),
    );
    cluster.until(&pods, "three pods", |all| all.len() == 3).await;
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    cluster.until(&sets, "no sets", |all| all.is_empty()).await;
    cluster.until(&pods, "no pods", |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_waits_and_orphaning_leaves() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    web(&cluster, 2).await;
    let (deployments, sets, pods) = (
        cluster.api::<Deployment>(),
        cluster.api::<ReplicaSet>(),
        cluster.api::<Pod>(),
    );
    let all = cluster.until(&pods, "two pods", |all| all.len() == 2).await;
    let held = all[0].metadata.name.clone().unwrap();
    cluster
        .patch(&pods, &held, json!({"metadata": {"finalizers": ["example.com/hold"]}}))
        .await;
    deployments.delete("web", &DeleteParams::foreground()).await.unwrap();
    cluster.until(&pods, "the held pod alone", |all| all.len() == 1).await;
    assert_eq!(cluster.until(&deployments, "", |_| true).await.len(), 1);
    assert_eq!(cluster.until(&sets, "", |_| true).await.len(), 1);
    cluster
        .patch(&pods, &held, json!({"metadata": {"finalizers": null}}))
        .await;
    cluster.until(&deployments, "the end", |all| all.is_empty()).await;
    assert!(cluster.until(&sets, "", |_| true).await.is_empty());

    web(&cluster, 2).await;
    cluster.until(&pods, "two pods again", |all| all.len() == 2).await;
    deployments.delete("web", &DeleteParams::orphan()).await.unwrap();
    cluster.until(&deployments, "the end again", |all| all.is_empty()).await;
    let orphans = cluster
        .until(&sets, "an orphan", |all| {
            all.len() == 1 && all[0].metadata.owner_references.iter().flatten().count() == 0
        })
        .await;
    assert_eq!(orphans.len(), 1);
    assert_eq!(cluster.until(&pods, "", |_| true).await.len(), 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_an_absent_owner_goes_and_one_owner_left_is_enough() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let maps = cluster.api::<ConfigMap>();
    let owner = cluster.create(&maps, json!({"metadata": {"name": "owner"}})).await;
    let reference = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let real = reference("owner", owner.metadata.uid.as_deref().unwrap());
    let fake = reference("owner", "0b0e5a2e-0000-4000-8000-000000000000");
    cluster
        .create(
            &maps,
            json!({"metadata": {"name": "doomed", "ownerReferences": [fake]}}),
        )
        .await;
    cluster
        .create(
            &maps,
            json!({"metadata": {"name": "kept", "ownerReferences": [fake, real]}}),
        )
        .await;
    let settled = |all: &[ConfigMap]| {
        let named = |name: &str| all.iter().find(|map| map.metadata.name.as_deref() == Some(name));
        let owners = named("kept").map(|kept| kept.metadata.owner_references.iter().flatten().count());
        named("doomed").is_none() && owners == Some(1)
    };
    cluster.until(&maps, "one gone and one detached", settled).await;
    cluster.stop().await;
}
