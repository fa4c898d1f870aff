//! `minato control-plane`: one control plane in the foreground.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use minato_control_plane::{Config, ControlPlane, EtcdOptions, EtcdTls, Role, Storage, Workloads};
use minato_provider_interface::{CloudProvider, ClusterId};
use minato_provider_mock::MockProvider;
use minato_provider_mock::remote::RemoteCloud;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

/// Clouds that this binary knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cloud {
    Mock,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the cluster.
    #[arg(long, default_value = "local")]
    name: String,
    /// Directory for its keys, store and kubeconfig.
    #[arg(long)]
    directory: PathBuf,
    /// Where its API server listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where nodes and pods reach it, if that is elsewhere.
    #[arg(long)]
    advertise: Option<SocketAddr>,
    /// Further addresses that clients use, for the serving certificate.
    #[arg(long)]
    address: Vec<IpAddr>,
    /// Range of Service addresses.
    #[arg(long, default_value = "10.96.0.0/16")]
    service_cidr: IpNet,
    /// Range of pod addresses.
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: IpNet,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    dns_domain: String,
    /// The cluster's id in its cloud.
    #[arg(long, requires = "cloud")]
    cluster_id: Option<String>,
    /// The cloud that its nodes live in; without one, no cloud controller manager runs.
    #[arg(long, requires = "cluster_id")]
    cloud: Option<Cloud>,
    /// Socket of the mock cloud.
    #[arg(long)]
    cloud_socket: Option<PathBuf>,
    /// File with what proves this cluster to its cloud.
    #[arg(long)]
    cloud_credential_file: Option<PathBuf>,
    #[command(flatten)]
    etcd: Etcd,
    /// User and group number to run as; started as root, it gives up everything else.
    #[arg(long)]
    user: Option<u32>,
    /// Read by [`become_user`], while that is still possible.
    #[arg(skip)]
    cloud_credential: std::sync::OnceLock<String>,
    /// The same.
    #[arg(skip)]
    storage: std::sync::OnceLock<Storage>,
}

/// An etcd to keep the objects in, instead of a file in the directory.
#[derive(Debug, Args)]
struct Etcd {
    /// Client URL of an etcd member; may be given several times.
    #[arg(long = "etcd")]
    endpoint: Vec<String>,
    /// What every key begins with.
    #[arg(long = "etcd-prefix", default_value = "/minato/local", requires = "endpoint")]
    prefix: String,
    /// File with the certificate authority of the members; with it, a certificate and key of ours are needed.
    #[arg(long = "etcd-ca", requires_all = ["endpoint", "certificate", "key"])]
    authority: Option<PathBuf>,
    /// File with our certificate, whose common name is our user.
    #[arg(long = "etcd-certificate", requires = "authority")]
    certificate: Option<PathBuf>,
    /// File with its key.
    #[arg(long = "etcd-key", requires = "authority")]
    key: Option<PathBuf>,
}

impl Etcd {
    fn storage(&self) -> anyhow::Result<Storage> {
        if self.endpoint.is_empty() {
            return Ok(Storage::Embedded);
        }
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        let mut options = EtcdOptions::new(self.endpoint.clone(), &self.prefix);
        if let (Some(authority), Some(certificate), Some(key)) = (&self.authority, &self.certificate, &self.key) {
            options.tls = Some(EtcdTls {
                authority: read(authority)?,
                certificate: read(certificate)?,
                key: read(key)?,
            });
        }
        Ok(Storage::Etcd(options))
    }
}

/// Reads what only root may, then becomes the user that was asked for.
pub(crate) fn become_user(options: &Options) -> anyhow::Result<()> {
    if let Some(path) = &options.cloud_credential_file {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        // Nobody else sets it.
        let _ = options.cloud_credential.set(text.trim().to_owned());
    }
    let _ = options.storage.set(options.etcd.storage()?);
    if let Some(user) = options.user {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        setgroups(&[]).context("giving up the groups of root")?;
        setresgid(gid, gid, gid).context("changing the group")?;
        setresuid(uid, uid, uid).context("changing the user")?;
    }
    Ok(())
}

/// Runs until it is asked to end.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let cloud = cloud(&options)?;
    let workloads = Workloads {
        service_cidr: options.service_cidr,
        cluster_cidr: Some(options.cluster_cidr),
        dns_domain: options.dns_domain,
        cloud,
        ..Workloads::default()
    };
    let config = Config {
        listen: options.listen,
        advertise: options.advertise,
        server_addresses: options.address,
        storage: options.storage.into_inner().unwrap_or_default(),
        role: Role::Workloads(workloads),
        ..Config::new(&options.name, options.directory)
    };
    let plane = ControlPlane::start(config)
        .await
        .with_context(|| format!("cannot start control plane {}", options.name))?;
    let settled = async {
        tokio::time::sleep(SETTLED).await;
        give_back();
        std::future::pending().await
    };
    tokio::select! {
        ended = crate::asked_to_end() => ended?,
        () = settled => {}
    }
    plane.stop().await;
    Ok(())
}

/// When components have long read what there is, and what that took is free.
const SETTLED: Duration = Duration::from_secs(10);

/// Returns memory that is free to the system. The allocator does so by itself only at the end of its areas, and what a
/// start leaves free is a fifth of what an idle control plane would hold.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's own interface is the only one")]
fn give_back() {
    // SAFETY: malloc_trim(3) takes no pointer, frees nothing that is in use, and may be called by any thread.
    unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn give_back() {}

fn cloud(options: &Options) -> anyhow::Result<Option<Arc<dyn CloudProvider>>> {
    match options.cloud {
        None => Ok(None),
        Some(Cloud::Mock) => {
            let Some(socket) = &options.cloud_socket else {
                bail!("--cloud=mock needs --cloud-socket, the mock cloud's socket");
            };
            let credential = options.cloud_credential.get().cloned().unwrap_or_default();
            let cluster = ClusterId(options.cluster_id.clone().unwrap_or_default());
            let endpoint = Arc::new(RemoteCloud::new(socket, credential));
            Ok(Some(Arc::new(MockProvider::new(endpoint, cluster))))
        }
    }
}
