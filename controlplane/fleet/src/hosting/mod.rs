//! Where control planes run. One back end yet: a process of its own per tenant.

mod etcd;
mod identity;
mod process;

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;
use minato_pki::{ClusterPki, PkiError};

use crate::process::ProcessError;

pub use etcd::{EtcdHosting, EtcdHostingConfig};
pub use process::{ProcessHosting, ProcessHostingConfig};

/// Why a control plane could not be hosted.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    /// A process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Keys and certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A file or directory.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The provider's etcd.
    #[error("etcd: {0}")]
    Etcd(String),
    /// No user number or port is free.
    #[error("no {0} is left for another control plane")]
    Exhausted(&'static str),
}

/// What is hosted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// UID of the Cluster: names everything of it.
    pub id: String,
    /// Name of the Cluster, for certificates and logs.
    pub name: String,
    /// Where its nodes reach it.
    pub advertise: SocketAddr,
    /// Range of Service addresses.
    pub service_cidr: IpNet,
    /// Range of pod addresses.
    pub cluster_cidr: IpNet,
    /// DNS domain.
    pub dns_domain: String,
    /// Whether its objects are kept in the provider's etcd, and not in a file of its own.
    pub in_etcd: bool,
    /// What its cloud controller manager proves itself to the cloud with.
    pub cloud_credential: String,
}

/// What became of [`Hosting::ensure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosted {
    /// It runs; whether it is ready is for its `/readyz` to say.
    Running,
    /// It keeps ending, and is started again after this time.
    Restarting(Duration),
}

/// Gets the id of a control plane that ended.
pub type EndHandler = Box<dyn Fn(&str) + Send + Sync>;

/// A way of hosting control planes. All calls may be repeated.
#[async_trait]
pub trait Hosting: Send + Sync + 'static {
    /// Where clients on this machine reach the API server; the same for the life of the cluster.
    ///
    /// # Errors
    /// See [`HostingError`].
    fn address(&self, id: &str) -> Result<SocketAddr, HostingError>;

    /// The cluster's authorities, made if they are not there yet.
    ///
    /// # Errors
    /// See [`HostingError`].
    fn pki(&self, id: &str, name: &str) -> Result<ClusterPki, HostingError>;

    /// Runs the control plane with these settings, restarting it when they changed.
    ///
    /// # Errors
    /// See [`HostingError`].
    async fn ensure(&self, tenant: &Tenant) -> Result<Hosted, HostingError>;

    /// Stops it; its data stays.
    ///
    /// # Errors
    /// See [`HostingError`].
    async fn stop(&self, id: &str) -> Result<(), HostingError>;

    /// Stops it and removes all that is left of it.
    ///
    /// # Errors
    /// See [`HostingError`].
    async fn remove(&self, id: &str) -> Result<(), HostingError>;

    /// Calls `handler` with the id of every control plane that ends from now on.
    fn on_end(&self, handler: EndHandler);
}
