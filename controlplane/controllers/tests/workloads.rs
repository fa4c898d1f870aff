//! Workload controllers against the real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::cluster;
use minato_api::k8s::apps::v1::{Deployment, ReplicaSet};
use minato_api::k8s::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use minato_api::kube::Api;
use minato_api::kube::api::DeleteParams;
use minato_controllers::ControllerManagerConfig;
use serde_json::{Value, json};

fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, image),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        },
    })
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_gets_its_account_and_certificates_and_goes_with_its_content() {
    let config = ControllerManagerConfig {
        root_ca: Some("certificate".to_owned()),
        ..ControllerManagerConfig::default()
    };
    let cluster = cluster(config).await;
    cluster.namespace("team").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "team");
    cluster
        .until(&accounts, "the default account", |all| all.len() == 1)
        .await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    let all = cluster.until(&maps, "the certificates", |all| all.len() == 1).await;
    assert_eq!(all[0].data.as_ref().unwrap()["ca.crt"], "certificate");

    // It comes back when deleted, and is mended when changed.
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    cluster
        .until(&maps, "the certificates again", |all| all.len() == 1)
        .await;
    cluster
        .patch(&maps, "kube-root-ca.crt", json!({"data": {"ca.crt": "forged"}}))
        .await;
    let mended = |all: &[ConfigMap]| all[0].data.as_ref().is_some_and(|data| data["ca.crt"] == "certificate");
    cluster.until(&maps, "the right certificates", mended).await;

    cluster
        .create(
            &maps,
            json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}),
        )
        .await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let told = |all: &[Namespace]| {
        let team = all
            .iter()
            .find(|namespace| namespace.metadata.name.as_deref() == Some("team"));
        let conditions = team
            .and_then(|team| team.status.as_ref()?.conditions.clone())
            .unwrap_or_default();
        conditions.iter().any(|condition| {
            condition.type_ == "NamespaceFinalizersRemaining"
                && condition.status == "True"
                && condition
                    .message
                    .as_deref()
                    .unwrap_or("")
                    .contains("example.com/hold in 1 resource instances")
        })
    };
    cluster.until(&namespaces, "the reason of the delay", told).await;
    cluster
        .patch(&maps, "held", json!({"metadata": {"finalizers": null}}))
        .await;
    let gone = |all: &[Namespace]| {
        all.iter()
            .all(|namespace| namespace.metadata.name.as_deref() != Some("team"))
    };
    cluster.until(&namespaces, "the end of the namespace", gone).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_rolls_out_scales_and_rolls_back() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1", "n2"]);
    let (deployments, sets, pods) = (
        cluster.api::<Deployment>(),
        cluster.api::<ReplicaSet>(),
        cluster.api::<Pod>(),
    );
    cluster.create(&deployments, deployment("web", 3, "one")).await;
    let complete = |replicas: i32| {
        move |all: &[Deployment]| {
            let status = all[0].status.clone().unwrap_or_default();
            let progressing = status
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == "Progressing");
            status.observed_generation == all[0].metadata.generation
                && status.replicas == Some(replicas)
                && status.updated_replicas == Some(replicas)
                && status.available_replicas == Some(replicas)
                && progressing.and_then(|condition| condition.reason.as_deref()) == Some("NewReplicaSetAvailable")
        }
    };
    cluster.until(&deployments, "the first rollout", complete(3)).await;

    cluster
        .patch(
            &deployments,
            "web",
            json!({"spec": {"template": template("web", "two")}}),
        )
        .await;
    cluster.until(&deployments, "the second rollout", complete(3)).await;
    cluster
        .until(&pods, "only new pods", |all| {
            all.len() == 3 && all.iter().all(|pod| image(pod) == "two")
        })
        .await;
    let all = cluster.until(&sets, "two sets", |all| all.len() == 2).await;
    let mut revisions: Vec<_> = all
        .iter()
        .map(|set| set.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"].clone())
        .collect();
    revisions.sort();
    assert_eq!(revisions, ["1", "2"]);

    cluster
        .patch(&deployments, "web", json!({"spec": {"replicas": 5}}))
        .await;
    cluster.until(&deployments, "five replicas", complete(5)).await;
    cluster
        .patch(
            &deployments,
            "web",
            json!({"spec": {"template": template("web", "one")}}),
        )
        .await;
    cluster.until(&deployments, "the way back", complete(5)).await;
    let back = cluster.until(&deployments, "a third revision", |_| true).await;
    assert_eq!(
        back[0].metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"],
        "3"
    );
    cluster.until(&sets, "still two sets", |all| all.len() == 2).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_replaces_adopts_and_releases() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1"]);
    let (sets, pods) = (cluster.api::<ReplicaSet>(), cluster.api::<Pod>());
    let orphan = json!({"metadata": {"name": "orphan", "labels": {"app": "rs"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    cluster.create(&pods, orphan).await;
    let set = json!({
        "metadata": {"name": "rs"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "rs"}}, "template": template("rs", "x")},
    });
    let set = cluster.create(&sets, set).await;
    let uid = set.metadata.uid.unwrap();
    let owned = |pod: &Pod| {
        pod.metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.uid == uid)
    };
    let ready = |all: &[ReplicaSet]| {
        all[0]
            .status
            .as_ref()
            .is_some_and(|status| status.available_replicas == Some(2))
    };
    cluster
        .until(&pods, "one adopted and one made", |all| {
            all.len() == 2 && all.iter().all(owned)
        })
        .await;
    cluster.until(&sets, "two available", ready).await;

    // A pod that no longer matches is let go and replaced.
    cluster
        .patch(&pods, "orphan", json!({"metadata": {"labels": {"app": "other"}}}))
        .await;
    cluster
        .until(&pods, "a release and a replacement", |all| {
            all.len() == 3 && all.iter().filter(|pod| owned(pod)).count() == 2
        })
        .await;
    pods.delete_collection(
        &DeleteParams::default(),
        &minato_api::kube::api::ListParams::default().labels("app=rs"),
    )
    .await
    .unwrap();
    cluster.until(&sets, "two available again", ready).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_replicas_come_at_once() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (deployments, pods) = (cluster.api::<Deployment>(), cluster.api::<Pod>());
    let begun = std::time::Instant::now();
    cluster.create(&deployments, deployment("many", 100, "x")).await;
    cluster.until(&pods, "a hundred pods", |all| all.len() == 100).await;
    println!("100 pods after {:?}", begun.elapsed());
    // No more come late.
    let settled = |all: &[Deployment]| {
        all[0]
            .status
            .as_ref()
            .is_some_and(|status| status.replicas == Some(100))
    };
    cluster.until(&deployments, "a settled status", settled).await;
    assert_eq!(cluster.until(&pods, "a list", |_| true).await.len(), 100);
    cluster.stop().await;
}
