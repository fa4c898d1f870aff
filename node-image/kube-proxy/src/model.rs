//! What a Service and its EndpointSlices mean on one node. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice};

/// Transport protocol, as nftables names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    fn of(name: Option<&str>) -> Option<Self> {
        match name.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// An address and port of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Backend {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortModel {
    /// `namespace/name:port`, for people and for names.
    pub(crate) id: String,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) cluster_ips: Vec<Ipv4Addr>,
    /// `externalIPs`.
    pub(crate) external_ips: Vec<Ipv4Addr>,
    /// Addresses of load balancers that keep the destination (ipMode VIP).
    pub(crate) load_balancer_ips: Vec<Ipv4Addr>,
    pub(crate) node_port: Option<u16>,
    /// Who may come through load balancers; empty for all.
    pub(crate) source_ranges: Vec<Ipv4Net>,
    /// Seconds for which a client stays with its backend.
    pub(crate) affinity: Option<u32>,
    /// Only to backends of this node, from outside; the client's address is kept.
    pub(crate) external_local: bool,
    /// Where connections to the cluster address go.
    pub(crate) internal: Vec<Backend>,
    /// Where connections to node ports and external addresses go.
    pub(crate) external: Vec<Backend>,
    /// Whether there are backends anywhere: with `external` empty, others' nodes have them.
    pub(crate) anywhere: bool,
}

/// A Service on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceModel {
    pub(crate) ports: Vec<PortModel>,
    /// Port at which load balancers ask, and the number of backends on this node.
    pub(crate) health_check: Option<(u16, usize)>,
}

/// A backend and what matters for choosing it.
struct Candidate {
    backend: Backend,
    ready: bool,
    serving: bool,
    local: bool,
}

/// Reads a Service. Headless ones, and those that another proxy serves, mean nothing here.
pub(crate) fn of_service(service: &Service, slices: &[impl AsRef<EndpointSlice>], node: &str) -> ServiceModel {
    let Some(spec) = &service.spec else {
        return ServiceModel::default();
    };
    let labels = service.metadata.labels.as_ref();
    let other_proxy = labels.is_some_and(|labels| labels.contains_key("service.kubernetes.io/service-proxy-name"));
    let cluster_ips: Vec<Ipv4Addr> = addresses(spec.cluster_ips.iter().flatten());
    if other_proxy || spec.type_.as_deref() == Some("ExternalName") || cluster_ips.is_empty() {
        return ServiceModel::default();
    }
    let local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let (external_local, internal_local) = (
        local(&spec.external_traffic_policy),
        local(&spec.internal_traffic_policy),
    );
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec
            .session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(10_800);
        u32::try_from(seconds).unwrap_or(10_800)
    });
    let mut local_backends = BTreeSet::new();
    let mut ports = Vec::new();
    for port in spec.ports.iter().flatten() {
        let (Some(protocol), Ok(number)) = (Protocol::of(port.protocol.as_deref()), u16::try_from(port.port)) else {
            continue;
        };
        let name = port.name.as_deref().unwrap_or_default();
        let candidates = candidates(slices, name, protocol, node);
        local_backends.extend(
            candidates
                .iter()
                .filter(|c| c.local && c.ready)
                .map(|c| c.backend.address),
        );
        ports.push(PortModel {
            id: format!(
                "{}/{}:{name}",
                service.metadata.namespace.as_deref().unwrap_or_default(),
                service.metadata.name.as_deref().unwrap_or_default()
            ),
            protocol,
            port: number,
            cluster_ips: cluster_ips.clone(),
            external_ips: addresses(spec.external_ips.iter().flatten()),
            load_balancer_ips: load_balancer_ips(service),
            node_port: port
                .node_port
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port != 0),
            source_ranges: spec
                .load_balancer_source_ranges
                .iter()
                .flatten()
                .filter_map(|range| range.trim().parse().ok())
                .collect(),
            affinity,
            external_local,
            internal: choose(&candidates, internal_local),
            external: choose(&candidates, external_local),
            anywhere: !choose(&candidates, false).is_empty(),
        });
    }
    let health_check = spec
        .health_check_node_port
        .filter(|_| external_local && spec.type_.as_deref() == Some("LoadBalancer"));
    ServiceModel {
        ports,
        health_check: health_check
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0)
            .map(|port| (port, local_backends.len())),
    }
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<Ipv4Addr> {
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Addresses of load balancers whose packets arrive with that address. Source: KEP-1860.
fn load_balancer_ips(service: &Service) -> Vec<Ipv4Addr> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer
        .into_iter()
        .flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress
        .filter(|ingress| ingress.ip_mode.as_deref().unwrap_or("VIP") == "VIP")
        .filter_map(|ingress| ingress.ip.as_ref()?.parse().ok())
        .collect()
}

fn candidates(slices: &[impl AsRef<EndpointSlice>], port: &str, protocol: Protocol, node: &str) -> Vec<Candidate> {
    let mut all = Vec::new();
    for slice in slices
        .iter()
        .map(AsRef::as_ref)
        .filter(|slice| slice.address_type == "IPv4")
    {
        let Some(number) = slice
            .ports
            .iter()
            .flatten()
            .filter(|p| {
                p.name.as_deref().unwrap_or_default() == port && Protocol::of(p.protocol.as_deref()) == Some(protocol)
            })
            .find_map(|p| u16::try_from(p.port?).ok())
        else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            all.extend(candidate(endpoint, number, node));
        }
    }
    all.sort_by_key(|candidate| candidate.backend);
    all.dedup_by_key(|candidate| candidate.backend);
    all
}

fn candidate(endpoint: &SliceEndpoint, port: u16, node: &str) -> Option<Candidate> {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    Some(Candidate {
        backend: Backend {
            address: endpoint.addresses.first()?.parse().ok()?,
            port,
        },
        ready,
        serving: conditions.serving.unwrap_or(ready),
        local: endpoint.node_name.as_deref() == Some(node),
    })
}

/// The backends that get connections: those that are ready, or else those that end but still serve. Source: KEP-1669.
fn choose(candidates: &[Candidate], local: bool) -> Vec<Backend> {
    let here = || candidates.iter().filter(move |candidate| !local || candidate.local);
    let ready: Vec<Backend> = here().filter(|c| c.ready).map(|c| c.backend).collect();
    if ready.is_empty() {
        here().filter(|c| c.serving).map(|c| c.backend).collect()
    } else {
        ready
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn service(spec: Value) -> Service {
        let value = json!({"metadata": {"name": "web", "namespace": "d"}, "spec": spec});
        serde_json::from_value(value).unwrap_or_default()
    }

    pub(crate) fn slice(endpoints: Value) -> Arc<EndpointSlice> {
        let value = json!({
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        });
        Arc::new(serde_json::from_value(value).unwrap_or_default())
    }

    fn backends(list: &[Backend]) -> Vec<String> {
        list.iter().map(|b| format!("{}:{}", b.address, b.port)).collect()
    }

    #[test]
    fn policies_choose_among_backends() {
        let slice = slice(json!([
            {"addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "nodeName": "n2", "conditions": {"ready": true}},
            {"addresses": ["10.0.0.3"], "nodeName": "n3", "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.0.0.4"], "nodeName": "n3", "conditions": {"ready": false, "serving": false}},
        ]));
        let service = service(json!({
            "clusterIPs": ["10.96.0.1"], "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
        }));
        let on = |node: &str| of_service(&service, std::slice::from_ref(&slice), node);
        let n1 = on("n1");
        assert_eq!(backends(&n1.ports[0].internal), ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!(backends(&n1.ports[0].external), ["10.0.0.1:8080"]);
        assert_eq!(n1.health_check, Some((31000, 1)));
        // Its one backend is ending: better than nothing, and the load balancer is told to go elsewhere.
        let n3 = on("n3");
        assert_eq!(backends(&n3.ports[0].external), ["10.0.0.3:8080"]);
        assert_eq!(n3.health_check, Some((31000, 0)));
        assert!(on("n4").ports[0].external.is_empty() && on("n4").ports[0].anywhere);
    }

    #[test]
    fn only_kept_addresses_are_taken_over() {
        let mut service = service(json!({
            "clusterIPs": ["10.96.0.1", "fd00::1"], "externalIPs": ["192.0.2.1"], "sessionAffinity": "ClientIP",
            "ports": [{"port": 80}],
        }));
        service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [
            {"ip": "192.0.2.7"}, {"ip": "192.0.2.8", "ipMode": "Proxy"}, {"hostname": "x"},
        ]}}))
        .ok();
        let model = of_service(&service, &Vec::<Arc<EndpointSlice>>::new(), "n");
        let port = &model.ports[0];
        assert_eq!(port.cluster_ips, [Ipv4Addr::new(10, 96, 0, 1)]);
        assert_eq!(port.load_balancer_ips, [Ipv4Addr::new(192, 0, 2, 7)]);
        assert_eq!((port.affinity, port.anywhere), (Some(10_800), false));
        service.spec = serde_json::from_value(json!({"clusterIPs": ["None"]})).ok();
        assert_eq!(
            of_service(&service, &Vec::<Arc<EndpointSlice>>::new(), "n"),
            ServiceModel::default()
        );
    }
}
