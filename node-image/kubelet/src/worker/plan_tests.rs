use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::Pod;
use serde_json::{Value, json};

use super::memory::Memory;
use super::plan::{Cause, Inputs, Plan, Step, plan};
use crate::pods::{container, container_hash};
use crate::probes::Health;
use crate::view::{ContainerView, PodView, SandboxView, State};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const FINE: Health = Health {
    started: true,
    ready: true,
    failed: None,
};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})).unwrap()
}

fn sandbox(id: &str, attempt: u32, ready: bool) -> SandboxView {
    SandboxView {
        id: id.to_owned(),
        attempt,
        ready,
        created: NOW + SignedDuration::from_secs(attempt.into()),
        ips: vec!["10.0.0.2".to_owned()],
    }
}

fn view_of(pod: &Pod, name: &str, state: State, exit_code: i32) -> Arc<ContainerView> {
    Arc::new(ContainerView {
        id: format!("{name}-id"),
        name: name.to_owned(),
        sandbox: "s0".to_owned(),
        restart_count: 0,
        hash: container_hash(container(pod, name).unwrap().0),
        state,
        created: NOW,
        started: Some(NOW),
        finished: (state == State::Exited).then_some(NOW),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_ref: String::new(),
        log: std::path::PathBuf::new(),
    })
}

fn up(containers: Vec<Arc<ContainerView>>) -> PodView {
    PodView {
        sandboxes: vec![sandbox("s0", 0, true)],
        containers,
    }
}

fn plan_with(pod: &Pod, view: &PodView, memory: &Memory, health: Health, now: Timestamp) -> Plan {
    plan(&Inputs {
        pod,
        view,
        memory,
        health: &|_| health,
        now,
    })
}

fn plan_of(pod: &Pod, view: &PodView) -> Plan {
    plan_with(pod, view, &Memory::default(), FINE, NOW)
}

fn start(name: &str, restart_count: u32) -> Step {
    Step::Start {
        name: name.to_owned(),
        restart_count,
    }
}

#[test]
fn a_new_pod_gets_a_sandbox_then_its_init_containers_one_by_one_then_the_rest() {
    let pod =
        pod(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}, {"name": "b"}]}));
    assert_eq!(
        plan_of(&pod, &PodView::default()).steps,
        [Step::CreateSandbox { attempt: 0 }]
    );
    assert_eq!(plan_of(&pod, &up(vec![])).steps, [start("i", 0)]);
    let running = up(vec![view_of(&pod, "i", State::Running, 0)]);
    assert_eq!(plan_of(&pod, &running), Plan::default());
    let first = view_of(&pod, "i", State::Exited, 0);
    assert_eq!(plan_of(&pod, &up(vec![first.clone()])).steps, [start("j", 0)]);
    let both = up(vec![first, view_of(&pod, "j", State::Exited, 0)]);
    assert_eq!(plan_of(&pod, &both).steps, [start("a", 0), start("b", 0)]);
}

#[test]
fn a_sidecar_must_be_up_before_the_next_container_and_comes_back() {
    let pod = pod(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}], "containers": [{"name": "a"}],
    }));
    let sidecar = view_of(&pod, "s", State::Running, 0);
    let starting = Health { started: false, ..FINE };
    let view = up(vec![sidecar.clone()]);
    assert_eq!(
        plan_with(&pod, &view, &Memory::default(), starting, NOW),
        Plan::default()
    );
    assert_eq!(plan_of(&pod, &view).steps, [start("i", 0)]);
    let main = view_of(&pod, "a", State::Running, 0);
    let init = view_of(&pod, "i", State::Exited, 0);
    let ended = view_of(&pod, "s", State::Exited, 1);
    assert_eq!(
        plan_of(&pod, &up(vec![ended, init.clone(), main])).steps,
        [start("s", 1)]
    );
    let done = up(vec![sidecar, init, view_of(&pod, "a", State::Exited, 0)]);
    assert!(plan_of(&pod, &done).finished);
}

#[test]
fn policies_decide_what_restarts() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}));
        let plan = plan_of(&pod, &up(vec![view_of(&pod, "a", State::Exited, code)]));
        let expected = if again { vec![start("a", 1)] } else { vec![] };
        assert_eq!((plan.steps, plan.finished), (expected, !again), "{policy} {code}");
    }
}

#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts_and_is_repeated_in_others() {
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    let never = pod(spec.clone());
    let failed = up(vec![view_of(&never, "i", State::Exited, 1)]);
    assert!(plan_of(&never, &failed).finished);
    let mut spec = spec;
    spec["restartPolicy"] = json!("OnFailure");
    assert_eq!(plan_of(&pod(spec), &failed).steps, [start("i", 1)]);
}

#[test]
fn restarts_wait_ten_seconds_then_twice_as_long() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let view = up(vec![view_of(&pod, "a", State::Exited, 1)]);
    let mut memory = Memory::default();
    let after = |seconds| NOW + SignedDuration::from_secs(seconds);
    assert_eq!(plan_with(&pod, &view, &memory, FINE, after(1)).steps, [start("a", 1)]);
    memory.restarted("a", after(1));
    let held = plan_with(&pod, &view, &memory, FINE, after(9));
    assert_eq!((held.steps, held.wake, held.finished), (vec![], Some(after(10)), false));
    assert_eq!(plan_with(&pod, &view, &memory, FINE, after(10)).steps, [start("a", 1)]);
    memory.restarted("a", after(10));
    assert_eq!(plan_with(&pod, &view, &memory, FINE, after(11)).wake, Some(after(20)));
    for _ in 0..10 {
        memory.restarted("a", after(11));
    }
    assert_eq!(memory.crash_delay("a"), Some(SignedDuration::from_secs(300)));
    // Ten minutes of calm forgive.
    assert_eq!(memory.crash_until("a", after(11 + 601)), None);
}

#[test]
fn unhealthy_and_changed_containers_are_killed() {
    let old = pod(json!({"containers": [{"name": "a", "image": "one"}]}));
    let view = up(vec![view_of(&old, "a", State::Running, 0)]);
    let kill = |cause| Step::Kill {
        id: "a-id".to_owned(),
        name: "a".to_owned(),
        cause,
    };
    let sick = Health {
        failed: Some("Liveness"),
        ..FINE
    };
    let plan = plan_with(&old, &view, &Memory::default(), sick, NOW);
    assert_eq!(plan.steps, [kill(Cause::Unhealthy("Liveness"))]);
    let new = pod(json!({"containers": [{"name": "a", "image": "two"}]}));
    assert_eq!(plan_of(&new, &view).steps, [kill(Cause::Changed)]);
    assert_eq!(plan_of(&old, &view), Plan::default());
}

#[test]
fn a_lost_sandbox_is_replaced_and_everything_starts_again_in_it() {
    let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let mut view = up(vec![
        view_of(&pod, "i", State::Exited, 0),
        view_of(&pod, "a", State::Exited, 137),
    ]);
    view.sandboxes[0].ready = false;
    let expected = [
        Step::StopSandbox { id: "s0".to_owned() },
        Step::CreateSandbox { attempt: 1 },
    ];
    assert_eq!(plan_of(&pod, &view).steps, expected);
    view.sandboxes.insert(0, sandbox("s1", 1, true));
    assert_eq!(plan_of(&pod, &view).steps, [start("i", 1)]);
}

#[test]
fn what_was_made_but_never_started_is_removed() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let view = up(vec![view_of(&pod, "a", State::Created, 0)]);
    assert_eq!(plan_of(&pod, &view).steps, [Step::Remove { id: "a-id".to_owned() }]);
}

#[test]
fn a_held_container_is_tried_when_its_time_has_come() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut memory = Memory::default();
    memory.failed("a", NOW, "CreateContainerConfigError", "no".to_owned(), true);
    let held = plan_with(&pod, &up(vec![]), &memory, FINE, NOW);
    assert_eq!(
        (held.steps, held.wake),
        (vec![], Some(NOW + SignedDuration::from_secs(1)))
    );
    memory.objects_changed(NOW);
    assert_eq!(plan_with(&pod, &up(vec![]), &memory, FINE, NOW).steps, [start("a", 0)]);
}
