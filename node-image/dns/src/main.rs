//! Cluster DNS on a node: answers for the cluster's zone from informers, asks the machine's resolvers for everything else.
//!
//! ```text
//! pod ─ address of the kube-dns Service, which the node's loopback interface has ─ server ─┬─ zone (pure)
//!                                                                                       └─ forward
//! ```
//!
//! Each node answers by itself, so a lookup does not leave it, and goes on while the API server is away. May depend on:
//! `minato-api`, `minato-runtime`. Source: <https://github.com/kubernetes/dns/blob/master/docs/specification.md>.

mod forward;
mod server;
mod zone;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Parser;
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_runtime::{Informers, NodeClient, Tasks};
use tokio::signal::unix::{SignalKind, signal};

use forward::Upstreams;
use zone::Zone;

#[derive(Parser)]
#[command(name = "minato-dns", version, about = "Cluster DNS on a node")]
struct Options {
    /// Kubeconfig of the node; waited for until it is there.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Addresses to answer at; put on the loopback interface.
    #[arg(long, required = true)]
    address: Vec<IpAddr>,
    /// Port to answer at.
    #[arg(long, default_value_t = 53)]
    port: u16,
    /// Where the machine's own resolvers are listed.
    #[arg(long, default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
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
    let informers = Informers::new(node.client.clone(), tasks.clone());
    let (services, slices) = (informers.of::<Service>(), informers.of::<EndpointSlice>());
    let zone = Zone::new(&options.cluster_domain, services.clone(), slices.clone())?;
    services.synced().await;
    slices.synced().await;
    let zone = Arc::new(zone);
    let upstreams = Arc::new(Upstreams::read(&options.resolv_conf, &options.address));
    for address in &options.address {
        own(*address)?;
        server::start(SocketAddr::new(*address, options.port), &zone, &upstreams, &tasks).await?;
    }
    tracing::info!(addresses = ?options.address, domain = options.cluster_domain, "answering");
    tokio::select! {
        () = tasks.token().cancelled() => anyhow::bail!("failed: {}", tasks.failure().unwrap_or_default()),
        () = node.renewed() => {
            tracing::info!("the node has a new certificate; starting anew with it");
            Ok(())
        }
    }
}

/// Puts the address on the loopback interface, where it stays: there is nobody else on the node who would answer.
fn own(address: IpAddr) -> anyhow::Result<()> {
    if address.is_loopback() {
        return Ok(());
    }
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let output = std::process::Command::new("ip")
        .args(["address", "replace", &format!("{address}/{prefix}"), "dev", "lo"])
        .output()
        .context("running ip (package iproute2)")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "putting {address} on the loopback interface failed: {text}"
    );
    Ok(())
}
