//! From Services and pods to endpoints, grouped by address family and resolved ports. Shared with the controller of
//! the older Endpoints.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use minato_api::apimachinery::pkg::util::intstr::IntOrString;
use minato_api::k8s::core::v1::{ObjectReference, Pod, Service, ServicePort};
use minato_api::k8s::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use minato_meta::LabelSelector;

use crate::{ops, pods};

/// Address family of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn of(address: &str) -> Option<Self> {
        match address.parse().ok()? {
            IpAddr::V4(_) => Some(Self::V4),
            IpAddr::V6(_) => Some(Self::V6),
        }
    }
}

/// Ports as pods resolve them. Ordered, so that it can be compared and be a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: String,
    pub(crate) app_protocol: Option<String>,
}

impl Port {
    pub(crate) fn of_slice(port: &EndpointPort) -> Self {
        Self {
            name: port.name.clone().unwrap_or_default(),
            port: port.port.unwrap_or(0),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            app_protocol: port.app_protocol.clone(),
        }
    }

    pub(crate) fn to_slice(&self) -> EndpointPort {
        EndpointPort {
            name: Some(self.name.clone()),
            port: Some(self.port),
            protocol: Some(self.protocol.clone()),
            app_protocol: self.app_protocol.clone(),
        }
    }
}

/// Endpoints by family and ports.
pub(crate) type Groups = BTreeMap<(Family, Vec<Port>), Vec<Endpoint>>;

/// What selects the pods of a Service; `None` for those whose endpoints are not ours to make.
pub(crate) fn selector(service: &Service) -> Option<LabelSelector> {
    let spec = service.spec.as_ref()?;
    let pairs = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    Some(LabelSelector::from_pairs(
        pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())),
    ))
}

pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// The families that a Service serves.
pub(crate) fn families(service: &Service) -> Vec<Family> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let mut families: Vec<_> = named
        .iter()
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    if families.is_empty() {
        let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(Family::of);
        families.push(address.unwrap_or(Family::V4));
    }
    families
}

/// Whether a change of a pod can change its endpoints, its labels aside.
pub(crate) fn concerns_endpoints(old: &Pod, new: &Pod) -> bool {
    let seen = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let spec = pod.spec.as_ref();
        (
            (
                status.pod_ip,
                status.pod_ips,
                pods::is_ready(pod),
                pods::is_finished(pod),
            ),
            (pods::is_terminating(pod), pods::node_name(pod).map(str::to_owned)),
            (
                spec.and_then(|spec| spec.hostname.clone()),
                spec.and_then(|spec| spec.subdomain.clone()),
            ),
        )
    };
    seen(old) != seen(new)
}

pub(crate) fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut all: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    if let Some(ip) = status.pod_ip.as_deref().filter(|ip| !all.contains(ip)) {
        all.push(ip);
    }
    all
}

/// The endpoints that the selected pods make.
pub(crate) fn groups(service: &Service, selected: &[Arc<Pod>], zone: impl Fn(&str) -> Option<String>) -> Groups {
    let mut groups = Groups::new();
    let empty = Vec::new();
    let spec_ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_ref())
        .unwrap_or(&empty);
    for pod in selected {
        if pods::is_finished(pod) || pods::node_name(pod).is_none() {
            continue;
        }
        let Some(ports) = resolve(spec_ports, pod) else {
            continue;
        };
        for family in families(service) {
            let Some(address) = addresses(pod)
                .into_iter()
                .find(|address| Family::of(address) == Some(family))
            else {
                continue;
            };
            let endpoint = endpoint(service, pod, address, &zone);
            groups.entry((family, ports.clone())).or_default().push(endpoint);
        }
    }
    groups
}

/// The Service's ports on this pod; a named port that no container has is left out. `None` if a Service that has ports
/// has none on this pod.
fn resolve(service_ports: &[ServicePort], pod: &Pod) -> Option<Vec<Port>> {
    let mut ports = Vec::new();
    for service_port in service_ports {
        let protocol = service_port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let number = match &service_port.target_port {
            None => Some(service_port.port),
            Some(IntOrString::Int(0)) => Some(service_port.port),
            Some(IntOrString::Int(number)) => Some(*number),
            Some(IntOrString::String(name)) if name.is_empty() => Some(service_port.port),
            Some(IntOrString::String(name)) => container_port(pod, name, &protocol),
        };
        if let Some(port) = number {
            ports.push(Port {
                name: service_port.name.clone().unwrap_or_default(),
                port,
                protocol,
                app_protocol: service_port.app_protocol.clone(),
            });
        }
    }
    ports.sort();
    (service_ports.is_empty() || !ports.is_empty()).then_some(ports)
}

fn container_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    // Init containers that keep running beside the others serve as well.
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let mut ports = ports.filter(|port| port.name.as_deref() == Some(name));
    ports
        .find(|port| port.protocol.as_deref().unwrap_or("TCP") == protocol)
        .map(|port| port.container_port)
}

fn endpoint(service: &Service, pod: &Pod, address: &str, zone: &impl Fn(&str) -> Option<String>) -> Endpoint {
    let publish = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let serving = pods::is_ready(pod);
    let terminating = pods::is_terminating(pod);
    let spec = pod.spec.as_ref();
    let subdomain = spec.and_then(|spec| spec.subdomain.as_deref());
    let hostname = spec.and_then(|spec| spec.hostname.clone());
    let node = pods::node_name(pod);
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(publish || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname.filter(|_| subdomain == Some(ops::name(&service.metadata))),
        node_name: node.map(str::to_owned),
        target_ref: Some(target(pod)),
        zone: node.and_then(zone),
        ..Endpoint::default()
    }
}

pub(crate) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
