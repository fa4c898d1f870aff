//! Pods that were told to go, and were not taken away: after a while they are told that they stay.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Pod, PodCondition};
use minato_api::meta_v1::Time;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};
use serde_json::json;

use crate::Context;
use crate::error::{Result, is_not_found};
use crate::{ops, pods};

const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// How long until a pod's condition `DisruptionTarget` is stale; `None` when it never will be. The kubelet's own is true
/// however long the pod takes to end.
pub(super) fn stale_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    if pods::is_terminating(pod) || pods::is_finished(pod) {
        return None;
    }
    let told = pods::condition(pod, pods::DISRUPTION).filter(|condition| condition.status == "True")?;
    if told.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    let since = told
        .last_transition_time
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(Duration::try_from(PATIENCE - now.duration_since(since)).unwrap_or(Duration::ZERO))
}

/// Starts the controller of those conditions.
pub(super) fn start(cx: &Context, pods: &Informer<Pod>) {
    let controller = Controller::new("stale_pod_disruption", &cx.runtime);
    let (cx, all) = (cx.clone(), pods.clone());
    controller
        .workers(1)
        .watch(pods, |change, add| {
            let pod = change.object();
            if !matches!(change, Change::Deleted(_)) && stale_in(pod, Timestamp::now()).is_some() {
                add(ObjectKey::of(pod.as_ref()));
            }
        })
        .run(move |key| {
            let (cx, pod) = (cx.clone(), all.get(&key));
            async move { reconcile(&cx, pod).await }
        });
}

async fn reconcile(cx: &Context, pod: Option<Arc<Pod>>) -> Result<Next> {
    let now = Timestamp::now();
    let Some((pod, left)) = pod.and_then(|pod| stale_in(&pod, now).map(|left| (pod, left))) else {
        return Ok(Next::Done);
    };
    if !left.is_zero() {
        return Ok(Next::After(left));
    }
    let mut conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    for condition in conditions
        .iter_mut()
        .filter(|condition| condition.type_ == pods::DISRUPTION)
    {
        *condition = PodCondition {
            type_: pods::DISRUPTION.to_owned(),
            status: "False".to_owned(),
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        };
    }
    let api = ops::namespaced::<Pod>(cx.client(), ops::namespace(&pod.metadata));
    match ops::merge_status(&api, &pod.metadata, json!({"status": {"conditions": conditions}})).await {
        Err(error) if !is_not_found(&error) => Err(error.into()),
        _ => Ok(Next::Done),
    }
}
