//! Services: one address for many pods. Addresses and node ports are given by the API server's allocators.

use std::collections::BTreeSet;

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use super::service_validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME, SELECTOR};
use crate::tree::{Tree as _, drop_member, each, ensure, fill, fill_zero, put, sub_mut, texts};

/// How long a client stays with one pod, in seconds, unless the service says otherwise.
const STICKY_SECONDS: i64 = 10_800;

/// One address for many pods.
#[derive(Default)]
pub(in crate::kinds) struct Service;

/// Whether traffic from outside the cluster can reach it.
pub(super) fn is_reachable_from_outside(spec: &Value) -> bool {
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    }
}

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        fill_zero(spec, "sessionAffinity", "None");
        match spec.text("sessionAffinity") {
            "None" => {
                drop_member(spec, "sessionAffinityConfig");
            }
            "ClientIP" => {
                let client = ensure(spec, "sessionAffinityConfig").and_then(|c| ensure(c, "clientIP"));
                if let Some(client) = client {
                    fill(client, "timeoutSeconds", STICKY_SECONDS);
                }
            }
            _ => {}
        }
        fill_zero(spec, "type", "ClusterIP");
        for port in each(spec, "ports") {
            fill_zero(port, "protocol", "TCP");
            let number = port.sub("port").clone();
            if !number.is_null() {
                fill_zero(port, "targetPort", number);
            }
        }
        if is_reachable_from_outside(spec) {
            fill_zero(spec, "externalTrafficPolicy", "Cluster");
        }
        if matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
            fill(spec, "internalTrafficPolicy", "Cluster");
        }
        if spec.text("type") == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", json!({"loadBalancer": {}}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        service_validation::service(&mut errors, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        service_validation::update(&mut errors, object, old);
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        service_validation::load_balancer_status(&mut errors, object);
        errors
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::dns1035_label(name)
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn field_labels(&self) -> &[&str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn field(&self, object: &Value, label: &str) -> String {
        object.at(label).as_text().to_owned()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Type", "How the service can be reached."),
            Col::text("Cluster-IP", "Address within the cluster."),
            Col::text("External-IP", "Addresses from outside."),
            Col::text("Port(s)", "Ports, with those of the nodes."),
            AGE,
            SELECTOR,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let address = spec.list("clusterIPs").first().map_or("", |ip| ip.as_text());
        let ports: Vec<String> = spec.list("ports").iter().map(port_text).collect();
        vec![
            show::name(object),
            json!(spec.text("type")),
            show::or_none(address),
            json!(outside(object)),
            show::or_none(&ports.join(",")),
            show::age(object, now),
            show::label_text(spec.sub("selector")),
        ]
    }
}

fn port_text(port: &Value) -> String {
    let (number, protocol) = (port.count("port"), port.text("protocol"));
    match port.count("nodePort") {
        0 => format!("{number}/{protocol}"),
        node => format!("{number}:{node}/{protocol}"),
    }
}

/// Addresses of a load balancer: each once, sorted.
pub(in crate::kinds) fn load_balancer_addresses(status: &Value) -> Vec<&str> {
    let mut set = BTreeSet::new();
    for ingress in status.at("loadBalancer.ingress").as_list() {
        let text = match ingress.text("ip") {
            "" => ingress.text("hostname"),
            ip => ip,
        };
        if !text.is_empty() {
            set.insert(text);
        }
    }
    set.into_iter().collect()
}

fn outside(object: &Value) -> String {
    let spec = object.sub("spec");
    let given = texts(spec.list("externalIPs"));
    match spec.text("type") {
        "ClusterIP" | "NodePort" if given.is_empty() => show::NONE.to_owned(),
        "ClusterIP" | "NodePort" => given.join(","),
        "LoadBalancer" => {
            let mut all = load_balancer_addresses(object.sub("status"));
            all.extend(given);
            if all.is_empty() {
                return "<pending>".to_owned();
            }
            all.join(",")
        }
        "ExternalName" => spec.text("externalName").to_owned(),
        _ => show::UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_type() {
        let filled = |spec: Value| {
            let mut object = json!({"spec": spec});
            Service.default(&mut object);
            let once = object.clone();
            Service.default(&mut object);
            assert_eq!(object, once);
            object["spec"].clone()
        };
        assert_eq!(
            filled(json!({"ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]})),
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ports": [
                {"port": 80, "protocol": "TCP", "targetPort": 80},
                {"port": 81, "protocol": "TCP", "targetPort": "web"}]})
        );
        assert_eq!(
            filled(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"})),
            json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}})
        );
        assert_eq!(
            filled(json!({"type": "ExternalName", "externalName": "a.b"})),
            json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"})
        );
    }

    #[test]
    fn rows() {
        let row = |object: Value| {
            let cells = Service.cells(&object, Timestamp::UNIX_EPOCH);
            [2, 3, 4].map(|i| cells[i].as_str().unwrap().to_owned())
        };
        let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
        assert_eq!(
            row(json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "ports": ports}})),
            ["10.0.0.1", "<none>", "80:30080/TCP,53/UDP"]
        );
        assert_eq!(
            row(json!({"spec": {"type": "LoadBalancer"}})),
            ["<none>", "<pending>", "<none>"]
        );
        assert_eq!(
            row(
                json!({"spec": {"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]}, "status": {"loadBalancer":
                {"ingress": [{"hostname": "b.example"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}]}}})
            )[1],
            "192.0.2.1,b.example,192.0.2.9"
        );
        assert_eq!(
            row(json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}))[1],
            "a.b"
        );
    }
}
