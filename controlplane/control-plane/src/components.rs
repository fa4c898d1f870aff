//! What runs beside the API server: the controllers, the scheduler and, where there is a cloud, its controllers.
//!
//! Each acts under an identity of its own, and all read the same caches: one watch per kind and process. They have
//! clients without a socket. Nobody else serves this store, so there is no leader to elect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use minato_apiserver::ApiServer;
use minato_auth::UserInfo;
use minato_cloud_controller_manager::{
    CloudControllerManager, CloudControllerManagerConfig, CloudControllerManagerHandle,
};
use minato_controllers::{CloudAddresses, ControllerManager, ControllerManagerConfig, ControllerManagerHandle};
use minato_pki::{Authority, ClusterPki, Serving};
use minato_provider_interface::{CloudProvider, NodeRef, ProviderId};
use minato_runtime::{Metrics, Runtime, Tasks};
use minato_scheduler::{Scheduler, SchedulerHandle};

use crate::StartError;
use crate::config::{Config, Role};

/// What a cluster without nodes needs: the life of namespaces, accounts, roles and dependents.
const MANAGEMENT_CONTROLLERS: &[&str] = &[
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "clusterrole-aggregation-controller",
];

/// The running components.
pub(crate) struct Components {
    tasks: Tasks,
    controllers: ControllerManagerHandle,
    scheduler: Option<SchedulerHandle>,
    cloud: Option<CloudControllerManagerHandle>,
}

impl Components {
    /// Starts those that the cluster's role asks for.
    pub(crate) fn start(
        server: &Arc<ApiServer>,
        config: &Config,
        pki: &ClusterPki,
        reserved: Serving,
    ) -> Result<Self, StartError> {
        let tasks = Tasks::new();
        let client = server.client_as(user("system:kube-controller-manager", &[]));
        let runtime = Runtime::new(client, tasks.clone(), Metrics::new());
        let mut settings = controllers(config, pki, reserved)?;
        let clients = server.clone();
        settings.clients = Some(Arc::new(move |account| {
            clients.client_as(UserInfo::service_account("kube-system", account))
        }));
        let controllers = ControllerManager::start(settings, &runtime);
        let scheduler = config.workloads().map(|workloads| {
            let runtime = Runtime {
                client: server.client_as(user("system:kube-scheduler", &[])),
                ..runtime.clone()
            };
            Scheduler::start(workloads.scheduler.clone(), &runtime)
        });
        let cloud = config.workloads().and_then(|workloads| {
            let provider = workloads.cloud.clone()?;
            let runtime = Runtime {
                client: server.client_as(user("system:cloud-controller-manager", &[])),
                ..runtime.clone()
            };
            let config = CloudControllerManagerConfig {
                cluster_cidrs: workloads.cluster_cidr.into_iter().collect(),
                ..CloudControllerManagerConfig::default()
            };
            Some(CloudControllerManager::start(config, provider, &runtime))
        });
        Ok(Self {
            tasks,
            controllers,
            scheduler,
            cloud,
        })
    }

    /// Stops all and waits.
    pub(crate) async fn stop(&self) {
        if let Some(cloud) = &self.cloud {
            cloud.stop().await;
        }
        if let Some(scheduler) = &self.scheduler {
            scheduler.stop().await;
        }
        self.controllers.stop().await;
        self.tasks.stop().await;
    }
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    let groups = groups.iter().chain(&["system:authenticated"]);
    UserInfo {
        name: name.to_owned(),
        groups: groups.map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    }
}

fn controllers(config: &Config, pki: &ClusterPki, reserved: Serving) -> Result<ControllerManagerConfig, StartError> {
    let authority = Authority::from_pem(pki.ca_certificate(), &pki.cluster().key_pem())?;
    let mut controllers = ControllerManagerConfig {
        root_ca: Some(pki.ca_certificate().to_owned()),
        authority: Some(Arc::new(authority)),
        reserved_names: reserved.names,
        reserved_addresses: reserved.addresses,
        ..ControllerManagerConfig::default()
    };
    match &config.role {
        Role::Workloads(workloads) => {
            controllers.service_cidrs = vec![workloads.service_cidr];
            let addresses = |cloud| -> Arc<dyn CloudAddresses> { Arc::new(Addresses(cloud)) };
            controllers.cloud_addresses = workloads.cloud.clone().map(addresses);
            controllers.cluster_cidrs = workloads.cluster_cidr.into_iter().collect();
        }
        Role::Management(_) => {
            let needed = |name: &&str| !MANAGEMENT_CONTROLLERS.contains(name);
            controllers.disabled = ControllerManager::names().filter(needed).map(str::to_owned).collect();
        }
    }
    Ok(controllers)
}

/// How long the cloud may take to tell a node's addresses.
const CLOUD_ANSWER: Duration = Duration::from_secs(30);

/// A cloud's word on nodes' addresses.
struct Addresses(Arc<dyn CloudProvider>);

#[async_trait]
impl CloudAddresses for Addresses {
    async fn addresses(&self, node: &str, provider_id: Option<&str>) -> Result<Vec<String>, String> {
        let Some(instances) = self.0.instances() else {
            return Err("the cloud tells nothing of instances".to_owned());
        };
        let node = NodeRef {
            name: node.to_owned(),
            provider_id: provider_id.filter(|id| !id.is_empty()).map(ProviderId::new),
        };
        let asked = instances.metadata(std::slice::from_ref(&node));
        let answers = tokio::time::timeout(CLOUD_ANSWER, asked)
            .await
            .map_err(|_| "no answer".to_owned())?;
        let answer = answers.map_err(|error| error.to_string())?.pop();
        match answer {
            Some(Ok(Some(metadata))) => Ok(metadata.addresses.into_iter().map(|address| address.address).collect()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(None)) | None => Err(format!("the cloud has no instance for node {}", node.name)),
        }
    }
}
