//! Nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Amount, Path, Report as _, SPEC, STATUS, cidr, resource_amount};
use crate::pod::validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, put, sub_mut};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

/// A machine that pods run on.
#[derive(Default)]
pub(in crate::kinds) struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            // An older field for the first of several networks: both are kept alike.
            let (one, first) = (spec.text("podCIDR").to_owned(), spec.list("podCIDRs").first().cloned());
            match first {
                None if !one.is_empty() => put(spec, "podCIDRs", json!([one])),
                Some(first) if one.is_empty() => put(spec, "podCIDR", first),
                _ => {}
            }
        }
        if let Some(status) = sub_mut(object, "status") {
            let capacity = status.sub("capacity").clone();
            if !capacity.is_blank() && status.sub("allocatable").is_blank() {
                put(status, "allocatable", capacity);
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (SPEC, object.sub("spec"));
        validation::taints(&mut errors, &at.field("taints"), spec.list("taints"));
        networks(&mut errors, &at, spec);
        amounts(&mut errors, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        let at = &SPEC;
        let (new, old) = (object.sub("spec"), old.sub("spec"));
        if !old.list("podCIDRs").is_empty() && new.sub("podCIDRs") != old.sub("podCIDRs") {
            errors.forbidden(
                &at.field("podCIDRs"),
                "node updates may not change podCIDR except from \"\" to valid",
            );
        }
        if !old.text("providerID").is_empty() && new.text("providerID") != old.text("providerID") {
            errors.forbidden(
                &at.field("providerID"),
                "node updates may not change providerID except from \"\" to valid",
            );
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        amounts(&mut errors, object);
        let at = &STATUS;
        let list = at.field("addresses");
        let mut seen = BTreeSet::new();
        for (index, address) in object.at("status.addresses").as_list().iter().enumerate() {
            if !seen.insert((address.text("type"), address.text("address"))) {
                errors.duplicate(&list.index(index), address.clone());
            }
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn field_labels(&self) -> &[&str] {
        &["spec.unschedulable"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        object.sub("spec").on("unschedulable").to_string()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Status", "Whether the node is ready, and takes new pods."),
            Col::text("Roles", "Roles of the node, by its labels."),
            AGE,
            Col::text("Version", "Version of the kubelet."),
            Col::text("Internal-IP", "Address within the cluster.").wide(),
            Col::text("External-IP", "Address from outside.").wide(),
            Col::text("OS-Image", "Operating system.").wide(),
            Col::text("Kernel-Version", "Kernel.").wide(),
            Col::text("Container-Runtime", "Container runtime.").wide(),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let info = object.at("status.nodeInfo");
        let known = |field: &str| match info.text(field) {
            "" => json!(show::UNKNOWN),
            text => json!(text),
        };
        vec![
            show::name(object),
            json!(state(object)),
            roles(object),
            show::age(object, now),
            json!(info.text("kubeletVersion")),
            address(object, "InternalIP"),
            address(object, "ExternalIP"),
            known("osImage"),
            known("kernelVersion"),
            known("containerRuntimeVersion"),
        ]
    }
}

fn networks(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let list = at.field("podCIDRs");
    let mut families = Vec::new();
    for (index, network) in spec.list("podCIDRs").iter().enumerate() {
        let found = cidr(errors, &list.index(index), network.as_text());
        families.extend(found.map(|(address, _)| address.is_ipv4()));
    }
    if families.len() > 2 || (families.len() == 2 && families.first() == families.last()) {
        errors.invalid(
            &list,
            spec.sub("podCIDRs").clone(),
            "may specify no more than one CIDR for each IP family",
        );
    }
}

fn amounts(errors: &mut FieldErrors, object: &Value) {
    let at = &STATUS;
    for field in ["capacity", "allocatable"] {
        let at = at.field(field);
        for (name, amount) in object.sub("status").sub(field).entries() {
            resource_amount(errors, &at.key(name), name, amount, Amount::NotNegative);
        }
    }
}

fn state(node: &Value) -> String {
    let ready = node
        .at("status.conditions")
        .as_list()
        .iter()
        .find(|c| c.text("type") == "Ready");
    let word = match ready {
        Some(c) if c.text("status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node.sub("spec").on("unschedulable") {
        format!("{word},SchedulingDisabled")
    } else {
        word.to_owned()
    }
}

fn roles(node: &Value) -> Value {
    let mut roles = BTreeSet::new();
    for (key, value) in node.at("metadata.labels").entries() {
        let role = match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => role,
            None if key == ROLE_LABEL => value.as_text(),
            None => "",
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    show::list_or_none(roles)
}

fn address(node: &Value, kind: &str) -> Value {
    let all = node.at("status.addresses").as_list().iter();
    let first = all.filter(|a| a.text("type") == kind).map(|a| a.text("address")).next();
    show::or_none(first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]},
        });
        let cells = Node.cells(&node, Timestamp::UNIX_EPOCH);
        let texts: Vec<&str> = cells.iter().map(|c| c.as_str().unwrap()).collect();
        assert_eq!(
            texts,
            [
                "n",
                "Ready,SchedulingDisabled",
                "a,control-plane",
                "<unknown>",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]
        );
        assert_eq!(
            state(&json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})),
            "NotReady"
        );
        assert_eq!(state(&json!({})), "Unknown");
    }

    #[test]
    fn identity_is_given_once() {
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a://1"}});
        let new = json!({"spec": {"podCIDRs": ["10.0.1.0/24"], "providerID": "a://2"}});
        let fields: Vec<String> = Node
            .validate_update(&new, &old)
            .0
            .iter()
            .map(|e| e.field.clone())
            .collect();
        assert_eq!(fields, ["spec.podCIDRs", "spec.providerID"]);
        assert!(Node.validate_update(&old, &json!({"spec": {}})).is_empty());
    }

    #[test]
    fn both_forms_of_networks_are_kept() {
        let mut node = json!({"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "1"}}});
        Node.default(&mut node);
        assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "1"}));
    }
}
