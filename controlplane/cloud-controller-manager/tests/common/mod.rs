//! A real API server and a simulated cloud in this process, with faults between the controllers and the cloud.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use minato_api::k8s::core::v1::{Event, Node, Service};
use minato_api::kube::Client;
use minato_api::kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use minato_apiserver::{ApiServer, ApiServerConfig, Deps, ServiceConfig};
use minato_auth::{PrivilegedGroupAuthorizer, UserInfo, X509Authenticator};
use minato_cloud_controller_manager::{
    CloudControllerManager, CloudControllerManagerConfig, CloudControllerManagerHandle,
};
use minato_provider_interface::{CloudError, CloudErrorKind, ClusterId, MachineSpec, OwnerTags, ProviderId};
use minato_provider_mock::call::{Call, Endpoint, Reply};
use minato_provider_mock::{CloudConfig, MockCloud, MockProvider};
use minato_runtime::{Metrics, Runtime, Tasks};
use minato_storage::{EmbeddedOptions, EmbeddedStore};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What befalls a call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It fails without effect.
    Refused(CloudError),
    /// It takes effect, and the answer gets lost.
    Lost,
    /// It takes effect, and no answer ever comes.
    Silence,
}

type Oracle = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// The cloud as the controllers see it.
pub(crate) struct Faulty {
    pub(crate) cloud: MockCloud,
    oracle: Mutex<Option<Oracle>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Faulty {
    pub(crate) fn afflict(&self, oracle: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        *self.oracle.lock() = Some(Box::new(oracle));
    }

    pub(crate) fn heal(&self) {
        *self.oracle.lock() = None;
    }

    /// How often a call was made so far.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.lock().get(name).copied().unwrap_or(0)
    }
}

#[async_trait]
impl Endpoint for Faulty {
    async fn call(&self, cluster: &ClusterId, call: Call) -> Result<Reply, CloudError> {
        *self.counts.lock().entry(call.name()).or_default() += 1;
        let fault = self.oracle.lock().as_mut().and_then(|oracle| oracle(&call));
        match fault {
            None => self.cloud.call(cluster, call).await,
            Some(Fault::Refused(error)) => Err(error),
            Some(Fault::Silence) => {
                let _ = self.cloud.call(cluster, call).await;
                std::future::pending().await
            }
            Some(Fault::Lost) => {
                let _ = self.cloud.call(cluster, call).await;
                Err(transient())
            }
        }
    }
}

pub(crate) fn transient() -> CloudError {
    CloudError::new(CloudErrorKind::Transient, "the connection was reset")
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) cloud: Arc<Faulty>,
    pub(crate) provider: MockProvider,
    pub(crate) tasks: Tasks,
    config: CloudControllerManagerConfig,
    manager: Option<(CloudControllerManagerHandle, Tasks)>,
    server: Arc<ApiServer>,
    directory: tempfile::TempDir,
}

/// Short pauses, and rules for deletion that a test can wait for.
pub(crate) fn quick() -> CloudControllerManagerConfig {
    let millis = Duration::from_millis;
    CloudControllerManagerConfig {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        node_monitor_period: millis(50),
        address_refresh: millis(300),
        young_node: Duration::ZERO,
        unknown_node: millis(500),
        second_look: millis(200),
        mass_deletion_wait: millis(800),
        route_period: millis(20),
        node_batch: millis(20),
        call_timeout: millis(400),
        first_retry: millis(20),
        last_retry: millis(200),
        sweep_period: millis(200),
        ..CloudControllerManagerConfig::default()
    }
}

pub(crate) async fn world(config: CloudControllerManagerConfig) -> World {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&directory.path().join("store.redb"), EmbeddedOptions::default()).unwrap();
    let server_config = ApiServerConfig {
        services: Some(ServiceConfig {
            cluster_ip_ranges: vec!["10.96.0.0/16".parse().unwrap()],
            node_port_range: (30000, 32767),
            advertise_address: "192.0.2.1".parse().unwrap(),
            advertise_port: 6443,
        }),
        ..ApiServerConfig::default()
    };
    let server = ApiServer::new(server_config, Arc::new(store), |_| Deps {
        authenticator: Arc::new(X509Authenticator),
        authorizer: Arc::new(PrivilegedGroupAuthorizer),
        admission: Vec::new(),
        egress: None,
        kubelet: None,
        node_listener: None,
        token_issuer: None,
        extra_resources: Vec::new(),
        bootstrap_objects: Vec::new(),
    });
    server.start().await;
    let client = server.client_as(UserInfo {
        name: "system:cloud-controller-manager".to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..UserInfo::default()
    });
    let cloud = MockCloud::open(CloudConfig {
        network: "172.30.0.0/20".parse().unwrap(),
        zones: vec!["zone-a".to_owned(), "zone-b".to_owned()],
        region: "region-1".to_owned(),
        state_file: None,
        local: false,
    })
    .unwrap();
    let cloud = Arc::new(Faulty {
        cloud,
        oracle: Mutex::new(None),
        counts: Mutex::default(),
    });
    let mut world = World {
        client,
        provider: MockProvider::new(cloud.clone(), ClusterId("c1".to_owned())),
        cloud,
        tasks: Tasks::new(),
        config,
        manager: None,
        server,
        directory,
    };
    world.start();
    world
}

impl World {
    /// Starts the controllers, as after a crash: with nothing remembered.
    pub(crate) fn start(&mut self) {
        let tasks = self.tasks.child();
        let runtime = Runtime::new(self.client.clone(), tasks.clone(), Metrics::new());
        let handle = CloudControllerManager::start(self.config.clone(), Arc::new(self.provider.clone()), &runtime);
        self.manager = Some((handle, tasks));
    }

    /// Takes effect with the next start.
    pub(crate) fn configure(&mut self, config: CloudControllerManagerConfig) {
        self.config = config;
    }

    /// Ends the controllers wherever they are.
    pub(crate) async fn kill(&mut self) {
        if let Some((handle, tasks)) = self.manager.take() {
            assert_eq!(handle.failure(), None);
            tasks.stop().await;
        }
    }

    pub(crate) async fn stop(mut self) {
        self.kill().await;
        self.tasks.stop().await;
        self.server.stop();
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A machine in the cloud, as a node pool makes it.
    pub(crate) async fn machine(&self, name: &str) -> ProviderId {
        let spec = MachineSpec {
            owner: OwnerTags {
                cluster: ClusterId("c1".to_owned()),
                owner_kind: "NodePool".to_owned(),
                owner_name: "pool".to_owned(),
                owner_uid: "pool".to_owned(),
            },
            name: name.to_owned(),
            client_token: name.to_owned(),
            instance_type: "m1.small".to_owned(),
            image: String::new(),
            zone: "zone-a".to_owned(),
            user_data: String::new(),
            tags: BTreeMap::new(),
        };
        match self.provider.call(Call::CreateMachine { spec }).await.unwrap() {
            Reply::Machine(machine) => machine.provider_id,
            other => panic!("{other:?}"),
        }
    }

    /// A Node as a kubelet registers it.
    pub(crate) async fn register(&self, name: &str, cidr: Option<&str>) -> Node {
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [taint], "podCIDR": cidr, "podCIDRs": cidr.map(|c| [c])}});
        self.create(&self.nodes(), node).await;
        self.ready(name, "True").await
    }

    pub(crate) async fn ready(&self, name: &str, status: &str) -> Node {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        self.nodes()
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
            .unwrap()
    }

    /// A machine and its node, initialized.
    pub(crate) async fn node(&self, name: &str, cidr: Option<&str>) -> ProviderId {
        let id = self.machine(name).await;
        self.register(name, cidr).await;
        self.until(&self.nodes(), "initialization", |all| {
            all.iter()
                .any(|node| node.metadata.name.as_deref() == Some(name) && is_initialized(node))
        })
        .await;
        id
    }

    pub(crate) async fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Clone + DeserializeOwned + Serialize + Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn patch<K: Clone + DeserializeOwned + Debug>(&self, api: &Api<K>, name: &str, patch: Value) -> K {
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap()
    }

    /// Waits until the objects of `api` satisfy `reached`.
    pub(crate) async fn until<K>(&self, api: &Api<K>, what: &str, reached: impl Fn(&[K]) -> bool) -> Vec<K>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let items = api.list(&ListParams::default()).await.unwrap().items;
            if reached(&items) {
                return items;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{what} was not reached; there are {items:#?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the cloud satisfies `reached`.
    pub(crate) async fn until_cloud(
        &self,
        what: &str,
        reached: impl Fn(&minato_provider_mock::state::CloudState) -> bool,
    ) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let state = self.cloud.cloud.snapshot();
            if reached(&state) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{what} was not reached; there is {state:#?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_event(&self, reason: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        self.until(&events, reason, |all| {
            all.iter().any(|event| event.reason.as_deref() == Some(reason))
        })
        .await;
    }
}

pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(|taint| taint.key.clone()).collect()
}

pub(crate) fn is_initialized(node: &Node) -> bool {
    !taints(node).contains(&"node.cloudprovider.kubernetes.io/uninitialized".to_owned())
}

pub(crate) fn named<'a>(all: &'a [Node], name: &str) -> &'a Node {
    all.iter()
        .find(|node| node.metadata.name.as_deref() == Some(name))
        .unwrap()
}
