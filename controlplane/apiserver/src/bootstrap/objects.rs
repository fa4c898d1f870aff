//! The objects themselves.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::config::ServiceConfig;

/// Namespaces that upstream makes by itself.
pub(super) fn namespaces() -> Vec<Value> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .into_iter()
        .map(|name| {
            json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        })
        .collect()
}

/// Classes of the pods that keep a cluster going.
/// Source: <https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>.
pub(super) fn priority_classes() -> Vec<Value> {
    [
        (
            "system-cluster-critical",
            2_000_000_000_u32,
            "For pods that the cluster needs, though not on any node in particular.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "For pods that must not be moved from their node.",
        ),
    ]
    .into_iter()
    .map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
            "description": description,
        })
    })
    .collect()
}

/// The Service by which pods reach this API server, and its endpoints in both forms.
pub(super) fn kubernetes_service(config: Option<&ServiceConfig>) -> Vec<Value> {
    let Some(config) = config else {
        return Vec::new();
    };
    let Some(address) = config.cluster_ip_ranges.first().and_then(first_address) else {
        return Vec::new();
    };
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address.to_string(),
            "clusterIPs": [address.to_string()],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": config.advertise_port}],
            "sessionAffinity": "None",
        },
    });
    let port = json!({"name": "https", "port": config.advertise_port, "protocol": "TCP"});
    let endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": config.advertise_address.to_string()}], "ports": [port]}],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if config.advertise_address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [config.advertise_address.to_string()], "conditions": {"ready": true}}],
        "ports": [port],
    });
    vec![service, endpoints, slice]
}

/// The first usable address of a network, which is the API server's by convention.
fn first_address(network: &IpNet) -> Option<IpAddr> {
    network.hosts().find(|a| *a != network.network())
}
