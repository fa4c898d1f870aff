//! Probes: one task for each probe of each running container; its verdicts are read by plans and statuses.
//!
//! Source: <https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>.

mod action;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Container, Pod, Probe};
use minato_runtime::EventKind;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::context::Context;
use crate::pods::{Role, container};
use crate::view::ContainerView;

pub(crate) use action::{http_get, tcp_connect};

/// What probes say of a running container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// The kind of probe for which the container must be killed.
    pub(crate) failed: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// The probes of one container; they end when this is dropped.
struct Watched {
    health: Arc<Mutex<Health>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The probes of one pod's containers.
#[derive(Default)]
pub(crate) struct Probes {
    watched: HashMap<String, Watched>,
}

fn number(value: Option<i32>, default: u64) -> u64 {
    value
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0)
        .unwrap_or(default)
}

impl Probes {
    /// What is known of a container; nothing good of one that is not watched.
    pub(crate) fn health(&self, id: &str) -> Health {
        self.watched
            .get(id)
            .map(|watched| *watched.health.lock())
            .unwrap_or_default()
    }

    /// Watches exactly the running containers. `wake` is told of changed verdicts; `hooked` are containers whose start is
    /// not complete because their postStart hook has not ended.
    pub(crate) fn follow<'a>(
        &mut self,
        context: &Arc<Context>,
        pod: &Arc<Pod>,
        ip: Option<&str>,
        running: impl Iterator<Item = &'a Arc<ContainerView>>,
        wake: &Arc<Notify>,
    ) {
        let running: HashMap<&str, &Arc<ContainerView>> = running.map(|view| (view.id.as_str(), view)).collect();
        self.watched.retain(|id, _| running.contains_key(id.as_str()));
        for (id, view) in running {
            if self.watched.contains_key(id) {
                continue;
            }
            let Some((spec, role)) = container(pod, &view.name) else {
                continue;
            };
            let watched = start(context, pod, spec, role, view, ip.unwrap_or_default(), wake);
            self.watched.insert(id.to_owned(), watched);
        }
    }

    /// Ends all probes: the pod is ending.
    pub(crate) fn stop(&mut self) {
        self.watched.clear();
    }
}

fn start(
    context: &Arc<Context>,
    pod: &Arc<Pod>,
    spec: &Container,
    role: Role,
    view: &ContainerView,
    ip: &str,
    wake: &Arc<Notify>,
) -> Watched {
    // Init containers that end have no probes.
    let of = |probe: &Option<Probe>| probe.clone().filter(|_| role != Role::Init);
    let startup = of(&spec.startup_probe);
    let readiness = of(&spec.readiness_probe);
    let liveness = of(&spec.liveness_probe);
    let before = known_before(pod, &view.id);
    let started = startup.is_none() || before.is_some_and(|(started, _)| started);
    let health = Health {
        started,
        ready: if readiness.is_none() {
            started
        } else {
            before.is_some_and(|(_, ready)| ready)
        },
        failed: None,
    };
    let health = Arc::new(Mutex::new(health));
    let (up, is_up) = watch::channel(started);
    let up = Arc::new(up);
    let mut tasks = Vec::new();
    for (kind, probe) in [
        (Kind::Startup, startup),
        (Kind::Readiness, readiness),
        (Kind::Liveness, liveness),
    ] {
        let Some(probe) = probe else { continue };
        if kind == Kind::Startup && started {
            continue;
        }
        let prober = Prober {
            context: context.clone(),
            pod: pod.clone(),
            container: spec.clone(),
            id: view.id.clone(),
            ip: ip.to_owned(),
            started: view.started,
            kind,
            probe,
            has_readiness: spec.readiness_probe.is_some(),
            health: health.clone(),
            wake: wake.clone(),
            up: up.clone(),
        };
        tasks.push(tokio::spawn(prober.run(is_up.clone())));
    }
    Watched { health, tasks }
}

/// What the API server had of the same container: a restarted kubelet does not take it out of service.
fn known_before(pod: &Pod, id: &str) -> Option<(bool, bool)> {
    let status = pod.status.as_ref()?;
    let mut all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let same = all.find(|s| s.container_id.as_deref().is_some_and(|known| known.ends_with(id)))?;
    Some((same.started == Some(true), same.ready))
}

struct Prober {
    context: Arc<Context>,
    pod: Arc<Pod>,
    container: Container,
    id: String,
    ip: String,
    started: Option<Timestamp>,
    kind: Kind,
    probe: Probe,
    has_readiness: bool,
    health: Arc<Mutex<Health>>,
    wake: Arc<Notify>,
    up: Arc<watch::Sender<bool>>,
}

impl Prober {
    async fn run(self, mut is_up: watch::Receiver<bool>) {
        if self.kind != Kind::Startup && is_up.wait_for(|up| *up).await.is_err() {
            return;
        }
        let delay = number(self.probe.initial_delay_seconds, 0);
        let age = self.started.map_or(Duration::ZERO, |at| {
            Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or_default()
        });
        tokio::time::sleep(Duration::from_secs(delay).saturating_sub(age)).await;
        let mut tick = tokio::time::interval(Duration::from_secs(number(self.probe.period_seconds, 10)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let success = number(self.probe.success_threshold, 1);
        let failure = number(self.probe.failure_threshold, 3);
        let (mut last, mut run) = (None, 0_u64);
        loop {
            tick.tick().await;
            let good = self.probe_once().await;
            run = if last == Some(good) { run.saturating_add(1) } else { 1 };
            last = Some(good);
            if run < if good { success } else { failure } {
                continue;
            }
            self.conclude(good);
            if self.kind == Kind::Startup && good {
                return;
            }
        }
    }

    /// Tries three times before it counts as a failure of the probe's machinery.
    async fn probe_once(&self) -> bool {
        let result = action::run(&self.context, &self.container, &self.id, &self.ip, &self.probe).await;
        match result {
            Ok(()) => true,
            Err(message) => {
                let name = Some(self.container.name.as_str());
                let text = format!("{} probe failed: {message}", self.kind.name());
                self.context
                    .event(&self.pod, name, EventKind::Warning, "Unhealthy", text);
                false
            }
        }
    }

    fn conclude(&self, good: bool) {
        let mut health = self.health.lock();
        let before = *health;
        match self.kind {
            Kind::Startup if good => {
                health.started = true;
                health.ready |= !self.has_readiness;
            }
            Kind::Readiness => health.ready = good,
            Kind::Startup | Kind::Liveness if !good => health.failed = Some(self.kind.name()),
            _ => {}
        }
        let changed = *health != before;
        drop(health);
        if changed {
            if self.kind == Kind::Startup && good {
                self.up.send_replace(true);
            }
            self.wake.notify_one();
        }
    }
}
