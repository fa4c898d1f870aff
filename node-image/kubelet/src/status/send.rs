//! Sending statuses to the API server.

use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::{Node, Pod, PodStatus};
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use minato_api::kube::{Api, Client};
use minato_runtime::Informer;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use super::mirror;
use crate::client::api_code;
use crate::pods::PodId;

/// Pause after a failure; doubles up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// A status to send.
#[derive(Clone)]
struct News {
    status: Arc<PodStatus>,
    /// The pod as the watch had it: others may have written its status.
    seen: Arc<Pod>,
}

/// The pod's status as the API server is known to have it.
struct Known {
    id: PodId,
    status: PodStatus,
    version: u64,
}

impl Known {
    fn of(pod: &Pod) -> Self {
        Self {
            id: PodId::of(pod),
            status: pod.status.clone().unwrap_or_default(),
            version: version(pod),
        }
    }
}

/// Versions of one object compare as numbers.
fn version(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// Sends the newest status of one pod, in the background: a slow API server does not hold the pod up. Ends when dropped.
pub(crate) struct StatusSender {
    newest: watch::Sender<Option<News>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StatusSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StatusSender {
    /// For the pod, whose status at the API server is known to be as `pod` has it.
    pub(crate) fn start(client: Client, pod: &Pod) -> Self {
        let (newest, receiver) = watch::channel(None);
        Self {
            newest,
            task: tokio::spawn(run(client, Known::of(pod), receiver)),
        }
    }

    /// For a static pod: its mirror gets the status, and is made anew whenever `again` tells that it may be gone.
    pub(crate) fn start_mirror(client: Client, pod: Arc<Pod>, node: Informer<Node>, again: Arc<Notify>) -> Self {
        let (newest, receiver) = watch::channel(None);
        Self {
            newest,
            task: tokio::spawn(run_mirror(client, pod, node, again, receiver)),
        }
    }

    /// Sends nothing any more; when this returns, nothing is under way either.
    pub(crate) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Replaces what is to be sent; `seen` is the pod that it was computed from.
    pub(crate) fn set(&self, status: PodStatus, seen: &Arc<Pod>) {
        self.newest.send_if_modified(|newest| {
            let same = newest.as_ref().is_some_and(|newest| {
                *newest.status == status && newest.seen.metadata.resource_version == seen.metadata.resource_version
            });
            if !same {
                *newest = Some(News {
                    status: Arc::new(status),
                    seen: seen.clone(),
                });
            }
            !same
        });
    }
}

async fn run(client: Client, mut known: Known, mut newest: watch::Receiver<Option<News>>) {
    let mut pause = RETRY.0;
    while newest.changed().await.is_ok() {
        loop {
            let Some(news) = newest.borrow_and_update().clone() else {
                break;
            };
            if version(&news.seen) > known.version {
                known = Known::of(&news.seen);
            }
            match send_now(&client, &known.id, &known.status, &news.status).await {
                Ok(Sent::Same) => break,
                Ok(Sent::Changed(pod)) => {
                    known = Known::of(&pod);
                    pause = RETRY.0;
                    break;
                }
                // Nobody wants its status.
                Ok(Sent::Gone) => break,
                Err(error) => {
                    let pod = known.id.long();
                    tracing::warn!(
                        pod,
                        error = &error as &dyn std::error::Error,
                        "sending a pod's status failed"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }
}

async fn run_mirror(
    client: Client,
    pod: Arc<Pod>,
    node: Informer<Node>,
    again: Arc<Notify>,
    mut newest: watch::Receiver<Option<News>>,
) {
    let mut pause = RETRY.0;
    let mut known: Option<Known> = None;
    loop {
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = again.notified() => known = None,
        }
        loop {
            let Some(news) = newest.borrow_and_update().clone() else {
                break;
            };
            let nodes = node.list();
            let Some(node) = nodes.first() else { break };
            let sent = async {
                let base = match known.take() {
                    Some(known) => known,
                    None => Known::of(&mirror::ensure(&client, &pod, node).await?),
                };
                Ok::<_, minato_api::kube::Error>(
                    match send_now(&client, &base.id, &base.status, &news.status).await? {
                        Sent::Same => Some(base),
                        Sent::Changed(pod) => Some(Known::of(&pod)),
                        Sent::Gone => None,
                    },
                )
            };
            match sent.await {
                Ok(now) => {
                    known = now;
                    pause = RETRY.0;
                    break;
                }
                Err(error) => {
                    let name = PodId::of(&pod).long();
                    tracing::warn!(
                        pod = name,
                        error = &error as &dyn std::error::Error,
                        "mirroring a static pod failed"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }
}

/// What became of a status.
pub(crate) enum Sent {
    /// It is there already.
    Same,
    /// The pod as the server has it now.
    Changed(Box<Pod>),
    /// The pod is gone, or another one has its name.
    Gone,
}

/// Sends what differs from `base`.
pub(crate) async fn send_now(
    client: &Client,
    id: &PodId,
    base: &PodStatus,
    status: &PodStatus,
) -> Result<Sent, minato_api::kube::Error> {
    let Some(patch) = patch(base, status) else {
        return Ok(Sent::Same);
    };
    let patch = json!({"metadata": {"uid": id.uid}, "status": patch});
    let api: Api<Pod> = Api::namespaced(client.clone(), &id.namespace);
    match api
        .patch_status(&id.name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
    {
        Ok(pod) => Ok(Sent::Changed(Box::new(pod))),
        Err(error) if matches!(api_code(&error), Some(404 | 409)) => Ok(Sent::Gone),
        Err(error) => Err(error),
    }
}

/// Tells the API server that the pod has ended here and may go.
pub(crate) async fn confirm_deletion(client: &Client, id: &PodId) -> Result<(), minato_api::kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &id.namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(id.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&id.name, &parameters).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(api_code(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Fields that the kubelet owns.
const OURS: &[&str] = &[
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "observedGeneration",
    "phase",
    "podIP",
    "podIPs",
    "reason",
    "startTime",
];

/// A strategic merge patch from one status to the other, or `None` when they say the same. Conditions of others stay.
pub(super) fn patch(base: &PodStatus, status: &PodStatus) -> Option<Value> {
    let old = serde_json::to_value(base).unwrap_or_default();
    let new = serde_json::to_value(status).unwrap_or_default();
    let mut fields = Map::new();
    for name in OURS {
        let (before, after) = (old.get(*name), new.get(*name));
        if before == after {
            continue;
        }
        let value = match (*name, after) {
            (_, None) => Value::Null,
            ("podIPs" | "hostIPs", Some(after)) => replaced_addresses(before, after),
            (_, Some(after)) => after.clone(),
        };
        fields.insert((*name).to_owned(), value);
    }
    let conditions = changed_conditions(&old, &new);
    if !conditions.is_empty() {
        fields.insert("conditions".to_owned(), Value::Array(conditions));
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Lists of addresses merge by address: those that are no longer there must be named.
fn replaced_addresses(before: Option<&Value>, after: &Value) -> Value {
    let mut items = after.as_array().cloned().unwrap_or_default();
    for old in before.and_then(Value::as_array).into_iter().flatten() {
        if !items.iter().any(|item| item["ip"] == old["ip"]) {
            items.push(json!({"$patch": "delete", "ip": old["ip"]}));
        }
    }
    Value::Array(items)
}

fn changed_conditions(old: &Value, new: &Value) -> Vec<Value> {
    let list = |status: &Value| status["conditions"].as_array().cloned().unwrap_or_default();
    let before = list(old);
    let mut changed = Vec::new();
    for mut condition in list(new) {
        let same = before.iter().find(|c| c["type"] == condition["type"]);
        if same == Some(&condition) {
            continue;
        }
        if let (Some(same), Some(fields)) = (same.and_then(Value::as_object), condition.as_object_mut()) {
            // The transition is dated by the status as the server has it, whatever the informer had.
            if same.get("status") == fields.get("status")
                && let Some(since) = same.get("lastTransitionTime")
            {
                fields.insert("lastTransitionTime".to_owned(), since.clone());
            }
            for name in same.keys() {
                fields.entry(name.clone()).or_insert(Value::Null);
            }
            if fields
                .iter()
                .all(|(name, value)| same.get(name).unwrap_or(&Value::Null) == value)
            {
                continue;
            }
        }
        changed.push(condition);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn condition(type_: &str, value: &str, since: &str) -> Value {
        json!({"type": type_, "status": value, "lastTransitionTime": since})
    }

    #[test]
    fn only_what_differs_is_sent() {
        let base = status(
            json!({"phase": "Pending", "qosClass": "Burstable", "message": "old", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [condition("Ready", "False", "2026-01-01T00:00:00Z"), condition("Other", "True", "2026-01-01T00:00:00Z")]}),
        );
        assert_eq!(patch(&base, &base), None);
        let new = status(json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.2"}],
            "conditions": [condition("Ready", "True", "2026-01-02T00:00:00Z")]}));
        let expected = json!({
            "phase": "Running", "message": null,
            "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
            "conditions": [condition("Ready", "True", "2026-01-02T00:00:00Z")],
        });
        assert_eq!(patch(&base, &new), Some(expected));
    }

    #[test]
    fn a_condition_that_holds_keeps_its_time() {
        let base = status(json!({"conditions": [condition("Ready", "True", "2026-01-01T00:00:00Z")]}));
        let later = status(json!({"conditions": [condition("Ready", "True", "2026-01-05T00:00:00Z")]}));
        assert_eq!(patch(&base, &later), None);
    }
}
