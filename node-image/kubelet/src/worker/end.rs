//! The end of a pod: hooks, TERM, KILL, and the removal of every trace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use minato_api::k8s::core::v1::{Pod, PodStatus};
use minato_cri::CriError;
use minato_runtime::EventKind;

use super::execute::container_spec;
use super::{Desired, Worker};
use crate::context::Context;
use crate::pods::{PodId, Role, container, effective_grace, keys};
use crate::static_pods;
use crate::status::{confirm_deletion, remove_mirror, send_now};
use crate::view::{ContainerView, PodView};
use crate::{hooks, volumes};

/// However short the grace left after a hook, the process gets this.
const SHORTEST: Duration = Duration::from_secs(2);
/// Pause after a failure on the way; doubles up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// What the API server is told at a pod's end.
enum Report {
    /// The status that was, and the last one.
    Status(Box<(PodStatus, PodStatus)>),
    Gone,
}

fn grace_of(pod: &Pod) -> Duration {
    Duration::from_secs(u64::try_from(effective_grace(pod)).unwrap_or(1))
}

impl Worker {
    /// Ends the pod and confirms its deletion.
    pub(super) async fn end(mut self) {
        self.probes.stop();
        let since = Instant::now();
        let mut pause = RETRY.0;
        let view = loop {
            let desired = self.desired.borrow_and_update().clone();
            match self.end_once(&desired, since).await {
                Ok(Some(view)) => break view,
                // Its grace got shorter meanwhile, or it takes one more look.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(pod = self.id.long(), %error, "ending the pod failed; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        };
        self.finished = true;
        // What follows is said once, in order.
        self.status.stop().await;
        let pod = self.desired.borrow().pod.clone();
        let status = self.status_now(&pod, &view);
        let base = pod.status.clone().unwrap_or_default();
        self.persist(Report::Status(Box::new((base, status)))).await;
        self.remove_all(&view).await;
        if static_pods::is_static(&pod) {
            if let Err(error) = remove_mirror(&self.context.client, &pod).await {
                tracing::warn!(
                    pod = self.id.long(),
                    error = &error as &dyn std::error::Error,
                    "removing a mirror pod failed"
                );
            }
        } else {
            self.persist(Report::Gone).await;
        }
        self.context.objects.forget(&self.id.uid);
        self.context.images.forget(&self.id.uid);
        self.workers.remove(&self.id.uid);
        tracing::info!(pod = self.id.long(), "the pod has ended");
    }

    /// Tells the API server what it must know, unless the pod vanishes from it meanwhile.
    async fn persist(&mut self, report: Report) {
        let mut pause = RETRY.0;
        let mut gone = self.desired.clone();
        while !self.desired.borrow().gone {
            let client = &self.context.client;
            let told = match &report {
                Report::Status(status) => send_now(client, &self.id, &status.0, &status.1).await.map(drop),
                Report::Gone => confirm_deletion(client, &self.id).await,
            };
            let Err(error) = told else { return };
            tracing::warn!(
                pod = self.id.long(),
                error = &error as &dyn std::error::Error,
                "reporting the pod's end failed"
            );
            tokio::select! {
                _ = gone.wait_for(|desired| desired.gone) => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// The last view when nothing runs any more; `None` to look again.
    async fn end_once(&mut self, desired: &Desired, since: Instant) -> Result<Option<PodView>, CriError> {
        let view = self.read().await?;
        let pod = &desired.pod;
        if view.running().next().is_none() && view.sandbox().is_none() {
            return Ok(Some(view));
        }
        if !desired.gone {
            self.publish(pod, &view);
        }
        let total = grace_of(pod);
        let left = total.saturating_sub(since.elapsed());
        let mut changes = self.desired.clone();
        let shorter = changes.wait_for(|new| grace_of(&new.pod) < total);
        tokio::select! {
            killed = self.kill_pod(pod, &view, left) => killed?,
            _ = shorter => {}
        }
        Ok(None)
    }

    /// A finished pod keeps its containers and logs, and gives the rest back.
    pub(super) async fn finish(&mut self, pod: &Arc<Pod>, view: &PodView) {
        if view.running().next().is_some() || view.sandbox().is_some() {
            let grace = grace_of(pod);
            if let Err(error) = self.kill_pod(pod, view, grace).await {
                tracing::warn!(pod = self.id.long(), %error, "stopping a finished pod failed");
                self.wake.notify_one();
                return;
            }
            let view = self.read().await;
            match view {
                Ok(view) => self.publish(pod, &view),
                Err(_) => self.wake.notify_one(),
            }
        } else {
            self.publish(pod, view);
        }
        if !self.swept {
            let directory = self.context.settings.pod_dir(&self.id.uid).join("volumes");
            let parts = self.context.settings.pod_dir(&self.id.uid).join("volume-subpaths");
            for directory in [parts, directory] {
                if let Err(error) = volumes::remove_pod_dir(directory).await {
                    tracing::warn!(pod = self.id.long(), error, "removing a finished pod's volumes failed");
                }
            }
            if let Err(error) = self.context.cgroups.remove(&self.id.uid).await {
                tracing::warn!(pod = self.id.long(), %error, "removing a finished pod's cgroup failed");
            }
            self.context.objects.release(&self.id.uid);
            self.swept = true;
        }
    }

    /// Stops all containers, those beside the main ones last and in reverse order, then the sandbox.
    pub(super) async fn kill_pod(&mut self, pod: &Arc<Pod>, view: &PodView, grace: Duration) -> Result<(), CriError> {
        let began = Instant::now();
        let role = |c: &ContainerView| container(pod, &c.name).map(|(_, role)| role);
        let (mut sidecars, main): (Vec<_>, Vec<_>) =
            view.running().cloned().partition(|c| role(c) == Some(Role::Sidecar));
        let position = |c: &ContainerView| crate::pods::containers(pod).position(|(spec, _)| spec.name == c.name);
        sidecars.sort_by_key(|c| std::cmp::Reverse(position(c)));
        let hooked = self.hooked.clone();
        self.hooked.extend(view.running().map(|c| c.id.clone()));
        let ip = view.sandbox().and_then(|s| s.ips.first().cloned()).unwrap_or_default();
        let context = self.context.clone();
        let kill = |c: Arc<ContainerView>| {
            let (context, ip, hooked) = (&context, &ip, &hooked);
            let left = grace.saturating_sub(began.elapsed());
            async move {
                let message = format!("Stopping container {}", c.name);
                kill_one(context, pod, &c, ip, left, hooked.contains(&c.id), &message).await
            }
        };
        for result in join_all(main.into_iter().map(kill)).await {
            result?;
        }
        for container in sidecars {
            kill(container).await?;
        }
        for sandbox in view.sandboxes.iter().filter(|s| s.ready) {
            self.context.cri.stop_pod_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    /// Stops one container of a pod that goes on.
    pub(super) async fn kill_container(
        &mut self,
        pod: &Arc<Pod>,
        view: &PodView,
        container: &ContainerView,
        grace: Duration,
        message: &str,
    ) -> Result<(), CriError> {
        let hooked = !self.hooked.insert(container.id.clone());
        let ip = view.sandbox().and_then(|s| s.ips.first().cloned()).unwrap_or_default();
        kill_one(&self.context.clone(), pod, container, &ip, grace, hooked, message).await
    }

    /// Removes containers, sandboxes, files and groups.
    async fn remove_all(&mut self, view: &PodView) {
        for container in &view.containers {
            self.remove_log(container);
        }
        let sandboxes = view.sandboxes.iter().map(|s| s.id.clone()).collect();
        let containers = view.containers.iter().map(|c| c.id.clone()).collect();
        self.persist_removal(sandboxes, containers).await;
    }

    async fn persist_removal(&mut self, sandboxes: Vec<String>, containers: Vec<String>) {
        let mut pause = RETRY.0;
        while let Err(error) = remove_traces(&self.context, &self.id, &sandboxes, &containers).await {
            tracing::warn!(
                pod = self.id.long(),
                error,
                "removing a pod's traces failed; trying again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }
}

async fn kill_one(
    context: &Context,
    pod: &Pod,
    container: &ContainerView,
    ip: &str,
    grace: Duration,
    hooked: bool,
    message: &str,
) -> Result<(), CriError> {
    let began = Instant::now();
    if !hooked {
        context.event(pod, Some(&container.name), EventKind::Normal, "Killing", message);
        let spec = container_spec(pod, &container.name);
        let hook = spec.and_then(|c| Some((c, c.lifecycle.as_ref()?.pre_stop.as_ref()?)));
        if let Some((spec, hook)) = hook
            && let Err(error) = hooks::run(context, spec, &container.id, ip, hook, grace).await
        {
            let message = format!("PreStopHook failed: {error}");
            context.event(
                pod,
                Some(&container.name),
                EventKind::Warning,
                "FailedPreStopHook",
                message,
            );
        }
    }
    let left = grace.saturating_sub(began.elapsed());
    let left = if grace >= SHORTEST { left.max(SHORTEST) } else { left };
    context.cri.stop_container(&container.id, left).await
}

async fn remove_traces(
    context: &Context,
    id: &PodId,
    sandboxes: &[String],
    containers: &[String],
) -> Result<(), String> {
    for container in containers {
        context
            .cri
            .remove_container(container)
            .await
            .map_err(|error| error.to_string())?;
    }
    for sandbox in sandboxes {
        context
            .cri
            .stop_pod_sandbox(sandbox)
            .await
            .map_err(|error| error.to_string())?;
        context
            .cri
            .remove_pod_sandbox(sandbox)
            .await
            .map_err(|error| error.to_string())?;
    }
    volumes::remove_pod_dir(context.settings.pod_dir(&id.uid)).await?;
    if !id.name.is_empty() {
        volumes::remove_pod_dir(context.settings.pod_log_dir(&id.namespace, &id.name, &id.uid)).await?;
    }
    context
        .cgroups
        .remove(&id.uid)
        .await
        .map_err(|error| format!("removing the pod's cgroup: {error}"))
}

/// Ends a pod that the runtime has and the API does not: it was deleted while no kubelet ran.
pub(crate) async fn end_orphan(context: &Context, id: &PodId) -> Result<(), String> {
    let labels = HashMap::from([(keys::POD_UID.to_owned(), id.uid.clone())]);
    let containers = context
        .cri
        .list_containers(labels.clone())
        .await
        .map_err(|error| error.to_string())?;
    let sandboxes = context
        .cri
        .list_pod_sandboxes(labels)
        .await
        .map_err(|error| error.to_string())?;
    let stop = containers.iter().map(|container| async {
        let grace = container
            .annotations
            .get(keys::GRACE)
            .and_then(|text| text.parse().ok());
        context
            .cri
            .stop_container(&container.id, Duration::from_secs(grace.unwrap_or(30)))
            .await
    });
    for result in join_all(stop).await {
        result.map_err(|error| error.to_string())?;
    }
    for container in &containers {
        let name = container
            .labels
            .get(keys::CONTAINER_NAME)
            .map(String::as_str)
            .unwrap_or_default();
        let link = super::execute::log_link(id, name, &container.id);
        let _ = std::fs::remove_file(context.settings.container_logs_dir.join(link));
    }
    let ids = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
    let sandboxes = ids(&mut sandboxes.into_iter().map(|s| s.id));
    let containers = ids(&mut containers.into_iter().map(|c| c.id));
    remove_traces(context, id, &sandboxes, &containers).await
}
