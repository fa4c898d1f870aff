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
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::Parser;
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::{Client, Config};
use minato_runtime::{Informers, Tasks};
use tokio::signal::unix::{SignalKind, signal};

use forward::Upstreams;
use zone::Zone;

#[derive(Parser)]
#[command(name = "minato-dns", about = "Cluster DNS on a node")]
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

/// How often a file that another process writes is looked at.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_FOR_RENEWAL: Duration = Duration::from_secs(60);

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
    // The kubelet writes it once the node has joined.
    while !options.kubeconfig.exists() {
        tokio::time::sleep(LOOK).await;
    }
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig).context("reading the kubeconfig")?;
    let credential = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|user| user.auth_info.as_ref()?.client_certificate.as_ref())
        .map(PathBuf::from)
        .next();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let tasks = Tasks::new();
    let informers = Informers::new(Client::try_from(config)?, tasks.clone());
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
        () = renewed(credential) => {
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

/// Ends when the file with the node's certificate has changed; the supervisor starts the program again.
async fn renewed(file: Option<PathBuf>) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    let modified = || -> Option<SystemTime> { std::fs::metadata(&file).ok()?.modified().ok() };
    let first = modified();
    while modified() == first {
        tokio::time::sleep(LOOK_FOR_RENEWAL).await;
    }
}
