//! Watching the runtime: its events wake a look at everything that runs; a look each second finds what no event told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use minato_cri::v1::{ContainerState, PodSandboxState};
use minato_cri::{CriError, watch_exits};
use tokio::sync::Notify;

use crate::context::Context;
use crate::pods::{PodId, keys};
use crate::worker::{Workers, end_orphan};

/// Longest time until a change is seen without an event.
const RELIST: Duration = Duration::from_secs(1);

/// States of a pod's sandboxes and containers, by id.
type States = BTreeMap<String, i32>;

/// Wakes whenever the runtime tells of something.
pub(crate) async fn listen(context: Arc<Context>, news: Arc<Notify>) {
    loop {
        match watch_exits(context.cri.socket()).await {
            Ok(mut events) => {
                news.notify_one();
                while events.next().await.is_some() {
                    news.notify_one();
                }
                tracing::warn!("the runtime's event stream ended");
            }
            Err(error) if error.is_unimplemented() => {
                tracing::info!("the runtime has no event stream; looking each second instead");
                return;
            }
            Err(error) => tracing::debug!(%error, "no event stream from the runtime"),
        }
        tokio::time::sleep(RELIST).await;
    }
}

async fn look(context: &Context) -> Result<HashMap<PodId, States>, CriError> {
    let sandboxes = context.cri.list_pod_sandboxes(HashMap::new()).await?;
    let containers = context.cri.list_containers(HashMap::new()).await?;
    let id = |labels: &HashMap<String, String>| {
        let label = |key: &str| labels.get(key).cloned();
        Some(PodId {
            uid: label(keys::POD_UID)?,
            name: label(keys::POD_NAME).unwrap_or_default(),
            namespace: label(keys::POD_NAMESPACE).unwrap_or_default(),
        })
    };
    let ready = sandboxes
        .iter()
        .filter(|s| s.state() == PodSandboxState::SandboxReady)
        .count();
    let in_state = |state: ContainerState| containers.iter().filter(|c| c.state() == state).count();
    let counts = [
        ("created", in_state(ContainerState::ContainerCreated)),
        ("running", in_state(ContainerState::ContainerRunning)),
        ("exited", in_state(ContainerState::ContainerExited)),
        ("unknown", in_state(ContainerState::ContainerUnknown)),
    ];
    context.figures.set(ready, counts);
    let mut pods: HashMap<PodId, States> = HashMap::new();
    for sandbox in sandboxes {
        if let Some(id) = id(&sandbox.labels) {
            pods.entry(id).or_default().insert(sandbox.id, sandbox.state);
        }
    }
    for container in containers {
        if let Some(id) = id(&container.labels) {
            pods.entry(id).or_default().insert(container.id, container.state);
        }
    }
    Ok(pods)
}

/// Wakes the workers of pods that changed, and ends pods that nobody wants. Runs once the API's pods are known.
pub(crate) async fn watch(context: Arc<Context>, workers: Workers, news: Arc<Notify>) {
    let mut before: HashMap<PodId, States> = HashMap::new();
    let mut unwanted: HashSet<String> = HashSet::new();
    loop {
        match look(&context).await {
            Ok(now) => {
                for (id, states) in &now {
                    if before.get(id) != Some(states) {
                        workers.wake(&id.uid);
                    }
                }
                for id in before.keys().filter(|id| !now.contains_key(id)) {
                    workers.wake(&id.uid);
                }
                if now != before {
                    context.news.send_modify(|count| *count = count.wrapping_add(1));
                }
                unwanted = end_unwanted(&context, &workers, &now, &unwanted).await;
                before = now;
            }
            Err(error) => tracing::warn!(%error, "listing what runs failed"),
        }
        tokio::select! {
            () = news.notified() => {}
            () = tokio::time::sleep(RELIST) => {}
        }
    }
}

/// Ends pods without workers that were seen twice in a row: a worker that is just ending removes its own traces.
async fn end_unwanted(
    context: &Arc<Context>,
    workers: &Workers,
    now: &HashMap<PodId, States>,
    before: &HashSet<String>,
) -> HashSet<String> {
    let mut unwanted = HashSet::new();
    for id in now.keys().filter(|id| !workers.has(&id.uid)) {
        if before.contains(&id.uid) {
            tracing::info!(pod = id.long(), "ending a pod that is not in the API");
            if let Err(error) = end_orphan(context, id).await {
                tracing::warn!(pod = id.long(), error, "ending it failed");
            }
        }
        unwanted.insert(id.uid.clone());
    }
    unwanted
}

/// Removes files and groups of pods that neither the API nor the runtime has.
pub(crate) async fn sweep(context: &Context, workers: &Workers) {
    let Ok(running) = look(context).await else { return };
    let known: HashSet<String> = running.into_keys().map(|id| id.uid).collect();
    let directory = context.settings.root_dir.join("pods");
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let of_files = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let uids: HashSet<String> = of_files.chain(context.cgroups.pods()).collect();
    for uid in uids.into_iter().filter(|uid| !known.contains(uid) && !workers.has(uid)) {
        if let Err(error) = crate::volumes::remove_pod_dir(directory.join(&uid)).await {
            tracing::warn!(uid, error, "removing a dead pod's files failed");
        }
        if let Err(error) = context.cgroups.remove(&uid).await {
            tracing::warn!(uid, %error, "removing a dead pod's cgroup failed");
        }
    }
}
