//! Terraform provider of Minato: clusters and node pools of a management plane.
//!
//! ```text
//! protocol ── Minato ─┬─ minato_cluster, minato_node_pool ── managed/ (create, wait, patch, delete) ─┐
//!                     └─ minato_kubeconfig (data source, ephemeral resource) ─────────────────────────┴─ management API
//! ```
//!
//! Sees the management API alone, as any user does. May depend on: api, meta, the plug-in protocol.

mod checks;
mod cluster;
mod connection;
mod errors;
mod kubeconfig;
mod managed;
mod node_pool;
mod patch;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use minato_terraform_protocol::{
    Attribute, DataSource, Diagnostics, EphemeralResource, Object, Provider, Resource, Schema, Type,
};

use connection::Connection;
use managed::Managed;

/// The provider.
pub struct Minato {
    schema: Schema,
    connection: Arc<Connection>,
    resources: BTreeMap<&'static str, Arc<dyn Resource>>,
    data_sources: BTreeMap<&'static str, Arc<dyn DataSource>>,
    ephemeral_resources: BTreeMap<&'static str, Arc<dyn EphemeralResource>>,
}

impl Minato {
    /// A provider that is not configured yet.
    pub fn new() -> Self {
        let connection = Arc::new(Connection::default());
        let clusters: Arc<dyn Resource> = Arc::new(Managed::new(cluster::Clusters, connection.clone()));
        let pools: Arc<dyn Resource> = Arc::new(Managed::new(node_pool::NodePools, connection.clone()));
        let kubeconfigs = Arc::new(kubeconfig::Kubeconfigs::new(connection.clone()));
        Self {
            schema: schema(),
            connection,
            resources: BTreeMap::from([("minato_cluster", clusters), ("minato_node_pool", pools)]),
            data_sources: BTreeMap::from([("minato_kubeconfig", kubeconfigs.clone() as Arc<dyn DataSource>)]),
            ephemeral_resources: BTreeMap::from([("minato_kubeconfig", kubeconfigs as Arc<dyn EphemeralResource>)]),
        }
    }
}

impl Default for Minato {
    fn default() -> Self {
        Self::new()
    }
}

fn schema() -> Schema {
    let attributes = vec![
        Attribute::optional(
            "kubeconfig",
            Type::String,
            "Path of the management API's kubeconfig. Default: the environment variable MINATO_KUBECONFIG.",
        ),
        Attribute::optional(
            "context",
            Type::String,
            "Context of the kubeconfig. Default: its current one.",
        ),
        Attribute::optional(
            "namespace",
            Type::String,
            "Namespace of resources that do not name one. Default: default.",
        ),
    ];
    Schema::new("A management plane of Minato.", attributes)
}

#[async_trait]
impl Provider for Minato {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn configure(&self, config: &Object) -> Diagnostics {
        self.connection.configure(config).await
    }

    fn resources(&self) -> &BTreeMap<&'static str, Arc<dyn Resource>> {
        &self.resources
    }

    fn data_sources(&self) -> &BTreeMap<&'static str, Arc<dyn DataSource>> {
        &self.data_sources
    }

    fn ephemeral_resources(&self) -> &BTreeMap<&'static str, Arc<dyn EphemeralResource>> {
        &self.ephemeral_resources
    }

    fn stop(&self) {
        self.connection.stop();
    }
}
