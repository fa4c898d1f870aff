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

/// Sends the newest status of one pod, in the background: a slow API server does not hold the pod up. Ends when dropped.
pub(crate) struct StatusSender {
    newest: watch::Sender<Option<Arc<PodStatus>>>,
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
        let base = pod.status.clone().unwrap_or_default();
        Self {
            newest,
            task: tokio::spawn(run(client, PodId::of(pod), base, receiver)),
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

    /// Replaces what is to be sent.
    pub(crate) fn set(&self, status: PodStatus) {
        self.newest.send_if_modified(|newest| {
            let differs = newest.as_deref() != Some(&status);
            if differs {
                *newest = Some(Arc::new(status));
            }
            differs
        });
    }
}

async fn run(client: Client, id: PodId, mut base: PodStatus, mut newest: watch::Receiver<Option<Arc<PodStatus>>>) {
    let mut pause = RETRY.0;
    while newest.changed().await.is_ok() {
        loop {
            let Some(status) = newest.borrow_and_update().clone() else {
                break;
            };
            match send_now(&client, &id, &base, &status).await {
                Ok(Some(now)) => {
                    base = now;
                    pause = RETRY.0;
                    break;
                }
                // The pod is gone or another one: nobody wants its status.
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(
                        pod = id.long(),
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
    mut newest: watch::Receiver<Option<Arc<PodStatus>>>,
) {
    let mut pause = RETRY.0;
    let mut known: Option<(PodId, PodStatus)> = None;
    loop {
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = again.notified() => known = None,
        }
        loop {
            let Some(status) = newest.borrow_and_update().clone() else {
                break;
            };
            let nodes = node.list();
            let Some(node) = nodes.first() else { break };
            let sent = async {
                let (id, base) = match known.take() {
                    Some(known) => known,
                    None => {
                        let there = mirror::ensure(&client, &pod, node).await?;
                        (PodId::of(&there), there.status.unwrap_or_default())
                    }
                };
                let now = send_now(&client, &id, &base, &status).await?;
                Ok::<_, minato_api::kube::Error>(now.map(|now| (id, now)))
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

/// Sends what differs; the status as the server has it then, or `None` if the pod is gone.
pub(crate) async fn send_now(
    client: &Client,
    id: &PodId,
    base: &PodStatus,
    status: &PodStatus,
) -> Result<Option<PodStatus>, minato_api::kube::Error> {
    let Some(patch) = patch(base, status) else {
        return Ok(Some(base.clone()));
    };
    let patch = json!({"metadata": {"uid": id.uid}, "status": patch});
    let api: Api<Pod> = Api::namespaced(client.clone(), &id.namespace);
    match api
        .patch_status(&id.name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
    {
        Ok(pod) => Ok(Some(pod.status.unwrap_or_default())),
        Err(error) if matches!(api_code(&error), Some(404 | 409)) => Ok(None),
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
