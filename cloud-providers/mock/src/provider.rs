//! The provider interface over any [`Endpoint`].

use std::sync::Arc;

use async_trait::async_trait;
use minato_provider_interface::{
    CloudError, CloudErrorKind, CloudProvider, ClusterId, Existence, InstanceMetadata, Instances, LoadBalancerSpec,
    LoadBalancerStatus, LoadBalancers, Machine, MachineSpec, Machines, NodeRef, OwnedResource, OwnerTags, ProviderId,
    Route, Routes,
};

use crate::call::{Call, Endpoint, Reply, WireError};

/// The mock cloud as seen by one cluster.
#[derive(Clone)]
pub struct MockProvider {
    endpoint: Arc<dyn Endpoint>,
    cluster: ClusterId,
}

impl MockProvider {
    /// A provider that sends its calls to `endpoint`.
    pub fn new(endpoint: Arc<dyn Endpoint>, cluster: ClusterId) -> Self {
        Self { endpoint, cluster }
    }

    /// Carries out any call, also those that are outside the provider interface (console actions, endpoints).
    ///
    /// # Errors
    /// What the cloud says.
    pub async fn call(&self, call: Call) -> Result<Reply, CloudError> {
        self.endpoint.call(&self.cluster, call).await
    }
}

fn unexpected(what: &str) -> CloudError {
    CloudError::new(
        CloudErrorKind::Transient,
        format!("the mock cloud answered {what} with another call's reply"),
    )
}

macro_rules! ask {
    ($self:ident, $call:expr, $pattern:pat => $value:expr) => {{
        let call = $call;
        let name = call.name();
        match $self.call(call).await? {
            $pattern => Ok($value),
            _ => Err(unexpected(name)),
        }
    }};
}

fn unwire<T>(results: Vec<Result<T, WireError>>) -> Vec<Result<T, CloudError>> {
    results.into_iter().map(|r| r.map_err(CloudError::from)).collect()
}

#[async_trait]
impl CloudProvider for MockProvider {
    fn name(&self) -> &str {
        "mock"
    }
    fn cluster_id(&self) -> &ClusterId {
        &self.cluster
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }
    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
    async fn owned_resources(&self) -> Result<Vec<OwnedResource>, CloudError> {
        ask!(self, Call::OwnedResources, Reply::Resources(list) => list)
    }
    async fn delete_owned(&self, resource: &OwnedResource) -> Result<(), CloudError> {
        ask!(self, Call::DeleteOwned { resource: resource.clone() }, Reply::Done => ())
    }
}

#[async_trait]
impl Instances for MockProvider {
    async fn existence(&self, nodes: &[NodeRef]) -> Result<Vec<Result<Existence, CloudError>>, CloudError> {
        ask!(self, Call::Existence { nodes: nodes.to_vec() }, Reply::Existence(list) => unwire(list))
    }
    async fn is_shutdown(&self, node: &NodeRef) -> Result<bool, CloudError> {
        ask!(self, Call::IsShutdown { node: node.clone() }, Reply::Shutdown(is) => is)
    }
    async fn metadata(
        &self,
        nodes: &[NodeRef],
    ) -> Result<Vec<Result<Option<InstanceMetadata>, CloudError>>, CloudError> {
        ask!(self, Call::Metadata { nodes: nodes.to_vec() }, Reply::Metadata(list) => unwire(list))
    }
}

#[async_trait]
impl Routes for MockProvider {
    async fn list(&self) -> Result<Vec<Route>, CloudError> {
        ask!(self, Call::ListRoutes, Reply::Routes(list) => list)
    }
    async fn change(&self, create: &[Route], delete: &[Route]) -> Result<Vec<Result<(), CloudError>>, CloudError> {
        let call = Call::ChangeRoutes {
            create: create.to_vec(),
            delete: delete.to_vec(),
        };
        ask!(self, call, Reply::RouteResults(list) => unwire(list))
    }
}

#[async_trait]
impl LoadBalancers for MockProvider {
    async fn get(&self, owner: &OwnerTags) -> Result<Option<LoadBalancerStatus>, CloudError> {
        ask!(self, Call::GetLoadBalancer { owner: owner.clone() }, Reply::LoadBalancer(status) => status)
    }
    async fn ensure(&self, spec: &LoadBalancerSpec) -> Result<LoadBalancerStatus, CloudError> {
        ask!(self, Call::EnsureLoadBalancer { spec: spec.clone() }, Reply::LoadBalancer(Some(status)) => status)
    }
    async fn update_members(&self, spec: &LoadBalancerSpec) -> Result<(), CloudError> {
        ask!(self, Call::UpdateMembers { spec: spec.clone() }, Reply::Done => ())
    }
    async fn ensure_deleted(&self, owner: &OwnerTags) -> Result<(), CloudError> {
        ask!(self, Call::DeleteLoadBalancer { owner: owner.clone() }, Reply::Done => ())
    }
}

#[async_trait]
impl Machines for MockProvider {
    async fn create(&self, spec: &MachineSpec) -> Result<Machine, CloudError> {
        ask!(self, Call::CreateMachine { spec: spec.clone() }, Reply::Machine(machine) => machine)
    }
    async fn list(&self, owner: &OwnerTags) -> Result<Vec<Machine>, CloudError> {
        ask!(self, Call::ListMachines { owner: owner.clone() }, Reply::Machines(list) => list)
    }
    async fn terminate(&self, id: &ProviderId) -> Result<(), CloudError> {
        ask!(self, Call::TerminateMachine { id: id.clone() }, Reply::Done => ())
    }
}
