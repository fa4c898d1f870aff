//! Requests and replies: the wire protocol of the mock cloud, its call log, and what faults are aimed at.

use async_trait::async_trait;
use minato_provider_interface::{
    CloudError, CloudErrorKind, ClusterId, Existence, InstanceMetadata, LoadBalancerSpec, LoadBalancerStatus, Machine,
    MachineSpec, NodeRef, OwnedResource, OwnerTags, ProviderId, Route,
};
use serde::{Deserialize, Serialize};

/// One request. The names are those of the provider interface.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is documented at the interface method of its name")]
pub enum Call {
    Existence {
        nodes: Vec<NodeRef>,
    },
    IsShutdown {
        node: NodeRef,
    },
    Metadata {
        nodes: Vec<NodeRef>,
    },
    ListRoutes,
    ChangeRoutes {
        create: Vec<Route>,
        delete: Vec<Route>,
    },
    GetLoadBalancer {
        owner: OwnerTags,
    },
    EnsureLoadBalancer {
        spec: LoadBalancerSpec,
    },
    UpdateMembers {
        spec: LoadBalancerSpec,
    },
    DeleteLoadBalancer {
        owner: OwnerTags,
    },
    CreateMachine {
        spec: MachineSpec,
    },
    ListMachines {
        owner: OwnerTags,
    },
    TerminateMachine {
        id: ProviderId,
    },
    /// Powers a machine off; what a person in the console does.
    StopMachine {
        id: ProviderId,
    },
    /// Powers a machine on again.
    StartMachine {
        id: ProviderId,
    },
    OwnedResources,
    DeleteOwned {
        resource: OwnedResource,
    },
    /// Makes a control plane's loopback port reachable from the instances' network, as a provider's network would.
    ExposeEndpoint {
        owner: OwnerTags,
        port: u16,
        backend: std::net::SocketAddr,
    },
    /// Takes an exposed endpoint away again.
    UnexposeEndpoint {
        owner: OwnerTags,
    },
}

impl Call {
    /// The variant's name, for logs, budgets and fault plans.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Existence { .. } => "existence",
            Self::IsShutdown { .. } => "isShutdown",
            Self::Metadata { .. } => "metadata",
            Self::ListRoutes => "listRoutes",
            Self::ChangeRoutes { .. } => "changeRoutes",
            Self::GetLoadBalancer { .. } => "getLoadBalancer",
            Self::EnsureLoadBalancer { .. } => "ensureLoadBalancer",
            Self::UpdateMembers { .. } => "updateMembers",
            Self::DeleteLoadBalancer { .. } => "deleteLoadBalancer",
            Self::CreateMachine { .. } => "createMachine",
            Self::ListMachines { .. } => "listMachines",
            Self::TerminateMachine { .. } => "terminateMachine",
            Self::StopMachine { .. } => "stopMachine",
            Self::StartMachine { .. } => "startMachine",
            Self::OwnedResources => "ownedResources",
            Self::DeleteOwned { .. } => "deleteOwned",
            Self::ExposeEndpoint { .. } => "exposeEndpoint",
            Self::UnexposeEndpoint { .. } => "unexposeEndpoint",
        }
    }
}

/// A successful answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each carries what the interface method returns")]
pub enum Reply {
    Done,
    Existence(Vec<Result<Existence, WireError>>),
    Shutdown(bool),
    Metadata(Vec<Result<Option<InstanceMetadata>, WireError>>),
    Routes(Vec<Route>),
    RouteResults(Vec<Result<(), WireError>>),
    LoadBalancer(Option<LoadBalancerStatus>),
    Machine(Machine),
    Machines(Vec<Machine>),
    Resources(Vec<OwnedResource>),
    /// Host and port under which instances reach an exposed endpoint.
    Endpoint {
        host: String,
        port: u16,
    },
}

/// A [`CloudError`] on the wire.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireError {
    /// Name of the kind.
    pub kind: String,
    /// Text.
    pub message: String,
    /// Milliseconds to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

const KINDS: &[(CloudErrorKind, &str)] = &[
    (CloudErrorKind::NotFound, "NotFound"),
    (CloudErrorKind::AlreadyExists, "AlreadyExists"),
    (CloudErrorKind::Throttled, "Throttled"),
    (CloudErrorKind::InProgress, "InProgress"),
    (CloudErrorKind::QuotaExceeded, "QuotaExceeded"),
    (CloudErrorKind::Unauthorized, "Unauthorized"),
    (CloudErrorKind::Invalid, "Invalid"),
    (CloudErrorKind::Conflict, "Conflict"),
    (CloudErrorKind::Transient, "Transient"),
    (CloudErrorKind::Unsupported, "Unsupported"),
];

impl From<CloudError> for WireError {
    fn from(error: CloudError) -> Self {
        let kind = KINDS
            .iter()
            .find(|(k, _)| *k == error.kind())
            .map_or("Transient", |(_, name)| name);
        Self {
            kind: kind.to_owned(),
            message: error.to_string(),
            retry_after_ms: error
                .retry_after()
                .map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl From<WireError> for CloudError {
    fn from(wire: WireError) -> Self {
        // A kind from a newer server is treated as transient: retried, and never taken for absence.
        let kind = KINDS
            .iter()
            .find(|(_, name)| *name == wire.kind)
            .map_or(CloudErrorKind::Transient, |(k, _)| *k);
        let error = Self::new(kind, wire.message);
        match wire.retry_after_ms {
            Some(ms) => error.after(std::time::Duration::from_millis(ms)),
            None => error,
        }
    }
}

/// Anything that answers calls on behalf of a cluster.
#[async_trait]
pub trait Endpoint: Send + Sync + 'static {
    /// Carries out one call.
    ///
    /// # Errors
    /// What the cloud says.
    async fn call(&self, cluster: &ClusterId, call: Call) -> Result<Reply, CloudError>;
}
