//! The kinds of the management API: `fleet.minato.dev/v1beta1`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::k8s::core::v1::Taint;
use crate::meta_v1::{Condition, ObjectMeta, Time};

/// The group of the management kinds.
pub const GROUP: &str = "fleet.minato.dev";
/// Their version.
pub const VERSION: &str = "v1beta1";
/// `apiVersion` of the management kinds.
pub const API_VERSION: &str = "fleet.minato.dev/v1beta1";
/// Holds a cluster back until its machines, cloud resources and files are gone.
pub const FINALIZER: &str = "fleet.minato.dev/teardown";
/// Type of the Secret that holds a cluster's admin kubeconfig under [`KUBECONFIG_KEY`].
pub const KUBECONFIG_SECRET_TYPE: &str = "fleet.minato.dev/kubeconfig";
/// Key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// Label on everything that belongs to a cluster.
pub const CLUSTER_LABEL: &str = "fleet.minato.dev/cluster";
/// Label on Nodes: the pool that they belong to.
pub const POOL_LABEL: &str = "fleet.minato.dev/node-pool";

macro_rules! management_kind {
    ($(#[$doc:meta])* $kind:ident, $plural:literal, $spec:ident, $status:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            /// Always [`API_VERSION`].
            #[serde(default)]
            pub api_version: String,
            /// The kind's name.
            #[serde(default)]
            pub kind: String,
            /// Standard metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What is observed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $kind {
            /// An object with its type names set.
            pub fn new(metadata: ObjectMeta, spec: $spec) -> Self {
                Self {
                    api_version: API_VERSION.to_owned(),
                    kind: stringify!($kind).to_owned(),
                    metadata,
                    spec,
                    status: None,
                }
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;
            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                VERSION.into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

management_kind! {
    /// A tenant's cluster: its control plane, hosted here.
    Cluster, "clusters", ClusterSpec, ClusterStatus
}
management_kind! {
    /// A group of alike worker nodes of one cluster.
    NodePool, "nodepools", NodePoolSpec, NodePoolStatus
}

/// What is wanted of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Kubernetes minor version, such as `1.36`.
    #[serde(default)]
    pub version: String,
    /// Hosting of the control plane.
    #[serde(default)]
    pub control_plane: ControlPlaneSpec,
    /// Addresses and names inside the cluster.
    #[serde(default)]
    pub network: NetworkSpec,
    /// The cloud that its nodes live in.
    #[serde(default)]
    pub cloud: CloudSpec,
    /// Refuses deletion while true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_protection: bool,
}

/// How a control plane is hosted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneSpec {
    /// Back end of the hosting; `process` is the default and the only one yet.
    #[serde(default)]
    pub hosting: String,
    /// Back end of the store: `embedded` or `etcd`.
    #[serde(default)]
    pub store: String,
}

/// Addresses and names inside a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// Range of pod addresses; each node takes a /24 of it.
    #[serde(default, rename = "podCIDR")]
    pub pod_cidr: String,
    /// Range of Service addresses.
    #[serde(default, rename = "serviceCIDR")]
    pub service_cidr: String,
    /// DNS domain.
    #[serde(default)]
    pub dns_domain: String,
}

/// The cloud of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudSpec {
    /// Provider name, such as `mock`.
    #[serde(default)]
    pub provider: String,
}

/// What is observed of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `Provisioning`, `Ready`, `Degraded` or `Deleting`, for people; programs read the conditions.
    #[serde(default)]
    pub phase: String,
    /// The version that runs.
    #[serde(default)]
    pub version: String,
    /// Where the API server is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Name of the Secret with the admin kubeconfig.
    #[serde(default)]
    pub kubeconfig_secret: String,
    /// Conditions: `Ready`, `ControlPlaneAvailable`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Generation that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Where a cluster's API server is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Host for clients.
    pub host: String,
    /// Port for clients.
    pub port: u16,
    /// Host for the cluster's nodes.
    pub node_host: String,
    /// Port for the cluster's nodes.
    pub node_port: u16,
}

/// What is wanted of a node pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Name of the Cluster, in the same namespace. Cannot change.
    pub cluster_name: String,
    /// Number of nodes.
    #[serde(default)]
    pub replicas: i32,
    /// Instance type or flavor.
    #[serde(default)]
    pub instance_type: String,
    /// Zone; empty for any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Image; empty for the provider's default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// What is observed of a node pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Machines that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Nodes that are Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Label selector of the pool's Nodes, for the scale subresource.
    #[serde(default)]
    pub selector: String,
    /// The machines, each written here before the cloud is asked for it: after a crash nothing is made twice.
    #[serde(default)]
    pub machines: Vec<MachineRecord>,
    /// Conditions: `Ready`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Generation that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
}

/// A machine of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRecord {
    /// Host name, name of the Node, and client token of the creating call.
    pub name: String,
    /// The cloud's id of it, once known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// What is being done.
    pub phase: MachinePhase,
    /// When the phase began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The life of a machine of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MachinePhase {
    /// To be made, or being made: the cloud may or may not know it.
    #[default]
    Creating,
    /// The cloud has it.
    Created,
    /// Its pods are being evicted.
    Draining,
    /// The cloud has been, or is to be, told to terminate it.
    Deleting,
}
