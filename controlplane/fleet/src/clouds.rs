//! What the management plane needs of clouds beyond the provider interface. The binary knows the providers.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use minato_provider_interface::{CloudError, CloudProvider, ClusterId, OwnerTags};

/// The clouds that clusters may live in, by name.
#[async_trait]
pub trait Clouds: Send + Sync + 'static {
    /// The provider of that name, on behalf of a cluster.
    ///
    /// # Errors
    /// There is no such provider.
    fn provider(&self, name: &str, cluster: &ClusterId) -> Result<Arc<dyn CloudProvider>, CloudError>;

    /// What the cluster's own control plane proves itself to the cloud with.
    ///
    /// # Errors
    /// There is no such provider.
    fn credential(&self, name: &str, cluster: &ClusterId) -> Result<String, CloudError>;

    /// Makes a control plane that listens at `backend` on this machine reachable from its nodes; returns where. May be
    /// repeated.
    ///
    /// # Errors
    /// What the cloud says.
    async fn expose(&self, name: &str, owner: &OwnerTags, backend: SocketAddr) -> Result<SocketAddr, CloudError>;

    /// Takes that away again.
    ///
    /// # Errors
    /// What the cloud says.
    async fn unexpose(&self, name: &str, owner: &OwnerTags) -> Result<(), CloudError>;
}
