//! What Minato asks of a cloud, and nothing about any particular one.
//!
//! A provider is one value behind [`CloudProvider`]. Each area of work is a capability of its own trait; a provider
//! that lacks one returns `None`, and whatever needs it is skipped with a warning. The cloud controller manager uses
//! [`Instances`], [`Routes`] and [`LoadBalancers`]; node pools use [`Machines`].
//!
//! Two rules bind every implementation:
//! - **Every call may be repeated.** Creating what exists as asked, and deleting what is gone, succeed. Creation takes a
//!   client token or a name derived from the owner, so that a reply lost on the way makes no second resource.
//! - **Everything made carries [`OwnerTags`] in the creating call itself**, and is found and removed by them alone.
//!
//! Errors are [`CloudError`] values and callers branch on [`CloudErrorKind`] only: above all, only
//! [`CloudErrorKind::NotFound`] means that something is gone. May depend on: serde, async-trait. Nothing of ours.

mod error;
mod instances;
mod load_balancers;
mod machines;
mod routes;
mod tags;

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use error::{CloudError, CloudErrorKind};
pub use instances::{AddressType, Existence, InstanceMetadata, Instances, NodeAddress, NodeRef};
pub use load_balancers::{
    HealthCheck, Ingress, IpMode, LoadBalancerPort, LoadBalancerSpec, LoadBalancerStatus, LoadBalancers, PortStatus,
    Protocol,
};
pub use machines::{Machine, MachineSpec, MachineState, Machines};
pub use routes::{Route, Routes};
pub use tags::{ClusterId, OwnedResource, OwnerTags, ResourceKind};

/// The `spec.providerID` of a Node: `<scheme>://<rest>`. The scheme is the provider's name; only the provider reads the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderId(String);

impl ProviderId {
    /// Wraps a full id such as `mock:///zone-a/i-1`.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }
    /// The full id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// What follows `<scheme>://`, when the scheme is `scheme`.
    pub fn strip_scheme(&self, scheme: &str) -> Option<&str> {
        self.0.strip_prefix(scheme)?.strip_prefix("://")
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ProviderId {
    type Err = CloudError;
    fn from_str(s: &str) -> Result<Self, CloudError> {
        match s.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Ok(Self::new(s)),
            _ => Err(CloudError::new(
                CloudErrorKind::Invalid,
                format!("{s:?} is not a provider id (<scheme>://<id>)"),
            )),
        }
    }
}

/// One cloud account, region and network, as seen on behalf of one cluster.
#[async_trait]
pub trait CloudProvider: Send + Sync + 'static {
    /// The provider's name, which is the scheme of its provider ids: `aws`, `openstack`, `mock`.
    fn name(&self) -> &str;

    /// The cluster on whose behalf this provider value works; part of every ownership tag.
    fn cluster_id(&self) -> &ClusterId;

    /// Instances as the node controllers see them.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }
    /// Routes to pod CIDRs.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
    /// Load balancers for Services.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }
    /// Creating and terminating instances for node pools.
    fn machines(&self) -> Option<&dyn Machines> {
        None
    }

    /// Everything that carries this cluster's ownership tags, whatever its kind: what a sweep compares with what is
    /// wanted, and what must be empty at the end of a teardown.
    ///
    /// # Errors
    /// The list could not be read in full; a partial list is never returned.
    async fn owned_resources(&self) -> Result<Vec<OwnedResource>, CloudError>;

    /// Deletes one owned resource (and what depends on it). Refuses anything without this cluster's tags.
    ///
    /// # Errors
    /// [`CloudErrorKind::Invalid`] when the resource is not this cluster's.
    async fn delete_owned(&self, resource: &OwnedResource) -> Result<(), CloudError>;
}
