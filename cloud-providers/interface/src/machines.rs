//! Instances as node pools make them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CloudError, NodeAddress, OwnerTags, ProviderId};

/// A machine to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// Whose it is; `owner_uid` is the NodePool's UID.
    pub owner: OwnerTags,
    /// Host name, and name of the Node; unique within the cluster.
    pub name: String,
    /// Makes a repeated creation return the first machine. At most 64 characters.
    pub client_token: String,
    /// Instance type or flavor.
    pub instance_type: String,
    /// Image id or name; empty for the provider's default node image.
    pub image: String,
    /// Zone, empty for any.
    pub zone: String,
    /// First-boot data, handed to the machine through the cloud's metadata service. Holds a join credential: never log.
    pub user_data: String,
    /// Further tags.
    pub tags: BTreeMap<String, String>,
}

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the states, by name")]
pub enum MachineState {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
}

/// A machine as the cloud reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its provider id.
    pub provider_id: ProviderId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: MachineState,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Addresses.
    pub addresses: Vec<NodeAddress>,
    /// Whose it is.
    pub owner: OwnerTags,
}

/// Creates, lists and terminates machines of node pools.
#[async_trait]
pub trait Machines: Send + Sync {
    /// Creates a machine, or returns the one that the same client token made before.
    ///
    /// # Errors
    /// `QuotaExceeded`, `Invalid` for an unknown type, image or zone, and the general ones.
    async fn create(&self, spec: &MachineSpec) -> Result<Machine, CloudError>;

    /// All machines of an owner (a node pool), terminated ones left out.
    ///
    /// # Errors
    /// The list could not be read in full.
    async fn list(&self, owner: &OwnerTags) -> Result<Vec<Machine>, CloudError>;

    /// Terminates a machine of this cluster; one that is gone is a success.
    ///
    /// # Errors
    /// `Invalid` when the machine carries another cluster's tags, or none.
    async fn terminate(&self, id: &ProviderId) -> Result<(), CloudError>;
}
