//! The process of kube-proxy.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use ipnet::IpNet;
use minato_kube_proxy::{Proxy, ProxyConfig};
use minato_runtime::{Health, Metrics, NodeClient, Tasks, serve_health};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Flags, with upstream's names where upstream has them.
#[derive(Parser)]
#[command(name = "kube-proxy", version, about = "Makes Services work on a node")]
struct Options {
    /// Kubeconfig of the node; waited for until it is there.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Name of the node.
    #[arg(long)]
    hostname_override: String,
    /// Address of the node.
    #[arg(long)]
    node_ip: Option<IpAddr>,
    /// Range of all pods.
    #[arg(long)]
    cluster_cidr: IpNet,
    /// Addresses that the node answers itself, such as that of its DNS resolver.
    #[arg(long)]
    local_address: Vec<IpAddr>,
    /// Where health is told and metrics are served.
    #[arg(long, default_value = "0.0.0.0:10256")]
    healthz_bind_address: SocketAddr,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MINATO_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube=warn")))
        .with_writer(std::io::stderr)
        .init();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let options = Options::parse();
    tokio::select! {
        result = run(&options) => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let node = NodeClient::when_joined(&options.kubeconfig).await?;
    let tasks = Tasks::new();
    let config = ProxyConfig {
        node: options.hostname_override.clone(),
        cluster_cidr: options.cluster_cidr,
        local_addresses: options.local_address.clone(),
    };
    let proxy = Arc::new(Proxy::start(config, node.client.clone(), &tasks));
    let health = Health::new();
    let of = proxy.clone();
    health.add_live(
        "table",
        Arc::new(move || {
            if of.is_healthy() {
                Ok(())
            } else {
                Err("the table is not in step".to_owned())
            }
        }),
    );
    let listener = TcpListener::bind(options.healthz_bind_address)
        .await
        .context("listening for health checks")?;
    serve_health(listener, health, Metrics::new(), &tasks);
    tracing::info!(node = options.hostname_override, address = ?options.node_ip, "kube-proxy started");
    tokio::select! {
        () = tasks.token().cancelled() => {
            anyhow::bail!("kube-proxy failed: {}", tasks.failure().unwrap_or_default());
        }
        () = node.renewed() => {
            tracing::info!("the node has a new certificate; starting anew with it");
            Ok(())
        }
    }
}
