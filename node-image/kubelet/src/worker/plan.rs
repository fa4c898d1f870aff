//! What to do next for a pod: a pure function of what is desired, what the runtime has, and what is remembered.
//!
//! The plan is made anew after its steps were done, so each step may rely on nothing but what was seen. It is the same
//! after a restart of the kubelet as in daily work.

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Container, Pod};

use super::memory::Memory;
use crate::pods::{RestartPolicy, Role, container_hash, containers, ephemeral, is_host_network, restart_policy, spec};
use crate::probes::Health;
use crate::view::{ContainerView, PodView, SandboxView, State};

/// Why a container is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its liveness or startup probe failed; the text is the probe's kind.
    Unhealthy(&'static str),
    /// Its image or name changed.
    Changed,
    /// The runtime does not know its state.
    Unknown,
    /// Its sandbox is gone.
    NoSandbox,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    StopSandbox {
        id: String,
    },
    CreateSandbox {
        attempt: u32,
    },
    Start {
        name: String,
        restart_count: u32,
    },
    Kill {
        id: String,
        name: String,
        cause: Cause,
    },
    /// It was made but never started.
    Remove {
        id: String,
    },
}

/// What to do, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// When something will be due that is not now.
    pub(crate) wake: Option<Timestamp>,
    /// Nothing of the pod will run again.
    pub(crate) finished: bool,
}

/// What a plan is made of.
pub(crate) struct Inputs<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) view: &'a PodView,
    pub(crate) memory: &'a Memory,
    /// By container id.
    pub(crate) health: &'a dyn Fn(&str) -> Health,
    pub(crate) now: Timestamp,
}

impl Plan {
    fn finished() -> Self {
        Self {
            finished: true,
            ..Self::default()
        }
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Key under which a pod's sandbox is held back in [`Memory`].
pub(crate) const SANDBOX: &str = "";

/// What to do for a pod that shall run.
pub(crate) fn plan(inputs: &Inputs<'_>) -> Plan {
    let Inputs { pod, view, .. } = inputs;
    let usable = view.sandbox().filter(|s| is_host_network(pod) || !s.ips.is_empty());
    let Some(sandbox) = usable else {
        return plan_sandbox(inputs);
    };
    let mut plan = Plan::default();
    match plan_init(inputs, sandbox, &mut plan) {
        Init::Failed => Plan::finished(),
        Init::Waiting => {
            plan_ephemeral(inputs, &mut plan);
            plan
        }
        Init::Done => {
            plan_main(inputs, sandbox, &mut plan);
            if plan.steps.is_empty() && plan.wake.is_none() && all_ended(inputs) {
                return Plan::finished();
            }
            plan_ephemeral(inputs, &mut plan);
            plan
        }
    }
}

/// Containers that were added run once.
fn plan_ephemeral(inputs: &Inputs<'_>, plan: &mut Plan) {
    for (container, _) in ephemeral(inputs.pod) {
        if inputs.view.container(&container.name).is_none() {
            start(inputs, &container, None, plan);
        }
    }
}

/// Whether every main container has ended for good.
fn all_ended(inputs: &Inputs<'_>) -> bool {
    let ended = |c: &Container| {
        let newest = inputs.view.container(&c.name);
        newest.is_some_and(|v| v.state == State::Exited && !restarts(restart_policy(inputs.pod), v))
    };
    let main = &spec(inputs.pod).containers;
    !main.is_empty() && main.iter().all(ended)
}

fn restarts(policy: RestartPolicy, container: &ContainerView) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => container.exit_code != 0,
        RestartPolicy::Never => false,
    }
}

fn plan_sandbox(inputs: &Inputs<'_>) -> Plan {
    let Inputs { pod, view, .. } = inputs;
    let newest = view.sandboxes.first();
    let begun = newest.is_some() && !view.containers.is_empty();
    if all_ended(inputs) || (begun && restart_policy(pod) == RestartPolicy::Never) || init_failed(inputs) {
        return Plan::finished();
    }
    let mut plan = Plan::default();
    if let Some(until) = inputs.memory.held(SANDBOX, inputs.now) {
        plan.wake_at(until);
        return plan;
    }
    for container in view.running() {
        plan.steps.push(Step::Kill {
            id: container.id.clone(),
            name: container.name.clone(),
            cause: Cause::NoSandbox,
        });
    }
    if let Some(old) = newest {
        // Also where it is not ready: its network may still be there.
        plan.steps.push(Step::StopSandbox { id: old.id.clone() });
    }
    plan.steps.push(Step::CreateSandbox {
        attempt: newest.map_or(0, |old| old.attempt + 1),
    });
    plan
}

/// Whether an init container failed in a pod that never restarts.
fn init_failed(inputs: &Inputs<'_>) -> bool {
    let failed = |(c, role): (&Container, Role)| {
        let newest = inputs.view.container(&c.name);
        role == Role::Init && newest.is_some_and(|v| v.state == State::Exited && v.exit_code != 0)
    };
    restart_policy(inputs.pod) == RestartPolicy::Never && containers(inputs.pod).any(failed)
}

enum Init {
    /// Main containers may run.
    Done,
    /// Not yet.
    Waiting,
    /// Never.
    Failed,
}

fn plan_init(inputs: &Inputs<'_>, sandbox: &SandboxView, plan: &mut Plan) -> Init {
    let here = |name: &str| inputs.view.container(name).filter(|v| v.sandbox == sandbox.id);
    let main_begun = spec(inputs.pod).containers.iter().any(|c| here(&c.name).is_some());
    for (container, role) in containers(inputs.pod).filter(|(_, role)| *role != Role::Main) {
        let present = here(&container.name);
        if role == Role::Sidecar {
            let up = keep_running(inputs, container, present, true, plan);
            if !up && !main_begun {
                return Init::Waiting;
            }
            continue;
        }
        if main_begun {
            continue;
        }
        match present {
            Some(view) if view.state == State::Exited && view.exit_code == 0 => {}
            Some(view) if view.state == State::Exited && restart_policy(inputs.pod) == RestartPolicy::Never => {
                return Init::Failed;
            }
            present => {
                keep_running(inputs, container, present, true, plan);
                return Init::Waiting;
            }
        }
    }
    Init::Done
}

fn plan_main(inputs: &Inputs<'_>, sandbox: &SandboxView, plan: &mut Plan) {
    let policy = restart_policy(inputs.pod);
    for container in &spec(inputs.pod).containers {
        let present = inputs
            .view
            .container(&container.name)
            .filter(|v| v.sandbox == sandbox.id);
        let before = inputs.view.container(&container.name);
        // One that ended for good in an earlier sandbox does not run again either.
        let again = before.is_none_or(|v| v.state != State::Exited || restarts(policy, v));
        keep_running(inputs, container, present, again, plan);
    }
}

/// Plans what a container needs to run; whether it runs and has started up.
fn keep_running(
    inputs: &Inputs<'_>,
    container: &Container,
    present: Option<&std::sync::Arc<ContainerView>>,
    again: bool,
    plan: &mut Plan,
) -> bool {
    let kill = |view: &ContainerView, cause| Step::Kill {
        id: view.id.clone(),
        name: view.name.clone(),
        cause,
    };
    match present {
        Some(view) if view.state == State::Running => {
            let health = (inputs.health)(&view.id);
            if let Some(probe) = health.failed {
                plan.steps.push(kill(view, Cause::Unhealthy(probe)));
            } else if !view.hash.is_empty() && view.hash != container_hash(container) {
                plan.steps.push(kill(view, Cause::Changed));
            }
            health.started
        }
        Some(view) if view.state == State::Created => {
            plan.steps.push(Step::Remove { id: view.id.clone() });
            false
        }
        Some(view) if view.state == State::Unknown => {
            plan.steps.push(kill(view, Cause::Unknown));
            false
        }
        _ if !again => false,
        present => {
            start(inputs, container, present.map(|view| view.as_ref()), plan);
            false
        }
    }
}

fn start(inputs: &Inputs<'_>, container: &Container, ended: Option<&ContainerView>, plan: &mut Plan) {
    let name = &container.name;
    let now = inputs.now;
    let crash = ended.and_then(|view| inputs.memory.crash_until(name, view.finished.unwrap_or(view.created)));
    let held = inputs.memory.held(name, now);
    if let Some(until) = crash.into_iter().chain(held).max().filter(|until| *until > now) {
        plan.wake_at(until);
        return;
    }
    plan.steps.push(Step::Start {
        name: name.clone(),
        restart_count: inputs.view.container(name).map_or(0, |before| before.restart_count + 1),
    });
}

/// When a pod with a deadline has been active too long.
pub(crate) fn deadline(pod: &Pod) -> Option<Timestamp> {
    let seconds = spec(pod).active_deadline_seconds?;
    let started = pod.status.as_ref()?.start_time.as_ref()?.0;
    started.checked_add(SignedDuration::from_secs(seconds)).ok()
}
