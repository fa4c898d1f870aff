//! Doing the steps of a plan. A step that fails is remembered and tried again later; the others go on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Container, Pod};
use minato_api::k8s::node::v1::RuntimeClass;
use minato_api::kube::Api;
use minato_runtime::EventKind;

use super::Worker;
use super::plan::{Cause, SANDBOX, Step};
use crate::client::api_message;
use crate::container::Parts;
use crate::pods::{self, PodId, container, spec_grace};
use crate::view::{ContainerView, PodView, State};
use crate::{env, hooks, network, resources, sandbox, volumes};

/// Why a container does not run.
struct Failure {
    reason: &'static str,
    message: String,
    /// When to try again, where something else than the worker's own back-off says so.
    until: Option<Timestamp>,
    by_objects: bool,
}

impl Failure {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            until: None,
            by_objects: false,
        }
    }
}

impl Worker {
    /// Makes what the containers stand on: cgroup, directories, volumes. When to try again, on failure.
    pub(super) async fn prepare(&mut self, pod: &Arc<Pod>, view: &PodView) -> Result<(), Timestamp> {
        let now = Timestamp::now();
        if let Some(until) = self.memory.held("volumes", now) {
            return Err(until);
        }
        let settings = &self.context.settings;
        let bounds = resources::pod(pod, settings.cpu_quota);
        let qos = resources::qos(pod);
        let made = self.context.cgroups.ensure(qos, &self.id.uid, &bounds).and_then(|()| {
            std::fs::create_dir_all(settings.pod_dir(&self.id.uid))?;
            std::fs::create_dir_all(settings.pod_log_dir(&self.id.namespace, &self.id.name, &self.id.uid))
        });
        if let Err(error) = made {
            let message = format!("failed to make the pod's cgroup and directories: {error}");
            return Err(self.not_prepared(pod, "FailedCreatePodContainer", message, false));
        }
        let place = self.place(pod, view);
        match volumes::ensure(&self.context, pod, &place, &mut self.tokens).await {
            Ok(volumes) => self.volumes = Some(volumes),
            Err(error) => return Err(self.not_prepared(pod, "FailedMount", error.to_string(), true)),
        }
        self.memory.succeeded("volumes");
        self.context.services.synced().await;
        Ok(())
    }

    fn not_prepared(&mut self, pod: &Pod, reason: &str, message: String, by_objects: bool) -> Timestamp {
        let now = Timestamp::now();
        self.context
            .event(pod, None, EventKind::Warning, reason, message.clone());
        self.memory.failed("volumes", now, reason, message, by_objects);
        self.memory.held("volumes", now).unwrap_or(now)
    }

    pub(super) async fn execute(&mut self, pod: &Arc<Pod>, view: &PodView, step: Step) {
        match step {
            Step::CreateSandbox { attempt } => self.create_sandbox(pod, attempt).await,
            Step::StopSandbox { id } => {
                if let Err(error) = self.context.cri.stop_pod_sandbox(&id).await {
                    tracing::warn!(pod = self.id.long(), %error, "stopping a lost sandbox failed");
                }
                self.context.event(
                    pod,
                    None,
                    EventKind::Normal,
                    "SandboxChanged",
                    "Pod sandbox changed, it will be killed and re-created.",
                );
            }
            Step::Remove { id } => {
                if let Err(error) = self.context.cri.remove_container(&id).await {
                    tracing::warn!(pod = self.id.long(), %error, "removing a container failed");
                }
            }
            Step::Kill { id, name, cause } => self.kill_for(pod, view, &id, &name, &cause).await,
            Step::Start { name, restart_count } => self.start(pod, view, &name, restart_count).await,
        }
    }

    async fn create_sandbox(&mut self, pod: &Arc<Pod>, attempt: u32) {
        let config = sandbox::config(&self.context, pod, attempt);
        let handler = match self.runtime_handler(pod).await {
            Ok(handler) => handler,
            Err(message) => return self.no_sandbox(pod, &message),
        };
        match self.context.cri.run_pod_sandbox(config, &handler).await {
            Ok(_) => self.memory.succeeded(SANDBOX),
            Err(error) => self.no_sandbox(pod, &error.to_string()),
        }
    }

    fn no_sandbox(&mut self, pod: &Pod, error: &str) {
        let message = format!("Failed to create pod sandbox: {error}");
        self.context
            .event(pod, None, EventKind::Warning, "FailedCreatePodSandBox", message.clone());
        self.memory
            .failed(SANDBOX, Timestamp::now(), "FailedCreatePodSandBox", message, false);
    }

    /// The runtime's handler for the pod's class; the default one for none.
    async fn runtime_handler(&self, pod: &Pod) -> Result<String, String> {
        let Some(class) = pods::spec(pod)
            .runtime_class_name
            .as_deref()
            .filter(|name| !name.is_empty())
        else {
            return Ok(String::new());
        };
        let api: Api<RuntimeClass> = Api::all(self.context.client.clone());
        match api.get_opt(class).await {
            Ok(Some(found)) => Ok(found.handler),
            Ok(None) => Err(format!("RuntimeClass.node.k8s.io \"{class}\" not found")),
            Err(error) => Err(api_message(&error)),
        }
    }

    async fn kill_for(&mut self, pod: &Arc<Pod>, view: &PodView, id: &str, name: &str, cause: &Cause) {
        let Some(container) = view.containers.iter().find(|c| c.id == id) else {
            return;
        };
        let spec = container_spec(pod, name);
        let mut grace = spec_grace(pod);
        let message = match cause {
            Cause::Unhealthy(kind) => {
                let probe = spec.and_then(|c| {
                    if *kind == "Startup" {
                        c.startup_probe.as_ref()
                    } else {
                        c.liveness_probe.as_ref()
                    }
                });
                grace = probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or(grace);
                format!(
                    "Container {name} failed {} probe, will be restarted",
                    kind.to_lowercase()
                )
            }
            Cause::Changed => format!("Container {name} definition changed, will be restarted"),
            Cause::Unknown => format!("Container {name} is in unknown state, try killing it before restart"),
            Cause::NoSandbox => format!("Stopping container {name}"),
        };
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if let Err(error) = self.kill_container(pod, view, container, grace, &message).await {
            tracing::warn!(pod = self.id.long(), container = name, %error, "killing a container failed");
        }
    }

    async fn start(&mut self, pod: &Arc<Pod>, view: &PodView, name: &str, restart_count: u32) {
        let Some(spec) = pods::any_container(pod, name) else {
            return;
        };
        let again = view.container(name).is_some();
        match self.try_start(pod, view, &spec, restart_count).await {
            Ok(()) => {
                self.memory.succeeded(name);
                if again {
                    self.memory.restarted(name, Timestamp::now());
                }
            }
            Err(failure) => {
                let now = Timestamp::now();
                match failure.until {
                    Some(until) => {
                        self.memory
                            .hold_until(name, until, failure.reason, failure.message, failure.by_objects);
                    }
                    None => self
                        .memory
                        .failed(name, now, failure.reason, failure.message, failure.by_objects),
                }
            }
        }
    }

    async fn try_start(
        &mut self,
        pod: &Arc<Pod>,
        view: &PodView,
        spec: &Container,
        restart_count: u32,
    ) -> Result<(), Failure> {
        let name = spec.name.as_str();
        let context = self.context.clone();
        let sandbox = view
            .sandbox()
            .ok_or_else(|| Failure::new("ContainerCreating", "the pod has no sandbox"))?;
        let sandbox_config = sandbox::config(&context, pod, sandbox.attempt);
        let image = context
            .images
            .ensure(&context, pod, spec, &sandbox_config)
            .await
            .map_err(|error| Failure {
                reason: error.reason,
                message: error.message,
                // A failed pull shows as such for a moment before it shows as held back.
                until: error.until.or_else(|| {
                    (error.reason == "ErrImagePull").then(|| Timestamp::now() + SignedDuration::from_secs(3))
                }),
                by_objects: true,
            })?;
        let place = self.place(pod, view);
        let failed = |reason: &'static str, message: String| {
            context.event(
                pod,
                Some(name),
                EventKind::Warning,
                "Failed",
                format!("Error: {message}"),
            );
            Failure::new(reason, message)
        };
        let environment = env::environment(&context, pod, spec, &place)
            .await
            .map_err(|message| Failure {
                by_objects: true,
                ..failed("CreateContainerConfigError", message)
            })?;
        let hosts = self
            .hosts_file(pod, &place.pod_ips)
            .map_err(|e| failed("CreateContainerConfigError", e))?;
        let volumes = self.volumes.clone().unwrap_or_default();
        let config = Parts {
            context: &context,
            pod,
            container: spec,
            restart_count,
            image: &image,
            environment,
            volumes: &volumes,
            hosts_file: &hosts,
            target: target_of(pod, view, name).map_err(|e| failed("CreateContainerConfigError", e))?,
        };
        let config = config.build().map_err(|e| failed("CreateContainerConfigError", e))?;
        let logs = PathBuf::from(&sandbox_config.log_directory);
        std::fs::create_dir_all(logs.join(name)).map_err(|e| failed("CreateContainerError", e.to_string()))?;
        let log = logs.join(&config.log_path);
        let id = context.cri.create_container(&sandbox.id, config, sandbox_config).await;
        let id = id.map_err(|e| failed("CreateContainerError", e.message))?;
        context.event(pod, Some(name), EventKind::Normal, "Created", "Container created");
        if let Err(error) = context.cri.start_container(&id).await {
            // The runtime shows it as ended; it is started anew as one that crashed.
            self.memory.restarted(name, Timestamp::now());
            return Err(failed("RunContainerError", error.message));
        }
        context.event(pod, Some(name), EventKind::Normal, "Started", "Container started");
        self.link_log(name, &id, &log);
        self.post_start(
            pod,
            spec,
            &id,
            place.pod_ips.first().map(String::as_str).unwrap_or_default(),
        )
        .await
    }

    fn hosts_file(&self, pod: &Pod, ips: &[String]) -> Result<PathBuf, String> {
        let path = self.context.settings.pod_dir(&self.id.uid).join("etc-hosts");
        let text = network::hosts(pod, &self.context.settings, ips);
        std::fs::write(&path, text).map_err(|error| format!("writing {}: {error}", path.display()))?;
        Ok(path)
    }

    /// The link by which log collectors find a container's log.
    fn link_log(&self, name: &str, id: &str, log: &Path) {
        let directory = &self.context.settings.container_logs_dir;
        let link = directory.join(log_link(&self.id, name, id));
        let made = std::fs::create_dir_all(directory).and_then(|()| std::os::unix::fs::symlink(log, link));
        if let Err(error) = made {
            tracing::warn!(pod = self.id.long(), container = name, %error, "linking a container's log failed");
        }
    }

    async fn post_start(&mut self, pod: &Arc<Pod>, spec: &Container, id: &str, ip: &str) -> Result<(), Failure> {
        let Some(hook) = spec
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.post_start.as_ref())
        else {
            return Ok(());
        };
        // Upstream bounds it by nothing but the pod's end, which drops this.
        let limit = Duration::from_secs(3600);
        let Err(error) = hooks::run(&self.context, spec, id, ip, hook, limit).await else {
            return Ok(());
        };
        let message = format!("PostStartHook failed: {error}");
        self.context.event(
            pod,
            Some(&spec.name),
            EventKind::Warning,
            "FailedPostStartHook",
            message.clone(),
        );
        let grace = Duration::from_secs(u64::try_from(spec_grace(pod)).unwrap_or(0));
        if let Err(error) = self.context.cri.stop_container(id, grace).await {
            tracing::warn!(pod = self.id.long(), container = spec.name, %error, "killing after a failed hook failed");
        }
        self.memory.restarted(&spec.name, Timestamp::now());
        Err(Failure::new("PostStartHookError", message))
    }

    /// Removes dead containers but the newest two of each name, and sandboxes that nothing is in.
    pub(super) async fn collect_garbage(&mut self, view: &PodView) {
        let mut names: Vec<&str> = view.containers.iter().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut kept = Vec::new();
        for name in names {
            for (age, container) in view.attempts(name).enumerate() {
                if age < 2 || container.state == State::Running {
                    kept.push(container.sandbox.as_str());
                } else if self.context.cri.remove_container(&container.id).await.is_ok() {
                    self.remove_log(container);
                }
            }
        }
        for old in view.sandboxes.iter().skip(1).filter(|s| !kept.contains(&s.id.as_str())) {
            let stopped = self.context.cri.stop_pod_sandbox(&old.id).await;
            if stopped.is_ok() {
                let _ = self.context.cri.remove_pod_sandbox(&old.id).await;
            }
        }
    }

    pub(super) fn remove_log(&self, container: &ContainerView) {
        let _ = std::fs::remove_file(&container.log);
        let link = log_link(&self.id, &container.name, &container.id);
        let _ = std::fs::remove_file(self.context.settings.container_logs_dir.join(link));
    }
}

/// The runtime's id of the container whose processes an added one shall see.
fn target_of(pod: &Pod, view: &PodView, name: &str) -> Result<Option<String>, String> {
    let added = pods::ephemeral(pod).find(|(container, _)| container.name == name);
    let Some(target) = added.and_then(|(_, target)| target) else {
        return Ok(None);
    };
    let running = view.container(target).filter(|c| c.state == State::Running);
    running
        .map(|c| Some(c.id.clone()))
        .ok_or_else(|| format!("the target container {target:?} does not run"))
}

pub(super) fn container_spec<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    container(pod, name).map(|(container, _)| container)
}

pub(super) fn log_link(id: &PodId, container: &str, container_id: &str) -> String {
    format!("{}_{}_{container}-{container_id}.log", id.name, id.namespace)
}
