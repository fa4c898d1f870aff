//! Identifiers that travel together: group, version, kind, resource, revision.

use std::fmt;

use serde::{Deserialize, Serialize};

/// API group and version, printed as in `apiVersion` (`v1`, `apps/v1`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupVersion {
    /// API group; empty for the legacy core group.
    pub group: String,
    /// Version inside the group, such as `v1`.
    pub version: String,
}

impl GroupVersion {
    /// A group and version from their parts.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Parses an `apiVersion` string. `None` when it has more than one slash or an empty version.
    pub fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            None if !api_version.is_empty() => Some(Self::new("", api_version)),
            Some((group, version)) if !group.is_empty() && !version.is_empty() && !version.contains('/') => {
                Some(Self::new(group, version))
            }
            _ => None,
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// API group and kind; printed as upstream prints it in messages (`Deployment.apps`, `Pod`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKind {
    /// API group; empty for core.
    pub group: String,
    /// Kind in CamelCase.
    pub kind: String,
}

/// API group and plural resource name; printed as `deployments.apps` or `pods`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupResource {
    /// API group; empty for core.
    pub group: String,
    /// Plural lower-case resource name.
    pub resource: String,
}

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupVersionKind {
    /// API group; empty for core.
    pub group: String,
    /// Version inside the group.
    pub version: String,
    /// Kind in CamelCase.
    pub kind: String,
}

/// Group, version and plural resource name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupVersionResource {
    /// API group; empty for core.
    pub group: String,
    /// Version inside the group.
    pub version: String,
    /// Plural lower-case resource name.
    pub resource: String,
}

macro_rules! dotted_display {
    ($type:ty, $field:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.group.is_empty() {
                    f.write_str(&self.$field)
                } else {
                    write!(f, "{}.{}", self.$field, self.group)
                }
            }
        }
    };
}
dotted_display!(GroupKind, kind);
dotted_display!(GroupResource, resource);

impl GroupKind {
    /// A group and kind from their parts.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }
}

impl GroupResource {
    /// A group and resource from their parts.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl GroupVersionKind {
    /// A group, version and kind from their parts.
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }
    /// Drops the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.group, &self.kind)
    }
    /// Drops the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }
}

impl GroupVersionResource {
    /// A group, version and resource from their parts.
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }
    /// Drops the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.resource)
    }
    /// Drops the resource.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }
}

/// A point in a store's history. One sequence per cluster, strictly growing; what clients see as `resourceVersion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
