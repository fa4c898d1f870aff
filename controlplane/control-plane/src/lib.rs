//! One tenant's control plane as a value: [`ControlPlane::start`] makes it from a [`Config`], [`ControlPlane::stop`] ends
//! it. No globals: any number live in one process.
//!
//! It is the API server on the embedded store, the controllers and the scheduler. May depend on: every
//! crate of the control plane, and the cloud provider interface.

mod access;
mod components;
mod config;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minato_apiserver::{ApiServer, ApiServerConfig, ServeHandle, ServerTls, ServiceConfig};
use minato_pki::{ClusterPki, Issued, PkiError, Serving, kubeconfig};
use minato_storage::{EmbeddedOptions, EmbeddedStore, EtcdStore, Store, StoreError};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;

use components::Components;
pub use config::{Config, Management, Role, Storage, Workloads};
pub use minato_storage::{EtcdOptions, EtcdTls};

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
    components: Components,
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
        let names = server_names(&config, address.ip());
        let tls = server_tls(&pki, &names)?;
        let store: Arc<dyn Store> = match &config.storage {
            Storage::Embedded => {
                let file = directory.join("store.redb");
                Arc::new(EmbeddedStore::open(&file, EmbeddedOptions::default())?)
            }
            Storage::Etcd(options) => Arc::new(EtcdStore::connect(options.clone()).await?),
        };
        let advertise = config.advertise.unwrap_or(address);
        let server_config = ApiServerConfig {
            name: config.name.clone(),
            services: config.workloads().map(|workloads| ServiceConfig {
                cluster_ip_ranges: vec![workloads.service_cidr],
                node_port_range: workloads.node_port_range,
                advertise_address: advertise.ip(),
                advertise_port: advertise.port(),
            }),
            ..ApiServerConfig::default()
        };
        let keys = access::service_account_keys(&pki)?;
        let nodes = config.workloads().map(|_| access::Nodes::new(&pki)).transpose()?;
        let server = ApiServer::new(server_config, store, |reader| {
            access::deps(reader, keys, nodes.as_ref(), &config.role)
        });
        let serving = server.serve(listener, Some(tls)).map_err(io("serving".to_owned()))?;
        server.start().await;
        let components = Components::start(&server, &config, &pki, names)?;
        let path = directory.join("kubeconfig");
        let admin = pki.issue_client("kubernetes-admin", &["system:masters"])?;
        let text = kubeconfig(
            &config.name,
            &format!("https://{address}"),
            pki.ca_certificate(),
            "kubernetes-admin",
            &admin,
        );
        minato_pki::write_private(&path, &text)?;
        tracing::info!(cluster = config.name, %address, "control plane ready");
        Ok(Self {
            server,
            serving,
            components,
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
        self.components.stop().await;
        self.server.stop();
        self.serving.stop().await;
    }
}

/// What the API server's certificate is good for.
fn server_names(config: &Config, address: IpAddr) -> Serving {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), address];
    addresses.extend(config.advertise.map(|advertise| advertise.ip()));
    addresses.extend(&config.server_addresses);
    let mut names = vec!["localhost".to_owned()];
    names.extend(config.server_names.iter().cloned());
    if let Some(workloads) = config.workloads() {
        addresses.extend(workloads.service_cidr.hosts().next());
        let inside = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        names.extend(inside.map(str::to_owned));
        names.push(format!("kubernetes.default.svc.{}", workloads.dns_domain));
    }
    Serving { names, addresses }
}

fn server_tls(pki: &ClusterPki, names: &Serving) -> Result<Arc<ServerTls>, StartError> {
    let issued: Issued = pki.issue_serving("kube-apiserver", names)?;
    let tls = |error: &dyn std::fmt::Display| StartError::Tls(error.to_string());
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).map_err(|e| tls(&e))?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(|e| tls(&e))?;
    let authority = CertificateDer::from_pem_slice(pki.ca_certificate().as_bytes()).map_err(|e| tls(&e))?;
    ServerTls::new(vec![certificate], key, &[authority]).map_err(|e| tls(&e))
}
