//! The cloud's state and every rule of how calls change it. Synchronous and deterministic.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use minato_provider_interface::{
    AddressType, CloudError, CloudErrorKind, ClusterId, Existence, Ingress, InstanceMetadata, IpMode, LoadBalancerSpec,
    LoadBalancerStatus, Machine, MachineSpec, MachineState, NodeAddress, NodeRef, OwnedResource, OwnerTags, Protocol,
    ProviderId, ResourceKind, Route,
};
use serde::{Deserialize, Serialize};

use crate::call::{Call, Reply, WireError};

/// Scheme of the provider ids.
pub const SCHEME: &str = "mock";

/// The instance types on offer: name, vCPUs, memory in MiB.
pub const INSTANCE_TYPES: &[(&str, u32, u32)] = &[("m1.small", 1, 1024), ("m1.medium", 2, 2048), ("m1.large", 4, 4096)];

/// A virtual machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Id inside the cloud, such as `i-0000000a`.
    pub id: String,
    /// What it was made from.
    pub spec: MachineSpec,
    /// Where it is in its life.
    pub state: MachineState,
    /// Its address in the cloud's network.
    pub ip: Ipv4Addr,
    /// Zone that it was put in.
    pub zone: String,
}

impl Instance {
    /// The provider id.
    pub fn provider_id(&self) -> ProviderId {
        ProviderId::new(format!("{SCHEME}:///{}/{}", self.zone, self.id))
    }

    /// Addresses in a stable order.
    pub fn addresses(&self) -> Vec<NodeAddress> {
        vec![
            NodeAddress {
                address_type: AddressType::InternalIP,
                address: self.ip.to_string(),
            },
            NodeAddress {
                address_type: AddressType::Hostname,
                address: self.spec.name.clone(),
            },
        ]
    }

    fn machine(&self) -> Machine {
        Machine {
            provider_id: self.provider_id(),
            name: self.spec.name.clone(),
            state: self.state,
            instance_type: self.spec.instance_type.clone(),
            zone: self.zone.clone(),
            addresses: self.addresses(),
            owner: self.spec.owner.clone(),
        }
    }

    fn alive(&self) -> bool {
        self.state != MachineState::Terminated
    }
}

/// A load balancer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Id inside the cloud.
    pub id: String,
    /// Its address.
    pub vip: Ipv4Addr,
    /// What was asked for.
    pub spec: LoadBalancerSpec,
}

/// A control plane's port, made reachable from the instances' network.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExposedEndpoint {
    /// Whose.
    pub owner: OwnerTags,
    /// Port on the network's gateway address.
    pub port: u16,
    /// Where it leads.
    pub backend: SocketAddr,
}

/// All that the cloud holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudState {
    /// The network of the instances.
    pub network: Ipv4Net,
    /// Zones, used in turn.
    pub zones: Vec<String>,
    /// Region.
    pub region: String,
    /// Instances by id; terminated ones stay, as clouds keep them for a while.
    pub instances: BTreeMap<String, Instance>,
    /// Load balancers by id.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Routes by cluster and destination.
    pub routes: Vec<(ClusterId, Route)>,
    /// Exposed control planes, by cluster.
    pub endpoints: BTreeMap<ClusterId, ExposedEndpoint>,
    next_id: u64,
}

fn invalid(message: impl Into<String>) -> CloudError {
    CloudError::new(CloudErrorKind::Invalid, message)
}

impl CloudState {
    /// An empty cloud over a network of at least 512 addresses.
    ///
    /// # Errors
    /// `Invalid` when the network is too small or there is no zone.
    pub fn new(network: Ipv4Net, zones: Vec<String>, region: String) -> Result<Self, CloudError> {
        if network.prefix_len() > 23 || zones.is_empty() {
            return Err(invalid(
                "the mock cloud needs a network of /23 or larger and at least one zone",
            ));
        }
        Ok(Self {
            network,
            zones,
            region,
            instances: BTreeMap::new(),
            load_balancers: BTreeMap::new(),
            routes: Vec::new(),
            endpoints: BTreeMap::new(),
            next_id: 0,
        })
    }

    /// Address of the network's router, which is also where exposed endpoints listen.
    pub fn gateway(&self) -> Ipv4Addr {
        self.nth_address(1)
    }

    /// Address that the host itself has in the network.
    pub fn host_address(&self) -> Ipv4Addr {
        self.nth_address(2)
    }

    fn nth_address(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network.network()).saturating_add(n))
    }

    fn new_id(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        format!("{prefix}-{:08x}", self.next_id)
    }

    /// The lowest free address; instances take the lower half of the network, load balancers the upper.
    fn free_address(&self, upper_half: bool) -> Result<Ipv4Addr, CloudError> {
        let size = 1u32 << (32 - u32::from(self.network.prefix_len()));
        let taken: BTreeSet<Ipv4Addr> = self
            .instances
            .values()
            .filter(|i| i.alive())
            .map(|i| i.ip)
            .chain(self.load_balancers.values().map(|l| l.vip))
            .collect();
        let range = if upper_half { size / 2..size - 1 } else { 10..size / 2 };
        range
            .map(|n| self.nth_address(n))
            .find(|ip| !taken.contains(ip))
            .ok_or_else(|| CloudError::new(CloudErrorKind::QuotaExceeded, "the network has no free address"))
    }

    /// Carries out a call on behalf of a cluster.
    ///
    /// # Errors
    /// As the provider interface documents for each call.
    pub fn apply(&mut self, cluster: &ClusterId, call: &Call) -> Result<Reply, CloudError> {
        match call {
            Call::Existence { nodes } => Ok(Reply::Existence(
                nodes
                    .iter()
                    .map(|n| self.existence(cluster, n).map_err(WireError::from))
                    .collect(),
            )),
            Call::IsShutdown { node } => match self.find(cluster, node)? {
                Some(i) => Ok(Reply::Shutdown(i.state == MachineState::Stopped)),
                None => Err(CloudError::new(
                    CloudErrorKind::NotFound,
                    format!("no instance for node {}", node.name),
                )),
            },
            Call::Metadata { nodes } => Ok(Reply::Metadata(
                nodes
                    .iter()
                    .map(|n| self.metadata(cluster, n).map_err(WireError::from))
                    .collect(),
            )),
            Call::ListRoutes => Ok(Reply::Routes(self.list_routes(cluster))),
            Call::ChangeRoutes { create, delete } => Ok(self.change_routes(cluster, create, delete)),
            Call::GetLoadBalancer { owner } => Ok(Reply::LoadBalancer(self.lb_of(owner).map(Self::lb_status))),
            Call::EnsureLoadBalancer { spec } => self.ensure_lb(cluster, spec),
            Call::UpdateMembers { spec } => {
                let uid = &spec.owner.owner_uid;
                if let Some(lb) = self
                    .load_balancers
                    .values_mut()
                    .find(|l| l.spec.owner.owner_uid == *uid)
                {
                    lb.spec.nodes.clone_from(&spec.nodes);
                }
                Ok(Reply::Done)
            }
            Call::DeleteLoadBalancer { owner } => {
                let (cluster, uid) = (&owner.cluster, &owner.owner_uid);
                self.load_balancers
                    .retain(|_, l| l.spec.owner.cluster != *cluster || l.spec.owner.owner_uid != *uid);
                Ok(Reply::Done)
            }
            Call::CreateMachine { spec } => self.create_machine(cluster, spec),
            Call::ListMachines { owner } => Ok(Reply::Machines(
                self.instances
                    .values()
                    .filter(|i| {
                        i.alive() && i.spec.owner.cluster == owner.cluster && i.spec.owner.owner_uid == owner.owner_uid
                    })
                    .map(Instance::machine)
                    .collect(),
            )),
            Call::TerminateMachine { id } => self.transition(cluster, id, MachineState::ShuttingDown),
            Call::StopMachine { id } => self.transition(cluster, id, MachineState::Stopping),
            Call::StartMachine { id } => self.transition(cluster, id, MachineState::Pending),
            Call::OwnedResources => Ok(Reply::Resources(self.owned(cluster))),
            Call::DeleteOwned { resource } => self.delete_owned(cluster, resource),
            Call::ExposeEndpoint { owner, port, backend } => self.expose(cluster, owner, *port, *backend),
            Call::UnexposeEndpoint { owner } => {
                self.endpoints.remove(&owner.cluster);
                Ok(Reply::Done)
            }
        }
    }

    /// Looks a node's instance up: by provider id when there is one, by host name otherwise.
    fn find(&self, cluster: &ClusterId, node: &NodeRef) -> Result<Option<&Instance>, CloudError> {
        if let Some(id) = &node.provider_id {
            let rest = id
                .strip_scheme(SCHEME)
                .ok_or_else(|| invalid(format!("{id} is not a provider id of the mock cloud")))?;
            let instance = rest.rsplit('/').next().unwrap_or(rest);
            return Ok(self.instances.get(instance).filter(|i| i.alive()));
        }
        let mut named = self
            .instances
            .values()
            .filter(|i| i.alive() && i.spec.owner.cluster == *cluster && i.spec.name == node.name);
        let first = named.next();
        if named.next().is_some() {
            return Err(invalid(format!("more than one instance is named {}", node.name)));
        }
        Ok(first)
    }

    fn existence(&self, cluster: &ClusterId, node: &NodeRef) -> Result<Existence, CloudError> {
        Ok(match (self.find(cluster, node)?, &node.provider_id) {
            (Some(_), _) => Existence::Exists,
            (None, Some(_)) => Existence::Gone,
            (None, None) => Existence::Unknown,
        })
    }

    fn metadata(&self, cluster: &ClusterId, node: &NodeRef) -> Result<Option<InstanceMetadata>, CloudError> {
        let Some(instance) = self.find(cluster, node)? else {
            return Err(CloudError::new(
                CloudErrorKind::NotFound,
                format!("no instance for node {}", node.name),
            ));
        };
        Ok(Some(InstanceMetadata {
            provider_id: instance.provider_id(),
            instance_type: instance.spec.instance_type.clone(),
            addresses: instance.addresses(),
            zone: instance.zone.clone(),
            region: self.region.clone(),
            labels: BTreeMap::new(),
        }))
    }

    fn list_routes(&self, cluster: &ClusterId) -> Vec<Route> {
        let mut routes: Vec<Route> = self
            .routes
            .iter()
            .filter(|(owner, _)| owner == cluster)
            .map(|(_, r)| r.clone())
            .collect();
        for route in &mut routes {
            let node = NodeRef {
                name: route.node_name.clone(),
                provider_id: route.target.clone(),
            };
            if matches!(self.find(cluster, &node), Ok(None)) {
                route.target = None;
            }
        }
        routes
    }

    fn change_routes(&mut self, cluster: &ClusterId, create: &[Route], delete: &[Route]) -> Reply {
        self.routes
            .retain(|(owner, r)| owner != cluster || !delete.iter().any(|d| d.destination == r.destination));
        let results = create
            .iter()
            .map(|route| {
                let existing = self
                    .routes
                    .iter()
                    .find(|(_, r)| overlaps(&r.destination, &route.destination));
                match existing {
                    Some((owner, r)) if owner == cluster && r == route => Ok(()),
                    Some((_, r)) => Err(WireError::from(CloudError::new(
                        CloudErrorKind::AlreadyExists,
                        format!("{} overlaps the route to {}", route.destination, r.destination),
                    ))),
                    None => {
                        self.routes.push((cluster.clone(), route.clone()));
                        Ok(())
                    }
                }
            })
            .collect();
        Reply::RouteResults(results)
    }

    fn lb_of(&self, owner: &OwnerTags) -> Option<&LoadBalancer> {
        self.load_balancers
            .values()
            .find(|l| l.spec.owner.cluster == owner.cluster && l.spec.owner.owner_uid == owner.owner_uid)
    }

    fn lb_status(lb: &LoadBalancer) -> LoadBalancerStatus {
        LoadBalancerStatus {
            ingress: vec![Ingress {
                ip: Some(IpAddr::V4(lb.vip)),
                hostname: None,
                ip_mode: Some(IpMode::Proxy),
                ports: Vec::new(),
            }],
        }
    }

    fn ensure_lb(&mut self, cluster: &ClusterId, spec: &LoadBalancerSpec) -> Result<Reply, CloudError> {
        if spec.owner.cluster != *cluster {
            return Err(invalid("the load balancer's owner is of another cluster"));
        }
        if let Some(port) = spec.ports.iter().find(|p| p.protocol != Protocol::Tcp) {
            return Err(CloudError::new(
                CloudErrorKind::Unsupported,
                format!("port {}: the mock cloud balances TCP only", port.port),
            ));
        }
        if let Some(lb) = self
            .load_balancers
            .values_mut()
            .find(|l| l.spec.owner.cluster == *cluster && l.spec.owner.owner_uid == spec.owner.owner_uid)
        {
            lb.spec.clone_from(spec);
            return Ok(Reply::LoadBalancer(Some(Self::lb_status(lb))));
        }
        let vip = match spec.requested_ip {
            None => self.free_address(true)?,
            Some(IpAddr::V4(ip)) if self.network.contains(&ip) => {
                if self.load_balancers.values().any(|l| l.vip == ip)
                    || self.instances.values().any(|i| i.alive() && i.ip == ip)
                {
                    return Err(CloudError::new(
                        CloudErrorKind::AlreadyExists,
                        format!("address {ip} is in use"),
                    ));
                }
                ip
            }
            Some(ip) => {
                return Err(invalid(format!(
                    "address {ip} is not in the cloud's network {}",
                    self.network
                )));
            }
        };
        let id = self.new_id("lb");
        let lb = LoadBalancer {
            id: id.clone(),
            vip,
            spec: spec.clone(),
        };
        let status = Self::lb_status(&lb);
        self.load_balancers.insert(id, lb);
        Ok(Reply::LoadBalancer(Some(status)))
    }

    fn create_machine(&mut self, cluster: &ClusterId, spec: &MachineSpec) -> Result<Reply, CloudError> {
        if spec.owner.cluster != *cluster {
            return Err(invalid("the machine's owner is of another cluster"));
        }
        let same =
            |i: &&Instance| i.alive() && i.spec.owner.cluster == *cluster && i.spec.client_token == spec.client_token;
        if let Some(instance) = self.instances.values().find(same) {
            return Ok(Reply::Machine(instance.machine()));
        }
        if !INSTANCE_TYPES.iter().any(|(name, ..)| *name == spec.instance_type) {
            let names: Vec<&str> = INSTANCE_TYPES.iter().map(|(name, ..)| *name).collect();
            return Err(invalid(format!(
                "unknown instance type {:?}; there are {}",
                spec.instance_type,
                names.join(", ")
            )));
        }
        if !spec.zone.is_empty() && !self.zones.contains(&spec.zone) {
            return Err(invalid(format!(
                "unknown zone {:?}; there are {}",
                spec.zone,
                self.zones.join(", ")
            )));
        }
        let ip = self.free_address(false)?;
        let id = self.new_id("i");
        let zone = if spec.zone.is_empty() {
            let turn = usize::try_from(self.next_id).unwrap_or(0) % self.zones.len();
            self.zones[turn].clone()
        } else {
            spec.zone.clone()
        };
        let instance = Instance {
            id: id.clone(),
            spec: spec.clone(),
            state: MachineState::Pending,
            ip,
            zone,
        };
        let machine = instance.machine();
        self.instances.insert(id, instance);
        Ok(Reply::Machine(machine))
    }

    fn transition(&mut self, cluster: &ClusterId, id: &ProviderId, to: MachineState) -> Result<Reply, CloudError> {
        let rest = id
            .strip_scheme(SCHEME)
            .ok_or_else(|| invalid(format!("{id} is not a provider id of the mock cloud")))?;
        let key = rest.rsplit('/').next().unwrap_or(rest);
        let Some(instance) = self.instances.get_mut(key).filter(|i| i.alive()) else {
            return match to {
                MachineState::ShuttingDown => Ok(Reply::Done),
                _ => Err(CloudError::new(CloudErrorKind::NotFound, format!("no instance {id}"))),
            };
        };
        if instance.spec.owner.cluster != *cluster {
            return Err(invalid(format!("{id} belongs to another cluster")));
        }
        let (now, settled) = match to {
            MachineState::ShuttingDown => (true, false),
            MachineState::Stopping => (
                matches!(instance.state, MachineState::Running | MachineState::Pending),
                matches!(instance.state, MachineState::Stopping | MachineState::Stopped),
            ),
            MachineState::Pending => (
                instance.state == MachineState::Stopped,
                matches!(instance.state, MachineState::Pending | MachineState::Running),
            ),
            _ => (false, false),
        };
        if now {
            instance.state = to;
        } else if !settled {
            return Err(CloudError::new(
                CloudErrorKind::Conflict,
                format!("{id} is {:?}", instance.state),
            ));
        }
        Ok(Reply::Done)
    }

    /// Finishes a transition that the machine itself has made: pending to running, stopping to stopped, and so on.
    pub fn settle(&mut self, id: &str) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.state = match instance.state {
                MachineState::Pending => MachineState::Running,
                MachineState::Stopping => MachineState::Stopped,
                MachineState::ShuttingDown => MachineState::Terminated,
                settled => settled,
            };
        }
    }

    fn owned(&self, cluster: &ClusterId) -> Vec<OwnedResource> {
        let of = |kind, id: &str, tags: &OwnerTags| OwnedResource {
            kind,
            id: id.to_owned(),
            tags: tags.clone(),
        };
        let instances = self
            .instances
            .values()
            .filter(|i| i.alive() && i.spec.owner.cluster == *cluster)
            .map(|i| of(ResourceKind::Instance, i.provider_id().as_str(), &i.spec.owner));
        let load_balancers = self
            .load_balancers
            .values()
            .filter(|l| l.spec.owner.cluster == *cluster)
            .map(|l| of(ResourceKind::LoadBalancer, &l.id, &l.spec.owner));
        let routes = self.routes.iter().filter(|(owner, _)| owner == cluster).map(|(_, r)| {
            let tags = OwnerTags {
                cluster: cluster.clone(),
                owner_kind: "Node".to_owned(),
                owner_name: r.node_name.clone(),
                owner_uid: r.node_uid.clone(),
            };
            of(ResourceKind::Route, &r.destination.to_string(), &tags)
        });
        let endpoints = self
            .endpoints
            .values()
            .filter(|e| e.owner.cluster == *cluster)
            .map(|e| of(ResourceKind::Listener, "endpoint", &e.owner));
        instances.chain(load_balancers).chain(routes).chain(endpoints).collect()
    }

    fn delete_owned(&mut self, cluster: &ClusterId, resource: &OwnedResource) -> Result<Reply, CloudError> {
        if resource.tags.cluster != *cluster {
            return Err(invalid("the resource belongs to another cluster"));
        }
        match resource.kind {
            ResourceKind::Instance => {
                return self.transition(
                    cluster,
                    &ProviderId::new(resource.id.clone()),
                    MachineState::ShuttingDown,
                );
            }
            ResourceKind::LoadBalancer => {
                self.load_balancers
                    .retain(|id, l| *id != resource.id || l.spec.owner.cluster != *cluster);
            }
            ResourceKind::Route => {
                self.routes
                    .retain(|(owner, r)| owner != cluster || r.destination.to_string() != resource.id);
            }
            ResourceKind::Listener => {
                self.endpoints.remove(cluster);
            }
            other => return Err(invalid(format!("the mock cloud has no resources of kind {other:?}"))),
        }
        Ok(Reply::Done)
    }

    fn expose(
        &mut self,
        cluster: &ClusterId,
        owner: &OwnerTags,
        port: u16,
        backend: SocketAddr,
    ) -> Result<Reply, CloudError> {
        if owner.cluster != *cluster {
            return Err(invalid("the endpoint's owner is of another cluster"));
        }
        if !backend.ip().is_loopback() {
            return Err(invalid(format!("{backend} is not a loopback address of the host")));
        }
        if self.endpoints.iter().any(|(c, e)| c != cluster && e.port == port) {
            return Err(CloudError::new(
                CloudErrorKind::AlreadyExists,
                format!("port {port} is taken by another cluster"),
            ));
        }
        self.endpoints.insert(
            cluster.clone(),
            ExposedEndpoint {
                owner: owner.clone(),
                port,
                backend,
            },
        );
        Ok(Reply::Endpoint {
            host: self.gateway().to_string(),
            port,
        })
    }
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud() -> CloudState {
        CloudState::new(
            "10.77.0.0/16".parse().unwrap(),
            vec!["zone-a".into(), "zone-b".into()],
            "local".into(),
        )
        .unwrap()
    }
    fn cluster(id: &str) -> ClusterId {
        ClusterId(id.to_owned())
    }
    fn owner(cluster_id: &str, uid: &str) -> OwnerTags {
        OwnerTags {
            cluster: cluster(cluster_id),
            owner_kind: "NodePool".into(),
            owner_name: "default/pool".into(),
            owner_uid: uid.into(),
        }
    }
    fn machine(token: &str) -> Call {
        Call::CreateMachine {
            spec: MachineSpec {
                owner: owner("c1", "p1"),
                name: format!("node-{token}"),
                client_token: token.into(),
                instance_type: "m1.small".into(),
                image: String::new(),
                zone: String::new(),
                user_data: String::new(),
                tags: BTreeMap::new(),
            },
        }
    }
    fn create(cloud: &mut CloudState, token: &str) -> Machine {
        match cloud.apply(&cluster("c1"), &machine(token)).unwrap() {
            Reply::Machine(m) => m,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_token_makes_one_machine_only() {
        let mut cloud = cloud();
        let first = create(&mut cloud, "a");
        assert_eq!(create(&mut cloud, "a").provider_id, first.provider_id);
        assert_ne!(create(&mut cloud, "b").provider_id, first.provider_id);
        assert_eq!(cloud.instances.len(), 2);
    }

    #[test]
    fn a_well_formed_unknown_provider_id_is_gone_and_an_unknown_name_is_doubt() {
        let mut cloud = cloud();
        create(&mut cloud, "a");
        let by_id = NodeRef {
            name: "node-a".into(),
            provider_id: Some(ProviderId::new("mock:///zone-a/i-ffff")),
        };
        let by_name = NodeRef {
            name: "nobody".into(),
            provider_id: None,
        };
        let known = NodeRef {
            name: "node-a".into(),
            provider_id: None,
        };
        let foreign = NodeRef {
            name: "node-a".into(),
            provider_id: Some(ProviderId::new("aws:///z/i-1")),
        };
        let call = Call::Existence {
            nodes: vec![by_id, by_name, known, foreign],
        };
        let Reply::Existence(answers) = cloud.apply(&cluster("c1"), &call).unwrap() else {
            panic!()
        };
        assert_eq!(answers[0].as_ref().unwrap(), &Existence::Gone);
        assert_eq!(answers[1].as_ref().unwrap(), &Existence::Unknown);
        assert_eq!(answers[2].as_ref().unwrap(), &Existence::Exists);
        assert_eq!(answers[3].as_ref().unwrap_err().kind, "Invalid");
    }

    #[test]
    fn another_cluster_cannot_terminate_a_machine() {
        let mut cloud = cloud();
        let id = create(&mut cloud, "a").provider_id;
        let error = cloud
            .apply(&cluster("c2"), &Call::TerminateMachine { id: id.clone() })
            .unwrap_err();
        assert_eq!(error.kind(), CloudErrorKind::Invalid);
        cloud
            .apply(&cluster("c1"), &Call::TerminateMachine { id: id.clone() })
            .unwrap();
        assert_eq!(
            cloud.instances.values().next().unwrap().state,
            MachineState::ShuttingDown
        );
        cloud.settle("i-00000001");
        cloud.apply(&cluster("c1"), &Call::TerminateMachine { id }).unwrap();
        assert!(cloud.owned(&cluster("c1")).is_empty());
    }

    #[test]
    fn a_route_is_idempotent_and_its_target_s_end_makes_it_a_blackhole() {
        let mut cloud = cloud();
        let m = create(&mut cloud, "a");
        let route = Route {
            destination: "10.244.1.0/24".parse().unwrap(),
            target: Some(m.provider_id.clone()),
            node_name: m.name.clone(),
            node_uid: "u".into(),
            next_hops: vec![],
        };
        for _ in 0..2 {
            let call = Call::ChangeRoutes {
                create: vec![route.clone()],
                delete: vec![],
            };
            let Reply::RouteResults(results) = cloud.apply(&cluster("c1"), &call).unwrap() else {
                panic!()
            };
            assert!(results[0].is_ok());
        }
        cloud
            .apply(&cluster("c1"), &Call::TerminateMachine { id: m.provider_id })
            .unwrap();
        cloud.settle("i-00000001");
        let Reply::Routes(routes) = cloud.apply(&cluster("c1"), &Call::ListRoutes).unwrap() else {
            panic!()
        };
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0].target, None);
    }
}
