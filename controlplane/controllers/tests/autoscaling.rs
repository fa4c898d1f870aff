//! Autoscalers against the real API server, which has no metrics.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::cluster;
use minato_api::k8s::apps::v1::Deployment;
use minato_api::k8s::autoscaling::v2::HorizontalPodAutoscaler;
use minato_controllers::ControllerManagerConfig;
use serde_json::json;

fn condition<'a>(scaler: &'a HorizontalPodAutoscaler, type_: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = scaler.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((
        &condition.status,
        condition.reason.as_deref()?,
        condition.message.as_deref()?,
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_keeps_its_bounds_and_says_that_there_are_no_metrics() {
    let cluster = cluster(ControllerManagerConfig::default()).await;
    cluster.play_kubelet(&["n1"]);
    let (deployments, scalers) = (cluster.api::<Deployment>(), cluster.api::<HorizontalPodAutoscaler>());
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    cluster.create(&deployments, deployment).await;
    let scaler = |name: &str, kind: &str, target: &str| {
        json!({"metadata": {"name": name}, "spec": {"minReplicas": 3, "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}}})
    };
    cluster.create(&scalers, scaler("web", "Deployment", "web")).await;
    let three = |all: &[Deployment]| all[0].spec.as_ref().unwrap().replicas == Some(3);
    cluster.until(&deployments, "the fewest replicas", three).await;
    let told = |all: &[HorizontalPodAutoscaler]| {
        let status = all[0].status.clone().unwrap_or_default();
        status.desired_replicas == 3
            && status.last_scale_time.is_some()
            && condition(&all[0], "AbleToScale")
                .is_some_and(|(status, reason, _)| (status, reason) == ("True", "SucceededRescale"))
    };
    cluster.until(&scalers, "the scale", told).await;

    // Another look, now that there are enough: use is asked for, and nobody knows it.
    cluster
        .patch(&scalers, "web", json!({"spec": {"maxReplicas": 6}}))
        .await;
    let silent = |all: &[HorizontalPodAutoscaler]| {
        let able = condition(&all[0], "AbleToScale").is_some_and(|(_, reason, _)| reason == "SucceededGetScale");
        let active = condition(&all[0], "ScalingActive").is_some_and(|(status, reason, message)| {
            let why = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get \
                       metrics for resource cpu: unable to fetch metrics from resource metrics API: ";
            (status, reason) == ("False", "FailedGetResourceMetric") && message.starts_with(why)
        });
        able && active && all[0].status.as_ref().unwrap().current_replicas == Some(3)
    };
    cluster.until(&scalers, "the lack of metrics", silent).await;

    // More than the most are taken away, whatever is measured.
    cluster
        .patch(&scalers, "web", json!({"spec": {"maxReplicas": 2, "minReplicas": 1}}))
        .await;
    let two = |all: &[Deployment]| all[0].spec.as_ref().unwrap().replicas == Some(2);
    cluster.until(&deployments, "the most replicas", two).await;

    // What is not there, or has no scale, is told as well.
    cluster.create(&scalers, scaler("xa", "Deployment", "absent")).await;
    cluster.create(&scalers, scaler("xb", "DaemonSet", "web")).await;
    let failed = |all: &[HorizontalPodAutoscaler]| {
        let message = |index: usize, part: &str| {
            let told = all.get(index).and_then(|scaler| condition(scaler, "AbleToScale"));
            told.is_some_and(|(status, reason, message)| {
                (status, reason) == ("False", "FailedGetScale") && message.contains(part)
            })
        };
        message(1, "\"absent\" not found") && message(2, "daemonsets.apps does not implement the scale subresource")
    };
    cluster.until(&scalers, "the failures", failed).await;
    cluster.stop().await;
}
