//! Pods.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::pod;
use crate::pod::validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, fill_zero, put, sub_mut};

/// Containers that run together on one node.
#[derive(Default)]
pub(in crate::kinds) struct Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            pod::default_pod(spec);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let spec = object.sub("spec");
        let mut status = json!({"phase": "Pending", "qosClass": pod::qos_class(spec)});
        if !spec.list("schedulingGates").is_empty() {
            put(
                &mut status,
                "conditions",
                json!([{
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastTransitionTime": object.at("metadata.creationTimestamp"),
                }]),
            );
        }
        put(object, "status", status);
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value) {
        let class = old.at("status.qosClass").as_text().to_owned();
        if let Some(status) = sub_mut(object, "status")
            && !class.is_empty()
        {
            fill_zero(status, "qosClass", class);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        validation::pod(&mut errors, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        validation::update(&mut errors, object, old);
        errors
    }

    fn validate_subresource_update(&self, subresource: &str, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        match subresource {
            "ephemeralcontainers" => validation::ephemeral_containers(&mut errors, object, old),
            "resize" => validation::resize(&mut errors, object, old),
            _ => return self.validate_update(object, old),
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        validation::status(&mut errors, object, old);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        // Changes of pods are the work of machines.
        match old {
            None => pod::warnings::spec(&crate::check::SPEC, object.sub("spec")),
            Some(_) => Vec::new(),
        }
    }

    fn graceful_deletion_seconds(&self, object: &Value) -> Option<u64> {
        let finished = matches!(object.at("status.phase").as_text(), "Succeeded" | "Failed");
        if finished || object.at("spec.nodeName").as_text().is_empty() {
            return Some(0);
        }
        let seconds = object.sub("spec").int("terminationGracePeriodSeconds").unwrap_or(30);
        // Below zero counts as one second.
        Some(u64::try_from(seconds).unwrap_or(1))
    }

    fn field_labels(&self) -> &[&str] {
        &[
            "spec.host",
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
        ]
    }

    fn field(&self, object: &Value, label: &str) -> String {
        match label {
            "spec.host" => object.at("spec.nodeName").as_text().to_owned(),
            "spec.hostNetwork" => object.sub("spec").on("hostNetwork").to_string(),
            "status.podIP" | "status.podIPs" => {
                let status = object.sub("status");
                let first = status.list("podIPs").first().map_or("", |ip| ip.text("ip"));
                if first.is_empty() { status.text("podIP") } else { first }.to_owned()
            }
            label => object.at(label).as_text().to_owned(),
        }
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Ready", "Containers that are ready, of all."),
            Col::text("Status", "State of the pod in one word."),
            Col::text("Restarts", "How often containers were restarted, and when last."),
            AGE,
            Col::text("IP", "Address of the pod.").wide(),
            Col::text("Node", "Node that the pod is on.").wide(),
            Col::text("Nominated Node", "Node that room is being made on for the pod.").wide(),
            Col::text("Readiness Gates", "Readiness gates that are open, of all.").wide(),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        pod::cells(object, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pod_waits_and_knows_its_class() {
        let mut pod = json!({"status": {"phase": "Running"}, "spec": {"containers": [{"name": "a"}]}});
        Pod.prepare_for_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        pod["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
        Pod.prepare_for_create(&mut pod);
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }

    #[test]
    fn grace_is_for_pods_that_somebody_can_end() {
        let grace = |pod: Value| Pod.graceful_deletion_seconds(&pod);
        assert_eq!(grace(json!({"spec": {"terminationGracePeriodSeconds": 5}})), Some(0));
        assert_eq!(grace(json!({"spec": {"nodeName": "n"}})), Some(30));
        assert_eq!(
            grace(json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 5}})),
            Some(5)
        );
        assert_eq!(
            grace(json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": -5}})),
            Some(1)
        );
        assert_eq!(
            grace(json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}})),
            Some(0)
        );
    }

    #[test]
    fn fields_to_select_by() {
        let pod = json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        assert_eq!(Pod.field(&pod, "spec.nodeName"), "n");
        assert_eq!(Pod.field(&pod, "spec.hostNetwork"), "false");
        assert_eq!(Pod.field(&pod, "status.podIP"), "10.0.0.1");
        assert_eq!(Pod.field(&pod, "status.phase"), "");
    }
}
