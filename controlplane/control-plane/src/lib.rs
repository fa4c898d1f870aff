//! One tenant's control plane as a value: [`ControlPlane::start`] makes it from a [`Config`], [`ControlPlane::stop`] ends
//! it. No globals: any number live in one process.
//!
//! As yet it is the API server on the embedded store and the controllers; the scheduler is not there. May depend on: every
//! crate of the control plane.

mod access;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use minato_apiserver::{ApiServer, ApiServerConfig, ServeHandle, ServerTls, ServiceConfig};
use minato_auth::UserInfo;
use minato_controllers::{ControllerManager, ControllerManagerConfig, ControllerManagerHandle};
use minato_pki::{ClusterPki, Issued, PkiError, Serving, kubeconfig};
use minato_runtime::{Metrics, Runtime, Tasks};
use minato_storage::{EmbeddedOptions, EmbeddedStore, StoreError};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;

/// How a control plane is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the cluster.
    pub name: String,
    /// Directory for keys, store and kubeconfig; belongs to this control plane alone.
    pub directory: PathBuf,
    /// Where the API server listens; port zero takes a free one.
    pub listen: SocketAddr,
    /// Range of Service addresses.
    pub service_cidr: IpNet,
    /// Node ports, first and last.
    pub node_port_range: (u16, u16),
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Keys and certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The store.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// A directory, file or socket.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The keys of service-account tokens.
    #[error(transparent)]
    Keys(#[from] minato_auth::KeyError),
    /// The serving certificate is not usable.
    #[error("TLS: {0}")]
    Tls(String),
}

/// A running control plane.
pub struct ControlPlane {
    server: Arc<ApiServer>,
    serving: ServeHandle,
    controllers: ControllerManagerHandle,
    tasks: Tasks,
    kubeconfig: PathBuf,
}

impl ControlPlane {
    /// Starts it: when this returns, the API server is ready.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let io = |what: String| move |source| StartError::Io { what, source };
        let directory = &config.directory;
        std::fs::create_dir_all(directory).map_err(io(format!("creating {}", directory.display())))?;
        let pki = ClusterPki::load_or_create(&directory.join("pki"), &config.name)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(io(format!("listening on {}", config.listen)))?;
        let address = listener
            .local_addr()
            .map_err(io("reading the listener's address".to_owned()))?;
        let tls = server_tls(&pki, &config, address.ip())?;
        let store = EmbeddedStore::open(&directory.join("store.redb"), EmbeddedOptions::default())?;
        let server_config = ApiServerConfig {
            name: config.name.clone(),
            services: Some(ServiceConfig {
                cluster_ip_ranges: vec![config.service_cidr],
                node_port_range: config.node_port_range,
                advertise_address: address.ip(),
                advertise_port: address.port(),
            }),
            ..ApiServerConfig::default()
        };
        let keys = access::service_account_keys(&pki)?;
        let server = ApiServer::new(server_config, Arc::new(store), |reader| access::deps(reader, keys));
        let serving = server.serve(listener, Some(tls)).map_err(io("serving".to_owned()))?;
        server.start().await;
        let (controllers, tasks) = start_controllers(&server, &config, &pki);
        let path = directory.join("kubeconfig");
        let admin = pki.issue_client("kubernetes-admin", &["system:masters"])?;
        let text = kubeconfig(
            &config.name,
            &format!("https://{address}"),
            pki.ca_certificate(),
            "kubernetes-admin",
            &admin,
        );
        write_private(&path, &text).map_err(io(format!("writing {}", path.display())))?;
        tracing::info!(cluster = config.name, %address, "control plane ready");
        Ok(Self {
            server,
            serving,
            controllers,
            tasks,
            kubeconfig: path,
        })
    }

    /// The admin's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// The API server, for clients in this process.
    pub fn server(&self) -> &Arc<ApiServer> {
        &self.server
    }

    /// Drains and stops it.
    pub async fn stop(self) {
        self.controllers.stop().await;
        self.tasks.stop().await;
        self.server.stop();
        self.serving.stop().await;
    }
}

/// Starts the controllers on a client without a socket. Nobody else serves this store, so there is no leader to elect.
fn start_controllers(server: &Arc<ApiServer>, config: &Config, pki: &ClusterPki) -> (ControllerManagerHandle, Tasks) {
    let client = server.client_as(UserInfo {
        name: "system:kube-controller-manager".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    });
    let tasks = Tasks::new();
    let runtime = Runtime::new(client, tasks.clone(), Metrics::new());
    let controllers = ControllerManagerConfig {
        root_ca: Some(pki.ca_certificate().to_owned()),
        service_cidrs: vec![config.service_cidr],
        ..ControllerManagerConfig::default()
    };
    (ControllerManager::start(controllers, &runtime), tasks)
}

fn server_tls(pki: &ClusterPki, config: &Config, address: IpAddr) -> Result<Arc<ServerTls>, StartError> {
    let service_address = config.service_cidr.hosts().next();
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), address];
    addresses.extend(service_address);
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let serving = Serving {
        names: names.map(str::to_owned).to_vec(),
        addresses,
    };
    let issued: Issued = pki.issue_serving("kube-apiserver", &serving)?;
    let tls = |error: &dyn std::fmt::Display| StartError::Tls(error.to_string());
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).map_err(|e| tls(&e))?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(|e| tls(&e))?;
    let authority = CertificateDer::from_pem_slice(pki.ca_certificate().as_bytes()).map_err(|e| tls(&e))?;
    ServerTls::new(vec![certificate], key, &[authority]).map_err(|e| tls(&e))
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("tmp");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(temporary, path)
}
