//! What a machine is told at first boot, as user data: where its cluster is and how to join it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::k8s::core::v1::Taint;

/// The user data of a worker node, as YAML or JSON. Holds a join credential: never log it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeConfig {
    /// Always [`NodeConfig::API_VERSION`].
    pub api_version: String,
    /// Name of the cluster, for logs.
    pub cluster_name: String,
    /// URL of the API server as the node reaches it.
    pub api_server: String,
    /// The cluster's CA certificate, PEM.
    pub certificate_authority: String,
    /// Bootstrap token, `<id>.<secret>`.
    pub bootstrap_token: String,
    /// Addresses that pods use as name servers.
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// The range of all pods, for masquerading.
    pub cluster_cidr: String,
    /// The range of Service addresses.
    pub service_cidr: String,
    /// Name of the cloud provider whose controller manager initializes the node; empty for none.
    #[serde(default)]
    pub cloud_provider: String,
    /// Labels that the node registers with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints that the node registers with.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

impl NodeConfig {
    /// The version of this format.
    pub const API_VERSION: &'static str = "node.minato.dev/v1beta1";
}

impl std::fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeConfig")
            .field("cluster_name", &self.cluster_name)
            .field("api_server", &self.api_server)
            .finish_non_exhaustive()
    }
}
