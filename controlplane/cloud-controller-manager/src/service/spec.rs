//! From a Service and the nodes to what is asked of the cloud: no await, no client.
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/service/#loadbalancer>, KEP-3458 (which nodes).

use std::sync::Arc;

use ipnet::IpNet;
use minato_api::k8s::core::v1::{LoadBalancerIngress, Node, PortStatus, Service, ServiceSpec};
use minato_provider_interface::{
    CloudError, CloudErrorKind, ClusterId, HealthCheck, IpMode, LoadBalancerPort, LoadBalancerSpec, LoadBalancerStatus,
    NodeRef, OwnerTags, Protocol,
};

use crate::ops;

/// Holds a Service back until its load balancer is gone.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// Condition of a Service, some of whose ports the cloud cannot serve.
pub(super) const PORTS_ERROR: &str = "LoadBalancerPortsError";
/// Reason of [`PORTS_ERROR`].
pub(super) const MIXED_PROTOCOLS: &str = "LoadBalancerMixedProtocolNotSupported";
const LOAD_BALANCER: &str = "LoadBalancer";
const LONGEST_NAME: usize = 32;

fn spec(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

/// Whether the Service is for this controller at all: another class is another controller's, in life and death.
pub(super) fn is_of_class(service: &Service, class: Option<&str>) -> bool {
    spec(service).and_then(|spec| spec.load_balancer_class.as_deref()) == class
}

fn is_load_balancer(service: &Service) -> bool {
    spec(service).and_then(|spec| spec.type_.as_deref()) == Some(LOAD_BALANCER)
}

/// Whether it should have a load balancer.
pub(super) fn is_wanted(service: &Service, class: Option<&str>) -> bool {
    is_load_balancer(service) && is_of_class(service, class) && !ops::is_deleting(&service.metadata)
}

pub(super) fn has_finalizer(service: &Service) -> bool {
    service
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// Whether it had one and should no longer. One that left its type has lost its class with it.
pub(super) fn needs_cleanup(service: &Service, class: Option<&str>) -> bool {
    let ours = !is_load_balancer(service) || is_of_class(service, class);
    has_finalizer(service) && ours && (ops::is_deleting(&service.metadata) || !is_load_balancer(service))
}

/// Whether load balancers may send to the node. Readiness, cordons and the like do not matter: taking a node out breaks
/// its connections, and health checks do better.
pub(super) fn is_member(node: &Node) -> bool {
    // Whatever is no clear "false" excludes.
    let excluded = ops::label(&node.metadata, EXCLUDED)
        .is_some_and(|value| !["0", "f", "F", "false", "False", "FALSE"].contains(&value));
    let going = ops::is_deleting(&node.metadata) || ops::taints(node).any(|taint| taint.key == TO_BE_DELETED);
    !excluded && !going
}

/// The nodes that load balancers send to, by name.
pub(super) fn members(nodes: &[Arc<Node>]) -> Vec<NodeRef> {
    let mut members: Vec<_> = nodes
        .iter()
        .filter(|node| is_member(node))
        .map(|node| ops::node_ref(node))
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

/// The tags that a Service's load balancer carries.
pub(super) fn owner(service: &Service, cluster: &ClusterId) -> OwnerTags {
    let meta = &service.metadata;
    OwnerTags {
        cluster: cluster.clone(),
        owner_kind: "Service".to_owned(),
        owner_name: format!("{}/{}", ops::namespace(meta), ops::name(meta)),
        owner_uid: ops::uid(meta).to_owned(),
    }
}

/// What is asked for.
///
/// # Errors
/// `Invalid`: the Service asks for something that makes no sense.
pub(super) fn load_balancer(
    service: &Service,
    nodes: Vec<NodeRef>,
    cluster: &ClusterId,
) -> Result<LoadBalancerSpec, CloudError> {
    let spec = spec(service).ok_or_else(|| invalid("the service has no spec".to_owned()))?;
    let mut ports = Vec::new();
    for port in spec.ports.iter().flatten() {
        let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
        ports.push(LoadBalancerPort {
            name: port.name.clone().unwrap_or_default(),
            protocol: protocol(port.protocol.as_deref())?,
            port: number(port.port).ok_or_else(|| invalid(format!("port {} is out of range", port.port)))?,
            node_port: port.node_port.and_then(number),
        });
    }
    if ports.is_empty() {
        return Err(invalid("the service has no ports".to_owned()));
    }
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let check = spec
        .health_check_node_port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    let requested_ip = match spec.load_balancer_ip.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| invalid(format!("loadBalancerIP {text:?} is no address")))?,
        ),
    };
    let name: String = ops::uid(&service.metadata).chars().filter(|c| *c != '-').collect();
    let mut annotations = service.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    Ok(LoadBalancerSpec {
        owner: owner(service, cluster),
        name: format!("a{name}").chars().take(LONGEST_NAME).collect(),
        ports,
        source_ranges: source_ranges(service)?,
        client_ip_affinity: spec.session_affinity.as_deref() == Some("ClientIP"),
        health_check: match check {
            Some(port) if local => HealthCheck::LocalEndpoints { port },
            _ => HealthCheck::NodePort,
        },
        requested_ip,
        annotations,
        nodes,
    })
}

/// Whether its ports are of more than one protocol.
pub(super) fn mixes_protocols(spec: &LoadBalancerSpec) -> bool {
    spec.ports.iter().any(|port| port.protocol != spec.ports[0].protocol)
}

fn invalid(message: String) -> CloudError {
    CloudError::new(CloudErrorKind::Invalid, message)
}

fn protocol(text: Option<&str>) -> Result<Protocol, CloudError> {
    match text {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => Err(invalid(format!("protocol {other:?} is not known"))),
    }
}

/// The field, else the annotation, else all.
fn source_ranges(service: &Service) -> Result<Vec<IpNet>, CloudError> {
    let fields = spec(service)
        .and_then(|spec| spec.load_balancer_source_ranges.clone())
        .unwrap_or_default();
    let annotation = ops::annotation(&service.metadata, SOURCE_RANGES).unwrap_or_default();
    let texts: Vec<String> = match fields.is_empty() {
        false => fields,
        true => annotation
            .split(',')
            .map(str::to_owned)
            .filter(|text| !text.trim().is_empty())
            .collect(),
    };
    let parse = |text: &String| {
        let range = text.trim().parse::<IpNet>();
        range
            .map(|range| range.trunc())
            .map_err(|_| invalid(format!("source range {text:?} is no CIDR")))
    };
    texts.iter().map(parse).collect()
}

/// As `status.loadBalancer.ingress`.
pub(super) fn ingress(status: &LoadBalancerStatus) -> Vec<LoadBalancerIngress> {
    let port = |port: &minato_provider_interface::PortStatus| PortStatus {
        port: i32::from(port.port),
        protocol: match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
        .to_owned(),
        error: port.error.clone(),
    };
    let point = |point: &minato_provider_interface::Ingress| LoadBalancerIngress {
        ip: point.ip.map(|ip| ip.to_string()),
        hostname: point.hostname.clone(),
        ip_mode: point.ip.and(point.ip_mode).map(|mode| {
            match mode {
                IpMode::Vip => "VIP",
                IpMode::Proxy => "Proxy",
            }
            .to_owned()
        }),
        ports: (!point.ports.is_empty()).then(|| point.ports.iter().map(port).collect()),
    };
    status.ingress.iter().map(point).collect()
}
