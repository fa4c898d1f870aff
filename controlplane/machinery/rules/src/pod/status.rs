//! The row of a pod: how many of its containers are ready, and its state in one word.

use jiff::Timestamp;
use minato_meta::parse_time;
use serde_json::{Value, json};

use crate::show;
use crate::tree::Tree as _;

/// Restarts, and when the last one was.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(container.count("restartCount"));
        let ended = container.at("lastState.terminated.finishedAt").as_text();
        self.last = self.last.max(parse_time(ended).ok());
    }

    fn show(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                let ago = show::human_duration(now.duration_since(last).as_secs());
                format!("{} ({ago} ago)", self.count)
            }
            _ => self.count.to_string(),
        }
    }
}

struct Summary {
    ready: usize,
    total: usize,
    restarts: Restarts,
    reason: String,
}

/// A container that goes first but stays: a side-car.
fn stays(spec: &Value, name: &str) -> bool {
    spec.list("initContainers")
        .iter()
        .any(|c| c.text("name") == name && c.text("restartPolicy") == "Always")
}

fn ending(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.count("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.count("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    status.list("conditions").iter().find(|c| c.text("type") == kind)
}

fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|c| c.text("status") == "True")
}

fn summary(pod: &Value) -> Summary {
    let (spec, status) = (pod.sub("spec"), pod.sub("status"));
    let mut reason = match status.text("reason") {
        "" => status.text("phase").to_owned(),
        reason => reason.to_owned(),
    };
    if condition(status, "PodScheduled").is_some_and(|c| c.text("reason") == "SchedulingGated") {
        reason = "SchedulingGated".to_owned();
    }
    let side_cars = spec
        .list("initContainers")
        .iter()
        .filter(|c| c.text("restartPolicy") == "Always");
    let mut summary = Summary {
        ready: 0,
        total: spec.list("containers").len() + side_cars.count(),
        restarts: Restarts::default(),
        reason,
    };
    let (initializing, of_side_cars) = first_containers(pod, &mut summary);
    if !initializing || is_true(status, "Initialized") {
        summary.restarts = of_side_cars;
        main_containers(status, &mut summary);
    }
    if pod.sub("metadata").has("deletionTimestamp") {
        if status.text("reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(status.text("phase"), "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// Looks at the containers that go first, up to the one that is not done. Tells whether there is one, and the restarts
/// of those that stay.
fn first_containers(pod: &Value, summary: &mut Summary) -> (bool, Restarts) {
    let spec = pod.sub("spec");
    let mut of_side_cars = Restarts::default();
    for (index, container) in pod.at("status.initContainerStatuses").as_list().iter().enumerate() {
        let stays = stays(spec, container.text("name"));
        summary.restarts.add(container);
        if stays {
            of_side_cars.add(container);
        }
        let (terminated, waiting) = (
            container.at("state.terminated"),
            container.at("state.waiting").text("reason"),
        );
        if terminated.is_object() && terminated.count("exitCode") == 0 {
            continue;
        }
        if stays && container.on("started") {
            summary.ready += usize::from(container.on("ready"));
            continue;
        }
        summary.reason = if terminated.is_object() {
            format!("Init:{}", ending(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", spec.list("initContainers").len())
        };
        return (true, of_side_cars);
    }
    (false, of_side_cars)
}

/// The first container with something to say gives the reason; one that runs outweighs those that have completed.
fn main_containers(status: &Value, summary: &mut Summary) {
    let mut running = false;
    for container in status.list("containerStatuses").iter().rev() {
        summary.restarts.add(container);
        let terminated = container.at("state.terminated");
        let waiting = container.at("state.waiting").text("reason");
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if terminated.is_object() {
            summary.reason = ending(terminated);
        } else if container.on("ready") && container.at("state.running").is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && running {
        let word = if is_true(status, "Ready") {
            "Running"
        } else {
            "NotReady"
        };
        summary.reason = word.to_owned();
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = pod.at("spec.readinessGates").as_list();
    if gates.is_empty() {
        return json!(show::NONE);
    }
    let open = gates
        .iter()
        .filter(|g| is_true(pod.sub("status"), g.text("conditionType")));
    json!(format!("{}/{}", open.count(), gates.len()))
}

/// Cells of a pod, in the order of its columns.
pub(crate) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summary(pod);
    let status = pod.sub("status");
    let address = status.list("podIPs").first().map_or("", |ip| ip.text("ip"));
    vec![
        show::name(pod),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(summary.restarts.show(now)),
        show::age(pod, now),
        show::or_none(address),
        show::or_none(pod.sub("spec").text("nodeName")),
        show::or_none(status.text("nominatedNodeName")),
        readiness_gates(pod),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pod: Value) -> (String, String, String) {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let cells = cells(&pod, now);
        let cell = |i: usize| cells[i].as_str().unwrap().to_owned();
        (cell(1), cell(2), cell(3))
    }

    fn owned(ready: &str, reason: &str, restarts: &str) -> (String, String, String) {
        (ready.to_owned(), reason.to_owned(), restarts.to_owned())
    }

    #[test]
    fn a_pod_that_nothing_is_known_of_shows_its_phase() {
        let pod = json!({"spec": {"containers": [{}, {}]}, "status": {"phase": "Pending"}});
        assert_eq!(row(pod), owned("0/2", "Pending", "0"));
        assert_eq!(row(json!({})), owned("0/0", "", "0"));
    }

    #[test]
    fn running_crashing_and_completed() {
        let running = json!({"ready": true, "state": {"running": {}}});
        let crashing = json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}});
        let completed = json!({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
        let of = |statuses: Vec<Value>, ready: &str| {
            let containers: Vec<Value> = statuses.iter().map(|_| json!({})).collect();
            row(
                json!({"spec": {"containers": containers}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": statuses}}),
            )
        };
        assert_eq!(of(vec![running.clone()], "True"), owned("1/1", "Running", "0"));
        assert_eq!(
            of(vec![running.clone(), crashing], "False"),
            owned("1/2", "CrashLoopBackOff", "3 (5m ago)")
        );
        assert_eq!(
            of(vec![running.clone(), completed.clone()], "True"),
            owned("1/2", "Running", "0")
        );
        assert_eq!(
            of(vec![running, completed.clone()], "False"),
            owned("1/2", "NotReady", "0")
        );
        assert_eq!(of(vec![completed], "False"), owned("0/1", "Completed", "0"));
        let killed = json!({"state": {"terminated": {"signal": 9, "exitCode": 137}}});
        assert_eq!(of(vec![killed], "False"), owned("0/1", "Signal:9", "0"));
        let failed = json!({"state": {"terminated": {"exitCode": 3}}});
        assert_eq!(of(vec![failed], "False"), owned("0/1", "ExitCode:3", "0"));
    }

    #[test]
    fn first_containers_show_how_far_they_are() {
        let of = |statuses: Value| {
            row(
                json!({"spec": {"containers": [{}], "initContainers": [{"name": "a"}, {"name": "b"}]},
                "status": {"phase": "Pending", "initContainerStatuses": statuses}}),
            )
        };
        let done = json!({"name": "a", "state": {"terminated": {"exitCode": 0}}});
        assert_eq!(
            of(json!([{"name": "a", "state": {"running": {}}}])),
            owned("0/1", "Init:0/2", "0")
        );
        assert_eq!(
            of(json!([done, {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}}])),
            owned("0/1", "Init:1/2", "0")
        );
        assert_eq!(
            of(json!([{"state": {"waiting": {"reason": "ImagePullBackOff"}}}])),
            owned("0/1", "Init:ImagePullBackOff", "0")
        );
        assert_eq!(
            of(json!([{"state": {"terminated": {"exitCode": 1}}, "restartCount": 2}])),
            owned("0/1", "Init:ExitCode:1", "2")
        );
        assert_eq!(
            of(json!([{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}])),
            owned("0/1", "Init:Error", "0")
        );
    }

    #[test]
    fn side_cars_count_as_containers() {
        let pod = json!({
            "spec": {"containers": [{}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Running",
                "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}],
                "containerStatuses": [{"ready": true, "state": {"running": {}}}]},
        });
        assert_eq!(row(pod), owned("2/2", "Running", "1"));
    }

    #[test]
    fn going_lost_and_gated() {
        let going = |reason: &str, phase: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase, "reason": reason}});
        assert_eq!(row(going("", "Running")).1, "Terminating");
        assert_eq!(row(going("NodeLost", "Running")).1, "Unknown");
        assert_eq!(row(going("", "Succeeded")).1, "Succeeded");
        let gated = json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}});
        assert_eq!(row(gated).1, "SchedulingGated");
        let gates = json!({"spec": {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            "status": {"conditions": [{"type": "y", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}]}});
        let cells = cells(&gates, Timestamp::UNIX_EPOCH);
        assert_eq!((&cells[5], &cells[8]), (&json!("10.0.0.1"), &json!("1/2")));
    }
}
