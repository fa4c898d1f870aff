//! What an embedder decides about the controllers.

use std::collections::BTreeSet;
use std::time::Duration;

use ipnet::IpNet;

/// Settings of one controller manager. The defaults are upstream's.
#[derive(Clone)]
pub struct ControllerManagerConfig {
    /// Controllers that do not run, by name; see [`crate::ControllerManager::names`].
    pub disabled: BTreeSet<String>,
    /// Certificates, PEM, that pods trust the API server by; without them `kube-root-ca.crt` is not published.
    pub root_ca: Option<String>,
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
    /// Finished pods beyond this number are deleted, the oldest first. Zero: never.
    pub terminated_pod_threshold: usize,
}

impl Default for ControllerManagerConfig {
    fn default() -> Self {
        Self {
            disabled: BTreeSet::new(),
            root_ca: None,
            cluster_cidrs: Vec::new(),
            node_mask_v4: 24,
            node_mask_v6: 64,
            service_cidrs: Vec::new(),
            node_monitor_grace: Duration::from_secs(40),
            node_startup_grace: Duration::from_secs(60),
            terminated_pod_threshold: 12_500,
        }
    }
}
