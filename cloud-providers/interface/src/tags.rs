//! Marks of ownership: how a resource is known to be ours, and whose.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A cluster's unique id in all clouds: the UID of its `Cluster` object, or what the operator configured.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub String);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kinds of cloud resources that Minato makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the kinds, by name")]
pub enum ResourceKind {
    LoadBalancer,
    TargetGroup,
    Listener,
    SecurityGroup,
    FloatingIp,
    Route,
    Instance,
    Network,
    Subnet,
    Image,
}

/// The tags on every resource that Minato makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerTags {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Kind of the object it is for: `Service`, `Node`, `NodePool`, `Cluster`.
    pub owner_kind: String,
    /// Namespace and name of that object, for people.
    pub owner_name: String,
    /// UID of that object, for machines.
    pub owner_uid: String,
}

impl OwnerTags {
    /// Tag key of the cluster id.
    pub const CLUSTER: &'static str = "minato.dev/cluster";
    /// Tag key of the owner's kind.
    pub const OWNER_KIND: &'static str = "minato.dev/owner-kind";
    /// Tag key of the owner's name.
    pub const OWNER_NAME: &'static str = "minato.dev/owner-name";
    /// Tag key of the owner's UID.
    pub const OWNER_UID: &'static str = "minato.dev/owner-uid";

    /// As key/value pairs.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (Self::CLUSTER.to_owned(), self.cluster.0.clone()),
            (Self::OWNER_KIND.to_owned(), self.owner_kind.clone()),
            (Self::OWNER_NAME.to_owned(), self.owner_name.clone()),
            (Self::OWNER_UID.to_owned(), self.owner_uid.clone()),
        ])
    }

    /// From key/value pairs; `None` unless all four are there.
    pub fn from_map(tags: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            cluster: ClusterId(tags.get(Self::CLUSTER)?.clone()),
            owner_kind: tags.get(Self::OWNER_KIND)?.clone(),
            owner_name: tags.get(Self::OWNER_NAME)?.clone(),
            owner_uid: tags.get(Self::OWNER_UID)?.clone(),
        })
    }
}

/// A resource found by its tags.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnedResource {
    /// What it is.
    pub kind: ResourceKind,
    /// The cloud's id of it.
    pub id: String,
    /// Whose it is.
    pub tags: OwnerTags,
}
