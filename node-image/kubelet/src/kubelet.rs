//! Putting the parts together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::Pod;
use minato_api::kube::Api;
use minato_cri::Cri;
use minato_runtime::{Informer, Metrics, Runtime, Tasks, WatchScope};
use minato_tunnel::{AgentConfig, TunnelAgent};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::certificates::{self, CertificateError, ServingCertificate};
use crate::cgroup::Cgroups;
use crate::client::Replaceable;
use crate::context::Context;
use crate::images::Images;
use crate::metrics::Figures;
use crate::node::{Facts, NodeAgent};
use crate::objects::Objects;
use crate::server::{self, Server, ServerError};
use crate::settings::Settings;
use crate::worker::Workers;
use crate::{logs, pleg, static_pods};

/// Pause between attempts to reach the runtime at the start.
const RETRY: Duration = Duration::from_millis(200);

/// Why the kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// Credentials.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The node's own server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A directory or socket.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// A running kubelet.
pub struct Kubelet {
    tasks: Tasks,
}

impl Kubelet {
    /// Starts it: when this returns, the node is registered and its pods are being taken care of. Waits for the runtime and
    /// for the node's credentials as long as that takes.
    ///
    /// # Errors
    /// See [`KubeletError`]: only what waiting does not mend.
    pub async fn start(settings: Settings) -> Result<Self, KubeletError> {
        let settings = Arc::new(settings);
        for directory in [&settings.root_dir, &settings.pod_logs_dir] {
            std::fs::create_dir_all(directory).map_err(|source| KubeletError::Io {
                what: format!("creating {}", directory.display()),
                source,
            })?;
        }
        let tasks = Tasks::new();
        let cri = Cri::new(&settings.runtime_socket);
        let first = certificates::obtain_connection(&settings);
        let (version, first) = tokio::join!(runtime_version(&cri), first);
        let first = first?;
        let present = Replaceable::new(&first);
        let runtime = Runtime::new(present.client(), tasks.clone(), Metrics::new());
        let credentials = present.tls();
        if settings.rotate {
            let rotation = certificates::rotate_client(settings.clone(), runtime.client.clone(), present);
            tasks.spawn("client-certificate", rotation);
        }
        let (names, wanted_names) = watch::channel(Vec::new());
        let serving = ServingCertificate::load(&settings)?;
        let tls = server::tls_config(&settings, serving.clone())?;
        let listener = TcpListener::bind(settings.serve_on)
            .await
            .map_err(|source| KubeletError::Io {
                what: format!("listening on {}", settings.serve_on),
                source,
            })?;
        if settings.serving_certificate {
            let keep = serving.keep(settings.clone(), runtime.client.clone(), wanted_names);
            tasks.spawn("serving-certificate", keep);
        }
        let facts = Arc::new(Facts::read(&settings.root_dir, settings.max_pods, &version));
        let events = runtime.recorder("kubelet").on_host(&settings.node_name);
        let agent = NodeAgent {
            settings: settings.clone(),
            client: runtime.client.clone(),
            cri: cri.clone(),
            facts: facts.clone(),
            events: events.clone(),
            names,
        };
        let node = agent.start(&tasks).await;
        let context = Arc::new(Context {
            cgroups: Cgroups::new(&settings.cgroup_root, settings.pids_limit),
            images: Images::new(cri.clone()),
            objects: Objects::new(runtime.client.clone(), tasks.clone()),
            services: runtime.informers.of(),
            events,
            client: runtime.client.clone(),
            settings,
            cri,
            facts,
            node,
            tasks: tasks.clone(),
            figures: Figures::register(&runtime.metrics),
            news: watch::Sender::new(0),
        });
        let workers = Workers::new(context.clone());
        start_pods(&context, &workers);
        tasks.spawn("log-rotation", logs::rotate(context.clone()));
        if context.settings.tunnel {
            let kubelet = own_address(context.settings.serve_on);
            let config = AgentConfig {
                node: context.settings.node_name.clone(),
                server: first.server,
                server_name: String::new(),
                tls: credentials,
                kubelet,
            };
            TunnelAgent::start(config, &tasks);
        }
        let server = Server::new(context, workers, runtime.metrics.clone());
        tasks.spawn("server", server.run(listener, tls));
        Ok(Self { tasks })
    }

    /// Waits until it stopped by itself; why.
    pub async fn failed(&self) -> String {
        self.tasks.token().cancelled().await;
        self.tasks.failure().unwrap_or_else(|| "stopped".to_owned())
    }

    /// Stops it. Pods go on running.
    pub async fn stop(self) {
        self.tasks.stop().await;
    }
}

/// Where the node reaches its own server.
fn own_address(serve_on: SocketAddr) -> SocketAddr {
    let ip = match serve_on.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, serve_on.port())
}

async fn runtime_version(cri: &Cri) -> String {
    let mut told = false;
    loop {
        match cri.version().await {
            Ok(version) => return format!("{}://{}", version.runtime_name, version.runtime_version),
            Err(error) if !told => {
                tracing::info!(%error, "waiting for the container runtime");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn start_pods(context: &Arc<Context>, workers: &Workers) {
    let scope = WatchScope {
        fields: Some(format!("spec.nodeName={}", context.settings.node_name)),
        labels: None,
    };
    let tasks = &context.tasks;
    let pods: Informer<Pod> = Informer::start(Api::all(context.client.clone()), scope, tasks);
    let on_change = workers.clone();
    pods.on_change(move |change| on_change.on_change(change));
    if let Some(directory) = context.settings.static_pod_path.clone() {
        let node = context.settings.node_name.clone();
        let present = static_pods::start(&directory, &node, workers);
        tasks.spawn(
            "static-pods",
            static_pods::follow(directory, node, workers.clone(), present),
        );
    }
    let news = Arc::new(Notify::new());
    tasks.spawn("runtime-events", pleg::listen(context.clone(), news.clone()));
    let (context, workers) = (context.clone(), workers.clone());
    tasks.spawn("runtime-watch", async move {
        // Before the API's pods are known, everything that runs would look unwanted.
        context.node.synced().await;
        pods.synced().await;
        pleg::sweep(&context, &workers).await;
        pleg::watch(context, workers, news).await;
    });
}
