//! `minato manager`: the management plane.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use minato_auth::UserInfo;
use minato_control_plane::{Config, ControlPlane, Management, Role};
use minato_fleet::{DeletionProtection, EtcdHosting, EtcdHostingConfig, Fleet, ProcessHosting, ProcessHostingConfig};
use minato_runtime::{Metrics, Runtime, Tasks};

use crate::clouds::KnownClouds;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for the management API's keys and store.
    #[arg(long)]
    directory: PathBuf,
    /// Where the management API listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Directory for tenants' control planes.
    #[arg(long)]
    tenants: PathBuf,
    /// Socket of the mock cloud.
    #[arg(long)]
    cloud_socket: PathBuf,
    /// The same socket as seen from a tenant's directory, whose user cannot pass through the directories above.
    #[arg(long)]
    tenant_cloud_socket: PathBuf,
    /// File with the mock cloud's token.
    #[arg(long)]
    cloud_token_file: PathBuf,
    /// Name of the cgroup above the tenants' own.
    #[arg(long, default_value = "minato")]
    cgroup: String,
    /// Client URL of a member of the etcd for clusters that ask for one; may be given several times. It must speak TLS and
    /// have authentication on, with a user `root`.
    #[arg(long = "etcd", requires_all = ["etcd_ca", "etcd_ca_key"])]
    etcd: Vec<String>,
    /// File with the certificate authority that this etcd trusts.
    #[arg(long, requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// File with that authority's key, which makes the certificates of clusters and of root.
    #[arg(long, requires = "etcd")]
    etcd_ca_key: Option<PathBuf>,
}

/// Runs until it is asked to end; tenants' control planes keep running, and are taken over by the next run.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let token = std::fs::read_to_string(&options.cloud_token_file)
        .with_context(|| format!("reading {}", options.cloud_token_file.display()))?;
    let etcd = match (options.etcd_ca, options.etcd_ca_key) {
        (Some(authority), Some(authority_key)) => Some(EtcdHosting::new(EtcdHostingConfig {
            endpoints: options.etcd,
            authority,
            authority_key,
        })),
        _ => None,
    };
    let hosting = ProcessHosting::new(ProcessHostingConfig {
        root: options.tenants,
        program: std::env::current_exe()?,
        cloud_arguments: vec![
            "--cloud=mock".to_owned(),
            format!("--cloud-socket={}", options.tenant_cloud_socket.display()),
        ],
        cgroup: options.cgroup,
        etcd,
    })?;
    let role = Management {
        resources: minato_fleet::resources()?,
        admission: vec![Arc::new(DeletionProtection)],
    };
    let plane = ControlPlane::start(Config {
        listen: options.listen,
        role: Role::Management(role),
        ..Config::new("minato", options.directory)
    })
    .await
    .context("cannot start the management API")?;
    let tasks = Tasks::new();
    let client = plane.server().client_as(UserInfo {
        name: "system:minato:fleet".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    });
    let runtime = Runtime::new(client, tasks.clone(), Metrics::new());
    let clouds = KnownClouds::new(options.cloud_socket, token.trim().to_owned());
    Fleet::start(&runtime, Arc::new(hosting), Arc::new(clouds));
    tokio::select! {
        asked = crate::asked_to_end() => asked?,
        // A panic of one controller ends the manager, and whoever supervises it starts it anew.
        () = tasks.token().cancelled() => {}
    }
    let failure = tasks.failure();
    tasks.stop().await;
    plane.stop().await;
    match failure {
        Some(failure) => Err(anyhow::anyhow!(failure)),
        None => Ok(()),
    }
}
