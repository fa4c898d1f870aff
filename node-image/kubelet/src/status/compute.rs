//! The status of a pod: a pure function of its spec and what the runtime has.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>.

use std::net::IpAddr;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use minato_api::meta_v1::Time;

use crate::pods::{PodId, RestartPolicy, Role, containers, ephemeral, is_host_network, restart_policy, spec};
use crate::probes::Health;
use crate::view::{ContainerView, PodView, State};
use crate::worker::Memory;

/// A verdict on the whole pod that overrides what its containers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What a status is made of.
pub(crate) struct Situation<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) view: &'a PodView,
    pub(crate) memory: &'a Memory,
    pub(crate) health: &'a dyn Fn(&str) -> Health,
    pub(crate) host_ips: &'a [IpAddr],
    /// The pod failed as a whole.
    pub(crate) outcome: Option<&'a Outcome>,
    /// Nothing of it will run again.
    pub(crate) finished: bool,
    pub(crate) now: Timestamp,
}

fn whole(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn terminated(view: &ContainerView) -> ContainerState {
    let reason = match view.reason.as_str() {
        "" if view.state == State::Unknown => "ContainerStatusUnknown",
        "" if view.exit_code == 0 => "Completed",
        "" => "Error",
        reason => reason,
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("containerd://{}", view.id)),
            exit_code: if view.state == State::Unknown {
                137
            } else {
                view.exit_code
            },
            finished_at: view.finished.map(whole),
            message: (!view.message.is_empty()).then(|| view.message.clone()),
            reason: Some(reason.to_owned()),
            signal: None,
            started_at: view.started.map(whole),
        }),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: (!message.is_empty()).then(|| message.to_owned()),
        }),
        ..ContainerState::default()
    }
}

impl Situation<'_> {
    fn old(&self, name: &str) -> Option<&ContainerStatus> {
        let status = self.pod.status.as_ref()?;
        let mut all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .chain(&status.ephemeral_container_statuses)
            .flatten();
        all.find(|status| status.name == name)
    }

    /// Why a container that shall run does not, if something holds it back.
    fn held(&self, name: &str, view: Option<&ContainerView>) -> Option<ContainerState> {
        if self.finished || self.pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if let Some(hold) = self.memory.hold(name) {
            return Some(waiting(&hold.reason, &hold.message));
        }
        let view = view?;
        let ended = view.finished.unwrap_or(view.created);
        let until = self.memory.crash_until(name, ended)?;
        let delay = self.memory.crash_delay(name)?;
        let pod = PodId::of(self.pod);
        let message = format!(
            "back-off {} restarting failed container={name} pod={}",
            go_duration(delay.as_secs()),
            pod.long()
        );
        (until > self.now && self.restarts(name, view)).then(|| waiting("CrashLoopBackOff", &message))
    }

    fn restarts(&self, name: &str, view: &ContainerView) -> bool {
        let role = crate::pods::container(self.pod, name).map(|(_, role)| role);
        match restart_policy(self.pod) {
            _ if role == Some(Role::Sidecar) => true,
            RestartPolicy::Always => role == Some(Role::Main) || view.exit_code != 0,
            RestartPolicy::OnFailure => view.exit_code != 0,
            RestartPolicy::Never => false,
        }
    }

    fn container(&self, container: &Container, role: Role, initialized: bool) -> ContainerStatus {
        let name = &container.name;
        let mut attempts = self.view.attempts(name).filter(|v| v.state != State::Created);
        let newest = attempts.next();
        let before = attempts.next();
        let old = self.old(name);
        let mut last = before.map(|view| terminated(view));
        let mut health = Health::default();
        let state = match newest {
            Some(view) if view.state == State::Running => {
                health = (self.health)(&view.id);
                ContainerState {
                    running: Some(ContainerStateRunning {
                        started_at: view.started.map(whole),
                    }),
                    ..ContainerState::default()
                }
            }
            Some(view) => match self.held(name, Some(view)) {
                Some(state) => {
                    last = Some(terminated(view));
                    state
                }
                None => terminated(view),
            },
            None => self.absent(name, old, initialized, role),
        };
        let succeeded = state.terminated.as_ref().is_some_and(|t| t.exit_code == 0);
        let running = state.running.is_some();
        ContainerStatus {
            container_id: newest.map(|view| format!("containerd://{}", view.id)),
            image: newest
                .map(|view| view.image.clone())
                .filter(|image| !image.is_empty() && !image.starts_with("sha256:"))
                .or_else(|| container.image.clone())
                .unwrap_or_default(),
            image_id: newest.map(|view| view.image_ref.clone()).unwrap_or_default(),
            last_state: Some(
                last.or_else(|| old.and_then(|o| o.last_state.clone()))
                    .unwrap_or_default(),
            ),
            name: name.clone(),
            ready: if role == Role::Init {
                succeeded
            } else {
                running && health.ready
            },
            restart_count: newest
                .map(|view| i32::try_from(view.restart_count).unwrap_or(i32::MAX))
                .or_else(|| old.map(|o| o.restart_count))
                .unwrap_or(0),
            started: Some(running && health.started),
            state: Some(state),
            ..ContainerStatus::default()
        }
    }

    /// The state of a container that the runtime does not have.
    fn absent(&self, name: &str, old: Option<&ContainerStatus>, initialized: bool, role: Role) -> ContainerState {
        // It ended and was swept away since.
        if let Some(ended) = old.and_then(|o| o.state.clone()).filter(|s| s.terminated.is_some()) {
            return ended;
        }
        let initializing = role != Role::Main || !initialized;
        let reason = if initializing {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        self.held(name, None).unwrap_or_else(|| waiting(reason, ""))
    }
}

/// Go's notation of whole seconds: `10s`, `1m20s`.
fn go_duration(seconds: i64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, s) => format!("{s}s"),
        (m, s) => format!("{m}m{s}s"),
    }
}

fn has_ended(status: &ContainerStatus) -> bool {
    let ended = |state: &Option<ContainerState>| state.as_ref().is_some_and(|s| s.terminated.is_some());
    ended(&status.state) || (!is_running(status) && ended(&status.last_state))
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

fn exit_code(status: &ContainerStatus) -> i32 {
    let now = status.state.as_ref().and_then(|s| s.terminated.as_ref());
    let before = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    now.or(before).map_or(0, |t| t.exit_code)
}

/// Whether an init container has done its part.
fn initialized(status: &ContainerStatus, role: Role) -> bool {
    match role {
        Role::Sidecar => status.started == Some(true) || has_ended(status),
        _ => status
            .state
            .as_ref()
            .and_then(|s| s.terminated.as_ref())
            .is_some_and(|t| t.exit_code == 0),
    }
}

fn phase(situation: &Situation<'_>, init: &[(ContainerStatus, Role)], main: &[ContainerStatus]) -> &'static str {
    if situation.outcome.is_some() {
        return "Failed";
    }
    if situation.finished && situation.pod.metadata.deletion_timestamp.is_some() {
        let good = main.iter().all(|status| has_ended(status) && exit_code(status) == 0);
        return if good { "Succeeded" } else { "Failed" };
    }
    let policy = restart_policy(situation.pod);
    let begun = main.iter().any(|status| is_running(status) || has_ended(status));
    if !begun && !init.iter().all(|(status, role)| initialized(status, *role)) {
        let failed = init
            .iter()
            .any(|(status, role)| *role == Role::Init && has_ended(status) && exit_code(status) != 0);
        return if failed && policy == RestartPolicy::Never {
            "Failed"
        } else {
            "Pending"
        };
    }
    if main.iter().any(|status| !is_running(status) && !has_ended(status)) {
        return "Pending";
    }
    if main.iter().any(is_running) {
        return "Running";
    }
    let failed = main.iter().any(|status| exit_code(status) != 0);
    match policy {
        RestartPolicy::Always => "Running",
        RestartPolicy::OnFailure if failed => "Running",
        RestartPolicy::Never if failed => "Failed",
        _ => "Succeeded",
    }
}

fn condition(situation: &Situation<'_>, type_: &str, value: bool, reason: &str, message: String) -> PodCondition {
    let status = if value { "True" } else { "False" };
    let old = situation.pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let before = old
        .filter(|c| c.type_ == type_ && c.status == status)
        .find_map(|c| c.last_transition_time.clone());
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then_some(message),
        last_probe_time: None,
        last_transition_time: Some(before.unwrap_or_else(|| whole(situation.now))),
        observed_generation: situation.pod.metadata.generation,
    }
}

fn listed<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("containers with {what} status: [{}]", names.join(" "))
    }
}

fn conditions(
    situation: &Situation<'_>,
    phase: &str,
    init: &[(ContainerStatus, Role)],
    main: &[ContainerStatus],
) -> Vec<PodCondition> {
    let over = matches!(phase, "Succeeded" | "Failed");
    let pod = situation.pod;
    let sandbox = situation
        .view
        .sandbox()
        .filter(|s| is_host_network(pod) || !s.ips.is_empty());
    let begun = main.iter().any(|status| is_running(status) || has_ended(status));
    let incomplete = |(status, role): &&(ContainerStatus, Role)| !initialized(status, *role);
    let todo = listed(
        "incomplete",
        init.iter().filter(incomplete).map(|(s, _)| s.name.as_str()),
    );
    let is_initialized = phase == "Succeeded" || begun || todo.is_empty();
    let reason = match (is_initialized, phase) {
        (true, "Succeeded") => "PodCompleted",
        (true, _) => "",
        (false, _) => "ContainersNotInitialized",
    };
    let todo = if is_initialized { String::new() } else { todo };
    let sidecars = init
        .iter()
        .filter(|(_, role)| *role == Role::Sidecar)
        .map(|(status, _)| status);
    let unready = listed(
        "unready",
        sidecars.chain(main).filter(|s| !s.ready).map(|s| s.name.as_str()),
    );
    let containers_ready = !over && unready.is_empty();
    let why = match (containers_ready, phase) {
        (true, _) => "",
        (false, "Succeeded") => "PodCompleted",
        (false, "Failed") => "PodFailed",
        (false, _) => "ContainersNotReady",
    };
    let unready = if over { String::new() } else { unready };
    let (ready, ready_why, ready_text) = match gates(pod) {
        Some(text) if containers_ready => (false, "ReadinessGatesNotReady", text),
        _ => (containers_ready, why, unready.clone()),
    };
    let simple = |type_, value| condition(situation, type_, value, "", String::new());
    vec![
        simple("PodReadyToStartContainers", sandbox.is_some()),
        condition(situation, "Initialized", is_initialized, reason, todo),
        condition(situation, "Ready", ready, ready_why, ready_text),
        condition(situation, "ContainersReady", containers_ready, why, unready),
        simple("PodScheduled", true),
    ]
}

/// Which of the pod's readiness gates are shut, as text; `None` for none.
fn gates(pod: &Pod) -> Option<String> {
    let conditions: Vec<&PodCondition> = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).collect();
    let shut = spec(pod).readiness_gates.iter().flatten().filter_map(|gate| {
        let type_ = &gate.condition_type;
        match conditions.iter().find(|c| c.type_ == *type_) {
            Some(c) if c.status == "True" => None,
            Some(c) => Some(format!(
                "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                c.status
            )),
            None => Some(format!(
                "corresponding condition of pod readiness gate \"{type_}\" does not exist."
            )),
        }
    });
    let shut: Vec<String> = shut.collect();
    (!shut.is_empty()).then(|| shut.join(", "))
}

/// The pod's status.
pub(crate) fn compute(situation: &Situation<'_>) -> PodStatus {
    let pod = situation.pod;
    let old = pod.status.clone().unwrap_or_default();
    let has_init = spec(pod).init_containers.as_ref().is_some_and(|init| !init.is_empty());
    let mut init = Vec::new();
    for (container, role) in containers(pod).filter(|(_, role)| *role != Role::Main) {
        init.push((situation.container(container, role, false), role));
    }
    let done = !has_init || init.iter().all(|(status, role)| initialized(status, *role));
    let main: Vec<ContainerStatus> = spec(pod)
        .containers
        .iter()
        .map(|container| situation.container(container, Role::Main, done))
        .collect();
    let added: Vec<ContainerStatus> = ephemeral(pod)
        .map(|(container, _)| situation.container(&container, Role::Main, true))
        .collect();
    let phase = match old.phase.as_deref() {
        // An end is an end.
        Some("Succeeded") => "Succeeded",
        Some("Failed") => "Failed",
        _ => phase(situation, &init, &main),
    };
    let host: Vec<String> = situation.host_ips.iter().map(IpAddr::to_string).collect();
    let ips = match situation.view.sandbox() {
        _ if is_host_network(pod) && !situation.view.sandboxes.is_empty() => host.clone(),
        Some(sandbox) => sandbox.ips.clone(),
        // Upstream keeps a finished pod's last addresses.
        None => old.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect(),
    };
    PodStatus {
        conditions: Some(conditions(situation, phase, &init, &main)),
        container_statuses: Some(main),
        init_container_statuses: has_init.then(|| init.into_iter().map(|(status, _)| status).collect()),
        ephemeral_container_statuses: (!added.is_empty()).then_some(added),
        host_ip: host.first().cloned(),
        host_ips: (!host.is_empty()).then(|| host.into_iter().map(|ip| HostIP { ip }).collect()),
        message: situation.outcome.map(|o| o.message.clone()).or(old.message),
        reason: situation.outcome.map(|o| o.reason.clone()).or(old.reason),
        observed_generation: pod.metadata.generation,
        phase: Some(phase.to_owned()),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: old.qos_class,
        start_time: old.start_time.or_else(|| Some(whole(situation.now))),
        ..PodStatus::default()
    }
}
