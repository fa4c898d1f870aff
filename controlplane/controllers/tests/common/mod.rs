//! A real API server in this process on an embedded store, with the controllers on it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::{Namespace, Node, Pod};
use minato_api::kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use minato_api::kube::{Client, Resource};
use minato_apiserver::{ApiServer, ApiServerConfig, Deps, ServiceConfig};
use minato_auth::{MastersAuthorizer, RbacAuthorizer, UnionAuthorizer, UserInfo, X509Authenticator, bootstrap_objects};
use minato_controllers::{ControllerManager, ControllerManagerConfig, ControllerManagerHandle};
use minato_runtime::{Metrics, Object, Runtime, Tasks};
use minato_storage::{EmbeddedOptions, EmbeddedStore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) server: Arc<ApiServer>,
    pub(crate) controllers: ControllerManagerHandle,
    pub(crate) tasks: Tasks,
    directory: tempfile::TempDir,
}

/// Starts a cluster whose API server and controllers are real.
pub(crate) async fn cluster(config: ControllerManagerConfig) -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&directory.path().join("store.redb"), EmbeddedOptions::default()).unwrap();
    let services = ServiceConfig {
        cluster_ip_ranges: vec!["10.96.0.0/16".parse().unwrap()],
        node_port_range: (30000, 32767),
        advertise_address: "192.0.2.1".parse().unwrap(),
        advertise_port: 6443,
    };
    let server_config = ApiServerConfig {
        services: Some(services),
        ..ApiServerConfig::default()
    };
    let server = ApiServer::new(server_config, Arc::new(store), |reader| Deps {
        authenticator: Arc::new(X509Authenticator),
        authorizer: Arc::new(UnionAuthorizer::new(vec![
            Arc::new(MastersAuthorizer),
            Arc::new(RbacAuthorizer::new(reader)),
        ])),
        admission: Vec::new(),
        egress: None,
        kubelet: None,
        node_listener: None,
        token_issuer: None,
        extra_resources: Vec::new(),
        bootstrap_objects: bootstrap_objects(),
    });
    server.start().await;
    let user = |name: &str, groups: &[&str]| UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    let client = server.client_as(user("tester", &["system:masters", "system:authenticated"]));
    // The controllers have no more than their default roles.
    let manager = server.client_as(user("system:kube-controller-manager", &["system:authenticated"]));
    let clients = server.clone();
    let config = ControllerManagerConfig {
        clients: Some(Arc::new(move |account| {
            clients.client_as(UserInfo::service_account("kube-system", account))
        })),
        ..config
    };
    let tasks = Tasks::new();
    let runtime = Runtime::new(manager, tasks.clone(), Metrics::new());
    let controllers = ControllerManager::start(config, &runtime);
    Cluster {
        client,
        server,
        controllers,
        tasks,
        directory,
    }
}

impl Cluster {
    /// Stops everything and tells why a controller died, if one did.
    pub(crate) async fn stop(self) {
        assert_eq!(self.controllers.failure(), None);
        self.tasks.stop().await;
        self.server.stop();
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Object + Resource<Scope = minato_api::k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
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
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Plays kubelet: puts the pods of `default` on nodes and makes them ready, in the background.
    pub(crate) fn play_kubelet(&self, nodes: &'static [&'static str]) {
        let client = self.client.clone();
        self.tasks.spawn("played kubelet", async move {
            let api: Api<Pod> = Api::namespaced(client.clone(), "default");
            let mut address = 1_u32;
            loop {
                for pod in api.list(&ListParams::default()).await.unwrap().items {
                    play(&api, &pod, nodes, &mut address).await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    pub(crate) async fn namespace(&self, name: &str) -> Namespace {
        let api: Api<Namespace> = Api::all(self.client.clone());
        self.create(&api, json!({"metadata": {"name": name}})).await
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = self.create(&api, json!({"metadata": {"name": name}})).await;
        let ready = json!({"status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": jiff::Timestamp::now(), "lastTransitionTime": jiff::Timestamp::now(),
        }]}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .unwrap();
        node
    }
}

async fn play(api: &Api<Pod>, pod: &Pod, nodes: &[&str], address: &mut u32) {
    let name = pod.metadata.name.clone().unwrap();
    // What another actor changes at the same time is seen on the next round.
    if pod.metadata.deletion_timestamp.is_some() {
        let now = minato_api::kube::api::DeleteParams::default().grace_period(0);
        let _ = api.delete(&name, &now).await;
        return;
    }
    let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let node = bound
        .clone()
        .unwrap_or_else(|| nodes[*address as usize % nodes.len()].to_owned());
    if bound.is_none() {
        let bind = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        let _ = api
            .create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &bind)
            .await;
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default();
    if phase.is_empty() || phase == "Pending" {
        *address += 1;
        let ip = format!("10.244.{}.{}", *address / 250, *address % 250 + 1);
        let status = json!({"status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now()}],
        }});
        let _ = api
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
    }
}
