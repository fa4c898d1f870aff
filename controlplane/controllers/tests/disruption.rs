//! Disruption budgets against the real API server, with evictions that spend them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, cluster};
use minato_api::k8s::apps::v1::Deployment;
use minato_api::k8s::core::v1::Pod;
use minato_api::k8s::policy::v1::PodDisruptionBudget;
use minato_api::kube;
use minato_api::kube::api::{Api, EvictParams};
use minato_controllers::ControllerManagerConfig;
use serde_json::{Value, json};

fn deployment(replicas: i32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }})
}

fn budget(spec: Value) -> Value {
    let mut budget = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    for (key, value) in spec.as_object().unwrap() {
        budget["spec"][key] = value.clone();
    }
    budget
}

/// Expected, healthy, needed and disposable pods, once the status is that of the newest spec.
fn counts(budget: &PodDisruptionBudget) -> Option<[i32; 4]> {
    let status = budget.status.as_ref()?;
    (status.observed_generation == budget.metadata.generation).then(|| {
        [
            status.expected_pods,
            status.current_healthy,
            status.desired_healthy,
            status.disruptions_allowed,
        ]
        .map(|count| count.unwrap_or(0))
    })
}

fn condition(budget: &PodDisruptionBudget) -> (&str, &str, &str) {
    let condition = &budget.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
    assert_eq!(condition.type_, "DisruptionAllowed");
    (&condition.status, &condition.reason, &condition.message)
}

async fn refused(pods: &Api<Pod>, name: &str) -> (u16, String) {
    match pods.evict(name, &EvictParams::default()).await {
        Err(kube::Error::Api(status)) => {
            let causes = &status.details.as_ref().unwrap().causes;
            (status.code, causes[0].reason.clone())
        }
        other => panic!("{other:?}"),
    }
}

async fn names(cluster: &Cluster, count: usize) -> Vec<String> {
    let pods = cluster.api::<Pod>();
    let all = cluster.until(&pods, "the pods", |all| all.len() == count).await;
    all.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_stop_where_the_budget_ends_and_go_on_when_pods_are_back() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1"]);
    let (budgets, pods) = (cluster.api::<PodDisruptionBudget>(), cluster.api::<Pod>());
    cluster.create(&cluster.api::<Deployment>(), deployment(4)).await;
    let reaches = |expected: [i32; 4]| move |all: &[PodDisruptionBudget]| counts(&all[0]) == Some(expected);
    cluster.create(&budgets, budget(json!({"maxUnavailable": "25%"}))).await;
    let all = cluster.until(&budgets, "one of four", reaches([4, 4, 3, 1])).await;
    assert_eq!(condition(&all[0]), ("True", "SufficientPods", ""));

    // All are asked to go at once: one may, until it is replaced.
    let names = names(&cluster, 4).await;
    let params = EvictParams::default();
    let asked = names.iter().map(|name| pods.evict(name, &params));
    let answers = futures::future::join_all(asked).await;
    let mut codes: Vec<u16> = answers
        .iter()
        .map(|answer| match answer {
            Ok(_) => 201,
            Err(kube::Error::Api(status)) => status.code,
            Err(other) => panic!("{other}"),
        })
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [201, 429, 429, 429]);
    // The deployment makes another, and the budget has room again.
    cluster
        .until(&budgets, "one of four again", reaches([4, 4, 3, 1]))
        .await;
    let settled = |all: &[PodDisruptionBudget]| all[0].status.as_ref().unwrap().disrupted_pods.is_none();
    cluster.until(&budgets, "no disrupted pods", settled).await;

    // A scale counts before any pod does, and a number needs no scale.
    cluster
        .patch(
            &budgets,
            "web",
            json!({"spec": {"maxUnavailable": null, "minAvailable": 4}}),
        )
        .await;
    let all = cluster.until(&budgets, "none of four", reaches([4, 4, 4, 0])).await;
    assert_eq!(condition(&all[0]), ("False", "InsufficientPods", ""));
    let one = self::names(&cluster, 4).await.remove(0);
    assert_eq!(refused(&pods, &one).await, (429, "DisruptionBudget".to_owned()));
    cluster
        .patch(&budgets, "web", json!({"spec": {"minAvailable": "50%"}}))
        .await;
    cluster
        .patch(&cluster.api::<Deployment>(), "web", json!({"spec": {"replicas": 6}}))
        .await;
    cluster.until(&budgets, "three of six", reaches([6, 6, 3, 3])).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_owners_without_a_scale_are_not_evicted_by_share() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    let (budgets, pods) = (cluster.api::<PodDisruptionBudget>(), cluster.api::<Pod>());
    let pod = |name: &str, owner: Value| {
        json!({"metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": owner},
               "spec": {"containers": [{"name": "c", "image": "x"}]}})
    };
    cluster.create(&pods, pod("bare", json!([]))).await;
    // A share of no owner's pods is nothing.
    cluster.create(&budgets, budget(json!({"minAvailable": "50%"}))).await;
    let reaches = |expected: [i32; 4]| move |all: &[PodDisruptionBudget]| counts(&all[0]) == Some(expected);
    cluster.until(&budgets, "nothing expected", reaches([0, 0, 0, 0])).await;
    // A ConfigMap has no scale, and says so.
    let maps = cluster.api::<minato_api::k8s::core::v1::ConfigMap>();
    let map = cluster.create(&maps, json!({"metadata": {"name": "m"}})).await;
    let owner =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": map.metadata.uid, "controller": true}]);
    cluster.create(&pods, pod("odd", owner)).await;
    let failed = |all: &[PodDisruptionBudget]| {
        condition(&all[0])
            == (
                "False",
                "SyncFailed",
                "configmaps does not implement the scale subresource",
            )
    };
    cluster.until(&budgets, "a failure", failed).await;
    cluster.stop().await;
}
