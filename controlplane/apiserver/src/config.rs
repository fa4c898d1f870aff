//! What an embedder decides about an API server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use minato_admission::AdmissionPlugin;
use minato_auth::{Authenticator, Authorizer, TokenIssuer};
use minato_rules::ResourceInfo;
use minato_schema::SchemaRef;
use minato_storage::cache::CacheOptions;
use minato_streams::{Egress, NodeListener};
use serde_json::Value;

use crate::subresources::KubeletAccess;

/// Settings of one API server. The defaults are upstream's.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    /// Name in logs and metrics; tells the control planes of one process apart.
    pub name: String,
    /// Deadline of requests that are not long-running.
    pub request_timeout: Duration,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Concurrent reads before 429.
    pub max_reads_inflight: usize,
    /// Concurrent writes before 429.
    pub max_writes_inflight: usize,
    /// Shortest life of a watch that names no timeout; the actual one is random between this and its double.
    pub min_watch_timeout: Duration,
    /// How long a stopping server waits for running requests.
    pub drain_timeout: Duration,
    /// Bounds of what is kept of the past for watches and lists.
    pub watch_cache: CacheOptions,
    /// Allocation of Service addresses and ports, and what the `kubernetes` Service points at. `None` for a server
    /// that has no workloads (the management plane): then Services get no addresses.
    pub services: Option<ServiceConfig>,
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self {
            name: "minato".to_owned(),
            request_timeout: Duration::from_secs(60),
            max_body_bytes: 3 * 1024 * 1024,
            max_reads_inflight: 400,
            max_writes_inflight: 200,
            min_watch_timeout: Duration::from_secs(1800),
            drain_timeout: Duration::from_secs(10),
            watch_cache: CacheOptions::default(),
            services: None,
        }
    }
}

/// Service networking of a cluster.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// ClusterIP ranges; the first decides the primary family. One IPv4 and one IPv6 range at most.
    pub cluster_ip_ranges: Vec<IpNet>,
    /// Node ports, first and last.
    pub node_port_range: (u16, u16),
    /// Address at which nodes and pods reach this API server; the endpoint of the `kubernetes` Service.
    pub advertise_address: IpAddr,
    /// Port that goes with it.
    pub advertise_port: u16,
}

/// The parts that an embedder plugs in.
pub struct Deps {
    /// Establishes identities of requests from the network.
    pub authenticator: Arc<dyn Authenticator>,
    /// Decides what they may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// Admission plug-ins in upstream's order; each phase runs over all of them.
    pub admission: Vec<Arc<dyn AdmissionPlugin>>,
    /// The way to nodes and into the cluster's network; without it those subresources answer 503.
    pub egress: Option<Arc<dyn Egress>>,
    /// The identity that goes with `egress` towards kubelets.
    pub kubelet: Option<Arc<KubeletAccess>>,
    /// Takes the tunnels that nodes open; without it there is no such path.
    pub node_listener: Option<Arc<dyn NodeListener>>,
    /// Signs service-account tokens; without it token requests answer 503.
    pub token_issuer: Option<Arc<dyn TokenIssuer>>,
    /// Kinds served besides the built-in ones. Without a schema of its own a kind must name a built-in definition.
    pub extra_resources: Vec<(ResourceInfo, Option<SchemaRef>)>,
    /// Objects that must exist once the server is ready (default roles and bindings, say).
    pub bootstrap_objects: Vec<Value>,
}
