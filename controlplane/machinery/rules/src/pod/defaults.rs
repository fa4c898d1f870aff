//! Defaults of pod specs and their volumes.
//!
//! A pod gets a few that a template does not: they are decided when the pod is made.

use serde_json::{Value, json};

use super::container_defaults::{container, pull_policy, requests_from_limits, round_amounts, value_source};
use super::level;
use crate::tree::{Tree as _, each, fill, fill_zero, put, sub_mut};

/// The three lists of containers in a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Fills the spec of a pod.
pub(crate) fn pod(spec: &mut Value) {
    template(spec);
    fill(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            requests_from_limits(container);
        }
    }
    if spec.on("hostNetwork") {
        for list in ["initContainers", "containers"] {
            for container in each(spec, list) {
                for port in each(container, "ports") {
                    let number = port.sub("containerPort").clone();
                    fill_zero(port, "hostPort", number);
                }
            }
        }
    }
    level::requests(spec);
}

/// Fills the pod spec of a template.
pub(crate) fn template(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    fill_zero(spec, "dnsPolicy", "ClusterFirst");
    fill_zero(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill_zero(spec, "schedulerName", "default-scheduler");
    service_account(spec);
    for list in CONTAINER_LISTS {
        for item in each(spec, list) {
            container(item);
        }
    }
    for item in each(spec, "volumes") {
        volume(item);
    }
    if let Some(resources) = sub_mut(spec, "resources") {
        round_amounts(resources);
    }
}

/// `serviceAccount` is an older name of `serviceAccountName`; both are kept alike.
fn service_account(spec: &mut Value) {
    let name = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        let name = name.to_owned();
        put(spec, "serviceAccountName", name.as_str());
        put(spec, "serviceAccount", name);
    }
}

fn volume(volume: &mut Value) {
    let has_source = volume.entries().any(|(key, value)| key != "name" && !value.is_null());
    if !has_source {
        put(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = sub_mut(volume, source) {
            fill(source, "defaultMode", 0o644);
        }
    }
    if let Some(source) = sub_mut(volume, "downwardAPI") {
        each(source, "items").for_each(value_source);
    }
    if let Some(source) = sub_mut(volume, "projected") {
        for part in each(source, "sources") {
            if let Some(token) = sub_mut(part, "serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = sub_mut(part, "downwardAPI") {
                each(downward, "items").for_each(value_source);
            }
        }
    }
    if let Some(image) = sub_mut(volume, "image") {
        let policy = pull_policy(image.text("reference"));
        fill_zero(image, "pullPolicy", policy);
    }
    if let Some(spec) = crate::tree::at_mut(volume, "ephemeral.volumeClaimTemplate.spec") {
        volume_claim_spec(spec);
    }
    persistent_source(volume);
}

/// Fills the spec of a claim.
pub(crate) fn volume_claim_spec(spec: &mut Value) {
    fill_zero(spec, "volumeMode", "Filesystem");
}

/// Fills the sources that volumes of pods and persistent volumes share.
pub(crate) fn persistent_source(holder: &mut Value) {
    if let Some(path) = sub_mut(holder, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(iscsi) = sub_mut(holder, "iscsi") {
        fill_zero(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = sub_mut(holder, "rbd") {
        for (field, value) in [("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")] {
            fill_zero(rbd, field, value);
        }
    }
    if let Some(disk) = sub_mut(holder, "azureDisk") {
        for (field, value) in [("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")] {
            fill(disk, field, value);
        }
        fill(disk, "readOnly", false);
    }
    if let Some(scale) = sub_mut(holder, "scaleIO") {
        fill_zero(scale, "storageMode", "ThinProvisioned");
        fill_zero(scale, "fsType", "xfs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_what_upstream_gives_it() {
        let mut spec = json!({
            "containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "resources": {"limits": {"cpu": "1"}},
            }],
            "volumes": [{"name": "a"}, {"name": "b", "configMap": {"name": "x"}}],
            "serviceAccountName": "robot",
        });
        pod(&mut spec);
        let wanted = json!({
            "containers": [{
                "name": "c", "image": "nginx", "imagePullPolicy": "Always",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
                "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "x", "defaultMode": 420}}],
            "serviceAccountName": "robot", "serviceAccount": "robot", "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
            "securityContext": {}, "enableServiceLinks": true,
        });
        assert_eq!(spec, wanted);
        pod(&mut spec);
        assert_eq!(spec, wanted, "idempotent");
    }

    #[test]
    fn pods_on_the_node_network_have_host_ports_and_templates_have_none() {
        let spec = json!({"hostNetwork": true, "containers": [{"image": "a:1", "ports": [{"containerPort": 80}]}]});
        let (mut of_pod, mut of_template) = (spec.clone(), spec);
        pod(&mut of_pod);
        template(&mut of_template);
        assert_eq!(of_pod["containers"][0]["ports"][0]["hostPort"], 80);
        assert!(!of_template["containers"][0]["ports"][0].has("hostPort"));
        assert!(!of_template.has("enableServiceLinks"));
    }
}
