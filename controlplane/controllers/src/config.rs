//! What an embedder decides about the controllers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;
use minato_api::kube::Client;
use minato_pki::Authority;

/// Tells what the cloud knows of a node's addresses. A node can write what it likes into its own status.
#[async_trait]
pub trait CloudAddresses: Send + Sync + 'static {
    /// All addresses and names of the instance of a node, which is known by its name and its `spec.providerID`.
    ///
    /// # Errors
    /// Why the cloud could not tell; it is asked again later.
    async fn addresses(&self, node: &str, provider_id: Option<&str>) -> Result<Vec<String>, String>;
}

/// Makes the client of a controller that acts as this service account of `kube-system`, such as `deployment-controller`.
/// What the account may do is in the role `system:controller:NAME`.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Settings of one controller manager. The defaults are upstream's.
#[derive(Clone)]
pub struct ControllerManagerConfig {
    /// Controllers that do not run, by name; see [`crate::ControllerManager::names`].
    pub disabled: BTreeSet<String>,
    /// How controllers get identities of their own; without it all act as their runtime does.
    pub clients: Option<Clients>,
    /// Certificates, PEM, that pods trust the API server by; without them `kube-root-ca.crt` is not published.
    pub root_ca: Option<String>,
    /// Signs certificate requests; without it they stay unsigned.
    pub authority: Option<Arc<Authority>>,
    /// Longest life of a signed certificate, and what requests get that ask for none.
    pub longest_certificate: Duration,
    /// Names of the API server, beside those within the cluster, that no node may serve as.
    pub reserved_names: Vec<String>,
    /// Addresses of the API server that no node may serve as.
    pub reserved_addresses: Vec<IpAddr>,
    /// The cloud, where there is one: kubelets get serving certificates for no address that it does not know.
    pub cloud_addresses: Option<Arc<dyn CloudAddresses>>,
    /// The ranges that nodes get their pod ranges from, one per address family. Empty: nodes get none.
    pub cluster_cidrs: Vec<IpNet>,
    /// Length of a node's IPv4 range.
    pub node_mask_v4: u8,
    /// Length of a node's IPv6 range.
    pub node_mask_v6: u8,
    /// The ranges of Service addresses, which no node may get.
    pub service_cidrs: Vec<IpNet>,
    /// A node whose lease and status are older than this is no longer trusted to be alive.
    pub node_monitor_grace: Duration,
    /// The same for a node that never reported.
    pub node_startup_grace: Duration,
    /// Nodes per second whose pods are moved away, in each zone.
    pub node_eviction_rate: f64,
    /// The same in a large zone of which much is down.
    pub node_slow_eviction_rate: f64,
    /// A zone of more nodes is large; in a smaller one of which much is down nothing is moved.
    pub large_zone: usize,
    /// Share of nodes from which much of a zone is down.
    pub unhealthy_zone_threshold: f64,
    /// How long a node may be missing before its pods go.
    pub orphan_quarantine: Duration,
    /// Finished pods beyond this number are deleted, the oldest first. Zero: never.
    pub terminated_pod_threshold: usize,
}

impl Default for ControllerManagerConfig {
    fn default() -> Self {
        Self {
            disabled: BTreeSet::new(),
            clients: None,
            root_ca: None,
            authority: None,
            longest_certificate: Duration::from_secs(365 * 24 * 3600),
            reserved_names: Vec::new(),
            reserved_addresses: Vec::new(),
            cloud_addresses: None,
            cluster_cidrs: Vec::new(),
            node_mask_v4: 24,
            node_mask_v6: 64,
            service_cidrs: Vec::new(),
            node_monitor_grace: Duration::from_secs(50),
            node_startup_grace: Duration::from_secs(60),
            node_eviction_rate: 0.1,
            node_slow_eviction_rate: 0.01,
            large_zone: 50,
            unhealthy_zone_threshold: 0.55,
            orphan_quarantine: Duration::from_secs(40),
            terminated_pod_threshold: 12_500,
        }
    }
}
