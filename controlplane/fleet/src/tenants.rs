//! The way into tenants' own APIs: one client and one cache of Nodes per cluster.

use std::collections::HashMap;
use std::sync::Arc;

use minato_api::fleet::POOL_LABEL;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::{Api, Client, Config};
use minato_runtime::{Informer, Tasks, WatchScope};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// One tenant's API.
pub(crate) struct TenantApi {
    pub(crate) client: Client,
    /// Nodes that belong to pools.
    pub(crate) nodes: Informer<Node>,
    tasks: Tasks,
    kubeconfig: String,
}

/// Gets cluster id and pool name of a Node that changed.
pub(crate) type OnNode = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// All tenants' APIs, by cluster id.
#[derive(Clone)]
pub(crate) struct Tenants {
    open: Arc<Mutex<HashMap<String, Arc<TenantApi>>>>,
    tasks: Tasks,
    on_node: OnNode,
}

impl Tenants {
    pub(crate) fn new(tasks: Tasks, on_node: OnNode) -> Self {
        Self {
            open: Arc::default(),
            tasks,
            on_node,
        }
    }

    /// The API of a cluster, by its admin kubeconfig.
    pub(crate) async fn open(&self, id: &str, kubeconfig: &str) -> Result<Arc<TenantApi>> {
        if let Some(api) = self.open.lock().get(id).filter(|api| api.kubeconfig == kubeconfig) {
            return Ok(api.clone());
        }
        let invalid =
            |error: &dyn std::fmt::Display| Error::Invalid(format!("the cluster's kubeconfig is not usable: {error}"));
        let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|e| invalid(&e))?;
        let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.map_err(|e| invalid(&e))?).map_err(|e| invalid(&e))?;
        let tasks = self.tasks.child();
        let scope = WatchScope {
            labels: Some(POOL_LABEL.to_owned()),
            ..WatchScope::default()
        };
        let nodes = Informer::start(Api::<Node>::all(client.clone()), scope, &tasks);
        let (on_node, cluster) = (self.on_node.clone(), id.to_owned());
        nodes.on_change(move |change| {
            let labels = change.object().metadata.labels.as_ref();
            if let Some(pool) = labels.and_then(|labels| labels.get(POOL_LABEL)) {
                on_node(&cluster, pool);
            }
        });
        let api = Arc::new(TenantApi {
            client,
            nodes,
            tasks,
            kubeconfig: kubeconfig.to_owned(),
        });
        let replaced = self.open.lock().insert(id.to_owned(), api.clone());
        if let Some(old) = replaced {
            old.tasks.token().cancel();
        }
        Ok(api)
    }

    /// The API of a cluster that was opened before.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<TenantApi>> {
        self.open.lock().get(id).cloned()
    }

    /// Lets go of a cluster.
    pub(crate) fn close(&self, id: &str) {
        if let Some(api) = self.open.lock().remove(id) {
            api.tasks.token().cancel();
        }
    }
}
