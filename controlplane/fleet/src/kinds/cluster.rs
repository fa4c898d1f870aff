//! `Cluster`: defaults, validation, columns.

use ipnet::IpNet;
use jiff::Timestamp;
use minato_meta::{FieldError, FieldErrors, names};
use minato_rules::{Column, Strategy, age};
use serde_json::{Value, json};

use super::{column, conditions, fill, integer, string, text, unchanged};

/// Minor versions that can be hosted.
const VERSIONS: &[&str] = &["1.36"];

/// Smallest Service range: the fixed addresses of the API and DNS must fit.
const LONGEST_SERVICE_PREFIX: u8 = 24;

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "description": "A tenant's cluster: its control plane is hosted by this management plane.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "What is wanted.",
                "properties": {
                    "version": string("Kubernetes minor version, such as 1.36."),
                    "controlPlane": {
                        "type": "object",
                        "description": "How the control plane is hosted.",
                        "properties": {
                            "hosting": string("Back end of the hosting; only \"process\" yet."),
                            "store": string("Back end of the store: \"embedded\", or \"etcd\" for the provider's etcd."),
                        },
                    },
                    "network": {
                        "type": "object",
                        "description": "Addresses and names inside the cluster. Cannot change.",
                        "properties": {
                            "podCIDR": string("Range of pod addresses; each node takes a /24 of it."),
                            "serviceCIDR": string("Range of Service addresses."),
                            "dnsDomain": string("DNS domain of the cluster."),
                        },
                    },
                    "cloud": {
                        "type": "object",
                        "description": "The cloud that its nodes live in.",
                        "properties": {"provider": string("Name of the provider, such as mock. Cannot change.")},
                    },
                    "deletionProtection": {"type": "boolean", "description": "Refuses deletion while true."},
                },
            },
            "status": {
                "type": "object",
                "description": "What is observed.",
                "properties": {
                    "phase": string("Provisioning, Ready, Degraded or Deleting; programs read the conditions."),
                    "version": string("The version that runs."),
                    "endpoint": {
                        "type": "object",
                        "description": "Where the API server is.",
                        "properties": {
                            "host": string("Host for clients."),
                            "port": integer("Port for clients."),
                            "nodeHost": string("Host for the cluster's nodes."),
                            "nodePort": integer("Port for the cluster's nodes."),
                        },
                    },
                    "kubeconfigSecret": string("Name of the Secret with the admin's kubeconfig."),
                    "conditions": conditions(),
                    "observedGeneration": integer("Generation that this status is about."),
                },
            },
        },
    })
}

pub(super) struct Clusters;

impl Strategy for Clusters {
    fn default(&self, object: &mut Value) {
        fill(object, &["version"], json!(VERSIONS[0]));
        fill(object, &["controlPlane", "hosting"], json!("process"));
        fill(object, &["controlPlane", "store"], json!("embedded"));
        fill(object, &["network", "podCIDR"], json!("10.244.0.0/16"));
        fill(object, &["network", "serviceCIDR"], json!("10.96.0.0/16"));
        fill(object, &["network", "dnsDomain"], json!("cluster.local"));
        fill(object, &["cloud", "provider"], json!("mock"));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let mut one_of = |field: &str, supported: &[&str]| {
            let value = text(object, &format!("/{}", field.replace('.', "/")));
            if !supported.contains(&value) {
                errors.push(FieldError::not_supported(field, value, supported));
            }
        };
        one_of("spec.version", VERSIONS);
        one_of("spec.controlPlane.hosting", &["process"]);
        one_of("spec.controlPlane.store", &["embedded", "etcd"]);
        let pods = range(object, "podCIDR", &mut errors);
        let services = range(object, "serviceCIDR", &mut errors);
        if let Some(services) = services {
            let value = services.to_string();
            if services.prefix_len() > LONGEST_SERVICE_PREFIX {
                errors.push(FieldError::invalid(
                    "spec.network.serviceCIDR",
                    value,
                    "must be a /24 or larger",
                ));
            } else if pods.is_some_and(|pods| pods.contains(&services) || services.contains(&pods)) {
                errors.push(FieldError::invalid(
                    "spec.network.serviceCIDR",
                    value,
                    "must not overlap spec.network.podCIDR",
                ));
            }
        }
        if let Some(pods) = pods.filter(|pods| pods.prefix_len() > 24) {
            let value = pods.to_string();
            errors.push(FieldError::invalid(
                "spec.network.podCIDR",
                value,
                "must hold at least one /24, which is what a node takes",
            ));
        }
        let domain = text(object, "/spec/network/dnsDomain");
        for why in names::dns1123_subdomain(domain) {
            errors.push(FieldError::invalid("spec.network.dnsDomain", domain, why));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        for field in ["podCIDR", "serviceCIDR", "dnsDomain"] {
            unchanged(&mut errors, object, old, &format!("spec.network.{field}"));
        }
        unchanged(&mut errors, object, old, "spec.cloud.provider");
        unchanged(&mut errors, object, old, "spec.controlPlane.store");
        errors
    }

    /// The name is part of its machines' host names.
    fn validate_name(&self, name: &str) -> Vec<String> {
        names::dns1123_label(name)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            column("Name", "string", "Name of the cluster."),
            column("Phase", "string", "Provisioning, Ready, Degraded or Deleting."),
            column("Version", "string", "The version that runs."),
            column("Endpoint", "string", "Where clients reach the API server."),
            column("Age", "string", "Time since the cluster was created."),
        ]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let host = text(object, "/status/endpoint/host");
        let port = object.pointer("/status/endpoint/port").and_then(Value::as_u64);
        let endpoint = port.map_or_else(String::new, |port| format!("https://{host}:{port}"));
        vec![
            json!(text(object, "/metadata/name")),
            json!(text(object, "/status/phase")),
            json!(text(object, "/status/version")),
            json!(endpoint),
            age(object, now),
        ]
    }
}

/// The IPv4 range in `spec.network.<key>`.
fn range(object: &Value, key: &str, errors: &mut FieldErrors) -> Option<IpNet> {
    let field = format!("spec.network.{key}");
    let value = text(object, &format!("/spec/network/{key}"));
    match value.parse::<IpNet>() {
        Ok(IpNet::V4(net)) if net.trunc() == net => Some(IpNet::V4(net)),
        Ok(IpNet::V4(_)) => {
            errors.push(FieldError::invalid(
                field,
                value,
                "must be the first address of its range",
            ));
            None
        }
        Ok(IpNet::V6(_)) => {
            errors.push(FieldError::invalid(
                field,
                value,
                "must be an IPv4 range; IPv6 is not there yet",
            ));
            None
        }
        Err(_) => {
            errors.push(FieldError::invalid(
                field,
                value,
                "must be a range such as 10.244.0.0/16",
            ));
            None
        }
    }
}
