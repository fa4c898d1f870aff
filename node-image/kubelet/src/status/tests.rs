use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::{Outcome, Situation, compute};
use crate::probes::Health;
use crate::view::{ContainerView, PodView, SandboxView, State};
use crate::worker::Memory;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})).unwrap()
}

fn container(name: &str, attempt: u32, state: State, exit_code: i32) -> Arc<ContainerView> {
    Arc::new(ContainerView {
        id: format!("{name}{attempt}"),
        name: name.to_owned(),
        sandbox: "s".to_owned(),
        restart_count: attempt,
        hash: String::new(),
        state,
        created: NOW,
        started: Some(NOW),
        finished: (state == State::Exited).then_some(NOW),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: "i".to_owned(),
        image_ref: "sha256:0".to_owned(),
        log: std::path::PathBuf::new(),
    })
}

fn view(containers: Vec<Arc<ContainerView>>) -> PodView {
    PodView {
        sandboxes: vec![SandboxView {
            id: "s".to_owned(),
            attempt: 0,
            ready: true,
            created: NOW,
            ips: vec!["10.0.0.2".to_owned()],
        }],
        containers,
    }
}

fn status_with(pod: &Pod, view: &PodView, memory: &Memory, outcome: Option<&Outcome>, finished: bool) -> PodStatus {
    compute(&Situation {
        pod,
        view,
        memory,
        health: &|_| Health {
            started: true,
            ready: true,
            failed: None,
        },
        host_ips: &["192.0.2.1".parse().unwrap()],
        outcome,
        finished,
        now: NOW,
    })
}

fn status(pod: &Pod, view: &PodView) -> Value {
    serde_json::to_value(status_with(pod, view, &Memory::default(), None, false)).unwrap()
}

fn condition(status: &Value, type_: &str) -> (String, String) {
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|c| c["type"] == type_).unwrap();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[test]
fn phases_follow_policies() {
    let ended = |code| view(vec![container("a", 0, State::Exited, code)]);
    for (policy, code, phase) in [
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
    ] {
        let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}));
        assert_eq!(status(&pod, &ended(code))["phase"], phase, "{policy} {code}");
        assert_eq!(status(&pod, &view(vec![]))["phase"], "Pending");
        assert_eq!(
            status(&pod, &view(vec![container("a", 0, State::Running, 0)]))["phase"],
            "Running"
        );
    }
    let two = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}]}));
    let half = view(vec![
        container("a", 0, State::Exited, 1),
        container("b", 0, State::Running, 0),
    ]);
    assert_eq!(status(&two, &half)["phase"], "Running");
}

#[test]
fn initialization_shows_in_phase_and_conditions() {
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let got = status(&pod, &view(vec![container("i", 0, State::Running, 0)]));
    assert_eq!(got["phase"], "Pending");
    assert_eq!(
        condition(&got, "Initialized"),
        ("False".to_owned(), "ContainersNotInitialized".to_owned())
    );
    assert_eq!(
        got["containerStatuses"][0]["state"]["waiting"]["reason"],
        "PodInitializing"
    );
    let failed = status(&pod, &view(vec![container("i", 0, State::Exited, 1)]));
    assert_eq!(failed["phase"], "Failed");
    let done = view(vec![
        container("i", 0, State::Exited, 0),
        container("a", 0, State::Running, 0),
    ]);
    let got = status(&pod, &done);
    assert_eq!(
        (&got["phase"], &got["podIP"], &got["hostIP"]),
        (&json!("Running"), &json!("10.0.0.2"), &json!("192.0.2.1"))
    );
    for name in [
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
        "PodReadyToStartContainers",
    ] {
        assert_eq!(condition(&got, name).0, "True", "{name}");
    }
}

#[test]
fn a_crash_loop_waits_and_remembers() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let crashed = view(vec![container("a", 3, State::Exited, 2)]);
    let mut memory = Memory::default();
    memory.restarted("a", NOW);
    memory.restarted("a", NOW);
    let got = serde_json::to_value(status_with(&pod, &crashed, &memory, None, false)).unwrap();
    let container = &got["containerStatuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(
        container["state"]["waiting"]["message"],
        "back-off 20s restarting failed container=a pod=p_n(u)"
    );
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 2);
    assert_eq!(
        (&container["restartCount"], &got["phase"]),
        (&json!(3), &json!("Running"))
    );
    assert_eq!(
        condition(&got, "Ready"),
        ("False".to_owned(), "ContainersNotReady".to_owned())
    );
}

#[test]
fn a_gate_of_others_keeps_a_pod_unready() {
    let mut pod = pod(json!({"readinessGates": [{"conditionType": "example.com/ok"}], "containers": [{"name": "a"}]}));
    let running = view(vec![container("a", 0, State::Running, 0)]);
    let got = status(&pod, &running);
    assert_eq!(
        condition(&got, "Ready"),
        ("False".to_owned(), "ReadinessGatesNotReady".to_owned())
    );
    assert_eq!(condition(&got, "ContainersReady").0, "True");
    pod.status = serde_json::from_value(json!({"conditions": [{"type": "example.com/ok", "status": "True"}]})).unwrap();
    assert_eq!(condition(&status(&pod, &running), "Ready").0, "True");
}

#[test]
fn verdicts_and_deletion_end_a_pod() {
    let mut pod = pod(json!({"containers": [{"name": "a"}]}));
    let ended = view(vec![container("a", 0, State::Exited, 143)]);
    let outcome = Outcome {
        reason: "DeadlineExceeded".to_owned(),
        message: "late".to_owned(),
    };
    let got = status_with(&pod, &ended, &Memory::default(), Some(&outcome), true);
    assert_eq!(
        (got.phase.as_deref(), got.reason.as_deref()),
        (Some("Failed"), Some("DeadlineExceeded"))
    );
    pod.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(NOW));
    let got = status_with(&pod, &ended, &Memory::default(), None, true);
    assert_eq!(got.phase.as_deref(), Some("Failed"));
    let clean = view(vec![container("a", 0, State::Exited, 0)]);
    let got = status_with(&pod, &clean, &Memory::default(), None, true);
    assert_eq!(got.phase.as_deref(), Some("Succeeded"));
}

#[test]
fn transitions_are_dated_once() {
    let mut pod = pod(json!({"containers": [{"name": "a"}]}));
    let running = view(vec![container("a", 0, State::Running, 0)]);
    let first = status_with(&pod, &running, &Memory::default(), None, false);
    pod.status = Some(first.clone());
    let later = compute(&Situation {
        pod: &pod,
        view: &running,
        memory: &Memory::default(),
        health: &|_| Health {
            started: true,
            ready: true,
            failed: None,
        },
        host_ips: &["192.0.2.1".parse().unwrap()],
        outcome: None,
        finished: false,
        now: NOW + SignedDuration::from_secs(100),
    });
    assert_eq!(first, later);
}
