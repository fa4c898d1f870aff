//! What an embedder decides about a control plane.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use minato_admission::AdmissionPlugin;
use minato_provider_interface::CloudProvider;
use minato_rules::ResourceInfo;
use minato_scheduler::SchedulerConfig;
use minato_schema::SchemaRef;
use minato_storage::EtcdOptions;

/// How a control plane is set up. [`Config::new`] has the defaults; change what differs.
#[derive(Clone)]
pub struct Config {
    /// Name of the cluster.
    pub name: String,
    /// Directory for keys, store and kubeconfig; belongs to this control plane alone.
    pub directory: PathBuf,
    /// Where the API server listens; port zero takes a free one.
    pub listen: SocketAddr,
    /// Where nodes and pods reach the API server, when that is not where it listens: the endpoint of the `kubernetes`
    /// Service, and an address of the serving certificate.
    pub advertise: Option<SocketAddr>,
    /// Further names of the serving certificate.
    pub server_names: Vec<String>,
    /// Further addresses of the serving certificate.
    pub server_addresses: Vec<IpAddr>,
    /// Where its objects are kept.
    pub storage: Storage,
    /// What the cluster is for.
    pub role: Role,
}

/// Where a cluster's objects are kept.
#[derive(Debug, Clone, Default)]
pub enum Storage {
    /// A file in the control plane's directory.
    #[default]
    Embedded,
    /// An etcd, which other clusters and other API servers of this cluster may use too.
    Etcd(EtcdOptions),
}

/// What a cluster is for, which decides the components that run.
#[derive(Clone)]
pub enum Role {
    /// A tenant's cluster, with nodes and workloads.
    Workloads(Workloads),
    /// An API without nodes, for kinds of the embedder's own: the management plane.
    Management(Management),
}

/// A cluster with nodes.
#[derive(Clone)]
pub struct Workloads {
    /// Range of Service addresses.
    pub service_cidr: IpNet,
    /// Range of pod addresses, of which each node takes a part; none: nodes get no ranges.
    pub cluster_cidr: Option<IpNet>,
    /// Node ports, first and last.
    pub node_port_range: (u16, u16),
    /// DNS domain of the cluster.
    pub dns_domain: String,
    /// The cloud that its nodes live in; without one, no cloud controller manager runs.
    pub cloud: Option<Arc<dyn CloudProvider>>,
    /// Scheduler profiles.
    pub scheduler: SchedulerConfig,
}

/// An API of the embedder's own kinds.
#[derive(Clone, Default)]
pub struct Management {
    /// Its kinds, with their schemas.
    pub resources: Vec<(ResourceInfo, SchemaRef)>,
    /// Admission plug-ins that run after the built-in ones.
    pub admission: Vec<Arc<dyn AdmissionPlugin>>,
}

impl Default for Workloads {
    fn default() -> Self {
        Self {
            service_cidr: network([10, 96, 0, 0], 16),
            cluster_cidr: Some(network([10, 244, 0, 0], 16)),
            node_port_range: (30_000, 32_767),
            dns_domain: "cluster.local".to_owned(),
            cloud: None,
            scheduler: SchedulerConfig::default(),
        }
    }
}

fn network(address: [u8; 4], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::from(address), prefix)
}

impl Config {
    /// A tenant's cluster on a free port of the loopback interface.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            server_names: Vec::new(),
            server_addresses: Vec::new(),
            storage: Storage::default(),
            role: Role::Workloads(Workloads::default()),
        }
    }

    /// The cluster's workload settings, when it has any.
    pub fn workloads(&self) -> Option<&Workloads> {
        match &self.role {
            Role::Workloads(workloads) => Some(workloads),
            Role::Management(_) => None,
        }
    }
}
