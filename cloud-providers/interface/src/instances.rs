//! Instances as the node and node lifecycle controllers see them.
//! Behaviour: <https://kubernetes.io/docs/concepts/architecture/cloud-controller/>.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CloudError, ProviderId};

/// The facts of a Node by which a provider finds its instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeRef {
    /// `metadata.name`.
    pub name: String,
    /// `spec.providerID`, when set. A provider uses it if it is there, and never falls back to the name when the id is
    /// well-formed and unknown: a new machine may have taken the name.
    pub provider_id: Option<ProviderId>,
}

/// Whether an instance is there. Doubt is an answer of its own, and leaves the Node alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existence {
    /// Running, stopped, being made, or shutting down.
    Exists,
    /// Positive evidence of absence: unknown by id, or in a final state.
    Gone,
    /// The name matches nothing and the machine may not be resolvable by name yet.
    Unknown,
}

/// Type of a node address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the address types of the Node API, by name")]
pub enum AddressType {
    Hostname,
    InternalIP,
    ExternalIP,
    InternalDNS,
    ExternalDNS,
}

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Its type.
    pub address_type: AddressType,
    /// The address or name.
    pub address: String,
}

/// What the cloud knows of an instance, from one logical read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceMetadata {
    /// The id to write to `spec.providerID`.
    pub provider_id: ProviderId,
    /// Instance type or flavor.
    pub instance_type: String,
    /// Addresses in a stable order.
    pub addresses: Vec<NodeAddress>,
    /// Zone, empty when the cloud has none.
    pub zone: String,
    /// Region, empty when the cloud has none.
    pub region: String,
    /// Further labels for the Node, outside `kubernetes.io` and `k8s.io`.
    pub labels: BTreeMap<String, String>,
}

/// Looks up instances for Nodes.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Whether each node's instance exists, in the order asked. One failing look-up fails only its own entry.
    ///
    /// # Errors
    /// The call as a whole failed (outage, credentials): nothing is known about any node.
    async fn existence(&self, nodes: &[NodeRef]) -> Result<Vec<Result<Existence, CloudError>>, CloudError>;

    /// Whether the instance exists, is powered off, and will not come back by itself.
    ///
    /// # Errors
    /// `NotFound` when there is no such instance.
    async fn is_shutdown(&self, node: &NodeRef) -> Result<bool, CloudError>;

    /// The instances' metadata, in the order asked; `Ok(None)` where the node is not this provider's.
    ///
    /// # Errors
    /// As for [`Instances::existence`].
    async fn metadata(
        &self,
        nodes: &[NodeRef],
    ) -> Result<Vec<Result<Option<InstanceMetadata>, CloudError>>, CloudError>;
}
