//! The server value: its parts, its start, its stop.

mod inprocess;
mod listen;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minato_meta::ClusterReader;
use minato_storage::Store;
use minato_storage::cache::WatchCache;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;

pub use inprocess::ApiService;
pub(crate) use inprocess::OwnComponent;
pub use listen::ServeHandle;
pub use tls::{ServerTls, TlsError};

use crate::cluster_cache::ClusterCache;
use crate::config::{ApiServerConfig, Deps};
use crate::metrics::Metrics;
use crate::registry::Registry;

/// Facts of the connection that a request came on; an extension of every request from the network.
#[derive(Debug, Clone, Default)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The verified client certificate chain, leaf first.
    pub client_certificates: Arc<[CertificateDer<'static>]>,
}

/// Permits for concurrent requests.
pub(crate) struct InFlight {
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) writes: Arc<Semaphore>,
}

/// One API server. See the crate documentation.
pub struct ApiServer {
    pub(crate) config: ApiServerConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) reader: Arc<dyn ClusterReader>,
    pub(crate) cache: WatchCache,
    cluster: Arc<ClusterCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) inflight: InFlight,
    pub(crate) quota_turns: crate::quota::Turns,
    deps: Deps,
    /// Those of the embedder, until they have been made.
    pub(crate) bootstrap_objects: Mutex<Arc<Vec<Value>>>,
    bootstrapped: OnceCell<()>,
    draining: AtomicBool,
    stop: CancellationToken,
}

impl ApiServer {
    /// Puts a server together; nothing runs yet. `deps` is given the server's own view of the cluster, which
    /// authorizers and admission plug-ins need.
    pub fn new(
        config: ApiServerConfig,
        store: Arc<dyn Store>,
        deps: impl FnOnce(Arc<dyn ClusterReader>) -> Deps,
    ) -> Arc<Self> {
        let registry = Arc::new(Registry::new(crate::endpoints::builtin_resources()));
        let cache = WatchCache::new(store.clone(), config.watch_cache.clone());
        let cluster = Arc::new(ClusterCache::new(store.clone(), &cache));
        let reader: Arc<dyn ClusterReader> = cluster.clone();
        let mut deps = deps(reader.clone());
        for (resource, schema) in std::mem::take(&mut deps.extra_resources) {
            match schema {
                Some(schema) => registry.add_custom(resource, schema),
                None => registry.add([resource]),
            }
        }
        let bootstrap_objects = std::mem::take(&mut deps.bootstrap_objects);
        Arc::new(Self {
            bootstrap_objects: Mutex::new(Arc::new(bootstrap_objects)),
            inflight: InFlight {
                reads: Arc::new(Semaphore::new(config.max_reads_inflight)),
                writes: Arc::new(Semaphore::new(config.max_writes_inflight)),
            },
            quota_turns: crate::quota::Turns::new(),
            config,
            store,
            registry,
            reader,
            cache,
            cluster,
            metrics: Arc::new(Metrics::new()),
            deps,
            bootstrapped: OnceCell::new(),
            draining: AtomicBool::new(false),
            stop: CancellationToken::new(),
        })
    }

    /// Brings the cluster to the state that clients expect of a fresh one; idempotent. `/readyz` is red until this has
    /// gone through, and it retries until the store answers or the server stops.
    pub async fn start(self: &Arc<Self>) {
        self.bootstrapped
            .get_or_init(|| async {
                tokio::select! {
                    () = crate::bootstrap::run(self) => {}
                    () = self.stop.cancelled() => {}
                }
                self.cluster.follow(&self.stop).await;
                crate::crd::start(self).await;
            })
            .await;
    }

    /// Whether [`ApiServer::start`] has gone through and the server is not stopping.
    pub fn is_ready(&self) -> bool {
        self.bootstrapped.initialized() && !self.is_draining()
    }

    pub(crate) fn is_started(&self) -> bool {
        self.bootstrapped.initialized()
    }

    /// Stops the server: readiness goes red, new requests are refused, watches end, listeners drain.
    pub fn stop(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.stop.cancel();
        self.cache.close();
    }

    /// Cancelled when the server stops; long-running requests end with it.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    /// The served kinds.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The server's own view of the cluster.
    pub fn reader(&self) -> &Arc<dyn ClusterReader> {
        &self.reader
    }

    /// The settings.
    pub fn config(&self) -> &ApiServerConfig {
        &self.config
    }

    pub(crate) fn deps(&self) -> &Deps {
        &self.deps
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}
