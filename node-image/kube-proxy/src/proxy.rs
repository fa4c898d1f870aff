//! Keeps the node's table in step with the cluster.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_api::kube::Client;
use minato_runtime::{Informer, Informers, ObjectKey, Tasks};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::health::HealthChecks;
use crate::model::{self, ServiceModel};
use crate::nft::NftError;
use crate::render::{self, Shared};
use crate::table::{self, Rules};
use crate::{conntrack, nft};

/// Label of a slice: its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Everything is written anew from time to time, in case somebody else changed the table.
const FULL_SYNC: Duration = Duration::from_secs(3600);
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Settings of a proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Name of the node.
    pub node: String,
    /// Range of all pods.
    pub cluster_cidr: IpNet,
    /// Addresses that the node answers itself even if a Service has them, such as that of its DNS resolver.
    pub local_addresses: Vec<IpAddr>,
}

/// A proxy at work. Stopping its tasks leaves the rules: connections go on while a new one starts.
pub struct Proxy {
    healthy: watch::Receiver<bool>,
}

struct Worker {
    config: ProxyConfig,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    dirty: Arc<Dirty>,
    current: HashMap<ObjectKey, (ServiceModel, Rules)>,
    checks: HealthChecks,
    healthy: watch::Sender<bool>,
}

/// Services that have changed.
#[derive(Default)]
struct Dirty {
    keys: Mutex<BTreeSet<ObjectKey>>,
    changed: Notify,
}

impl Dirty {
    fn add(&self, key: ObjectKey) {
        self.keys.lock().insert(key);
        self.changed.notify_one();
    }
}

fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(ObjectKey::new(
        slice.metadata.namespace.clone().unwrap_or_default(),
        name,
    ))
}

impl Proxy {
    /// Starts following the cluster that `client` sees.
    pub fn start(config: ProxyConfig, client: Client, tasks: &Tasks) -> Self {
        let informers = Informers::new(client, tasks.clone());
        let (services, slices): (Informer<Service>, Informer<EndpointSlice>) = (informers.of(), informers.of());
        slices.add_index("service", |slice| {
            service_of(slice).map(|key| key.to_string()).into_iter().collect()
        });
        let dirty = Arc::new(Dirty::default());
        let changed = dirty.clone();
        services.on_change(move |change| changed.add(ObjectKey::of(change.object().as_ref())));
        let changed = dirty.clone();
        slices.on_change(move |change| {
            for slice in change.old().into_iter().chain([change.object()]) {
                if let Some(key) = service_of(slice) {
                    changed.add(key);
                }
            }
        });
        let (healthy, receiver) = watch::channel(false);
        let worker = Worker {
            config,
            services,
            slices,
            dirty,
            current: HashMap::new(),
            checks: HealthChecks::default(),
            healthy,
        };
        tasks.spawn("proxy", worker.run());
        Self { healthy: receiver }
    }

    /// Whether the last change was applied.
    pub fn is_healthy(&self) -> bool {
        *self.healthy.borrow()
    }

    /// Waits until the rules are those of the cluster for the first time.
    pub async fn ready(&mut self) {
        // The sender lives as long as the worker; after its end nobody is to wait.
        let _ = self.healthy.wait_for(|healthy| *healthy).await;
    }
}

impl Worker {
    async fn run(mut self) {
        self.services.synced().await;
        self.slices.synced().await;
        let mut pause = RETRY.0;
        loop {
            // After a failure nothing is known about the table: it is written whole.
            if let Err(error) = self.full().await {
                tracing::error!(%error, "writing the table failed; trying again");
                self.healthy.send_replace(false);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
                continue;
            }
            self.healthy.send_replace(true);
            pause = RETRY.0;
            if let Err(error) = self.follow().await {
                tracing::error!(%error, "applying a change failed; writing the whole table");
                self.healthy.send_replace(false);
            }
        }
    }

    /// Applies changes until one fails or it is time to write everything.
    async fn follow(&mut self) -> Result<(), NftError> {
        let until = tokio::time::Instant::now() + FULL_SYNC;
        loop {
            tokio::select! {
                () = self.dirty.changed.notified() => self.changes().await?,
                () = tokio::time::sleep_until(until) => return Ok(()),
            }
        }
    }

    fn model(&self, key: &ObjectKey) -> Option<ServiceModel> {
        let service = self.services.get(key)?;
        let slices = self.slices.indexed("service", &key.to_string());
        Some(model::of_service(&service, &slices, &self.config.node)).filter(|model| !model.ports.is_empty())
    }

    /// Writes the whole table in one transaction.
    async fn full(&mut self) -> Result<(), NftError> {
        self.dirty.keys.lock().clear();
        let shared = Shared {
            cluster_cidr: self.config.cluster_cidr.to_string(),
            local_addresses: self
                .config
                .local_addresses
                .iter()
                .filter(|a| a.is_ipv4())
                .map(ToString::to_string)
                .collect(),
        };
        let mut script = render::base(&shared);
        let mut current = HashMap::new();
        for key in self.services.keys() {
            if let Some(model) = self.model(&key) {
                let rules = render::service(&model);
                script.push_str(&table::difference(&Rules::default(), &rules));
                current.insert(key, (model, rules));
            }
        }
        nft::apply(&script).await?;
        tracing::info!(services = current.len(), "table written");
        self.current = current;
        self.check_health().await;
        Ok(())
    }

    async fn changes(&mut self) -> Result<(), NftError> {
        let keys = std::mem::take(&mut *self.dirty.keys.lock());
        let (mut script, mut next, mut stale) = (String::new(), Vec::new(), BTreeSet::new());
        for key in keys {
            let old = self.current.get(&key).cloned().unwrap_or_default();
            let model = self.model(&key).unwrap_or_default();
            if old.0 == model {
                continue;
            }
            let rules = render::service(&model);
            script.push_str(&table::difference(&old.1, &rules));
            stale.extend(conntrack::stale(&old.0, &model));
            next.push((key, model, rules));
        }
        if next.is_empty() {
            return Ok(());
        }
        if !script.is_empty() {
            nft::apply(&script).await?;
        }
        for (key, model, rules) in next {
            if model == ServiceModel::default() {
                self.current.remove(&key);
            } else {
                self.current.insert(key, (model, rules));
            }
        }
        conntrack::forget(&stale).await;
        self.check_health().await;
        Ok(())
    }

    async fn check_health(&mut self) {
        let wanted = self.current.iter().filter_map(|(key, (model, _))| {
            let (port, backends) = model.health_check?;
            Some((port, (key.to_string(), backends)))
        });
        self.checks.apply(&wanted.collect()).await;
    }
}
