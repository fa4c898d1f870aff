//! Routes from the cloud's network to the nodes' pod CIDRs.

use std::net::IpAddr;

use async_trait::async_trait;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{CloudError, ProviderId};

/// One route of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The pod CIDR.
    pub destination: IpNet,
    /// The instance it leads to; `None` for a route whose target is gone (a blackhole).
    pub target: Option<ProviderId>,
    /// Node name, for the resource's name and for people.
    pub node_name: String,
    /// The node's UID, for the ownership tag.
    pub node_uid: String,
    /// Addresses of the node, for clouds whose next hop is an address.
    pub next_hops: Vec<IpAddr>,
}

/// Lists and changes routes.
#[async_trait]
pub trait Routes: Send + Sync {
    /// The cluster's own routes; never anybody else's.
    ///
    /// # Errors
    /// The list could not be read in full.
    async fn list(&self) -> Result<Vec<Route>, CloudError>;

    /// Removes `delete`, then adds `create`, in as few calls as the cloud allows. Returns one result per created route,
    /// in order. A route that exists as asked, and a deleted one that is gone, are successes.
    ///
    /// # Errors
    /// The deletions failed, or the call as a whole.
    async fn change(&self, create: &[Route], delete: &[Route]) -> Result<Vec<Result<(), CloudError>>, CloudError>;
}
