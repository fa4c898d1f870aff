//! Load balancers for Services of type LoadBalancer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{CloudError, NodeRef, OwnerTags};

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the protocols, by name")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// A port of the Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoadBalancerPort {
    /// Its name, empty for none.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Port on the load balancer.
    pub port: u16,
    /// Port on the nodes; `None` when no node port was allocated.
    pub node_port: Option<u16>,
}

/// How members are checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HealthCheck {
    /// TCP connect to the port's own node port (traffic policy `Cluster`).
    NodePort,
    /// HTTP GET `/healthz` on this node port; 200 means that the node has local endpoints (traffic policy `Local`).
    LocalEndpoints {
        /// `spec.healthCheckNodePort`.
        port: u16,
    },
}

/// What a Service asks of its load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerSpec {
    /// Whose it is; `owner_uid` is the Service's UID, which is the load balancer's identity.
    pub owner: OwnerTags,
    /// A name of at most 32 characters, derived from the UID.
    pub name: String,
    /// The Service's ports.
    pub ports: Vec<LoadBalancerPort>,
    /// Allowed client ranges; empty means all.
    pub source_ranges: Vec<IpNet>,
    /// `sessionAffinity: ClientIP`.
    pub client_ip_affinity: bool,
    /// How members are checked.
    pub health_check: HealthCheck,
    /// `spec.loadBalancerIP`, when set.
    pub requested_ip: Option<IpAddr>,
    /// The Service's annotations; a provider documents those that it reads.
    pub annotations: BTreeMap<String, String>,
    /// Member nodes. May be empty.
    pub nodes: Vec<NodeRef>,
}

/// `ipMode` of an ingress point (KEP-1860).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpMode {
    /// Traffic arrives with the address as its destination: nodes may short-circuit it.
    Vip,
    /// Traffic has to go through the load balancer.
    Proxy,
}

/// State of one port of an ingress point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// CamelCase reason why it does not work.
    pub error: Option<String>,
}

/// An address at which the Service is reachable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingress {
    /// Address, unless it is known by name only.
    pub ip: Option<IpAddr>,
    /// Host name.
    pub hostname: Option<String>,
    /// Only together with `ip`.
    pub ip_mode: Option<IpMode>,
    /// Per-port state; may be empty.
    pub ports: Vec<PortStatus>,
}

/// What goes to `status.loadBalancer`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerStatus {
    /// Ingress points in a stable order.
    pub ingress: Vec<Ingress>,
}

/// Makes, changes and removes load balancers. All calls are level-based: they converge from any partial state.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// The state of the load balancer of this Service; `None` when nothing of it exists.
    ///
    /// # Errors
    /// The cloud could not be asked.
    async fn get(&self, owner: &OwnerTags) -> Result<Option<LoadBalancerStatus>, CloudError>;

    /// Creates or changes it, with all that belongs to it, until it is as asked. Without a difference: no mutating call.
    ///
    /// # Errors
    /// `InProgress` while the cloud is still at work; anything else as it is.
    async fn ensure(&self, spec: &LoadBalancerSpec) -> Result<LoadBalancerStatus, CloudError>;

    /// Only the member set changed. A load balancer that does not exist is no error.
    ///
    /// # Errors
    /// As for [`LoadBalancers::ensure`].
    async fn update_members(&self, spec: &LoadBalancerSpec) -> Result<(), CloudError>;

    /// Deletes it and every satellite, found by tag; returns when they are observed gone.
    ///
    /// # Errors
    /// `InProgress` while the cloud is still at work.
    async fn ensure_deleted(&self, owner: &OwnerTags) -> Result<(), CloudError>;
}
