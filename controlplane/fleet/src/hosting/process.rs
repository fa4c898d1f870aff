//! A process of its own for each control plane: own user, own cgroup, own directory.
//!
//! ```text
//! <root>/tenants/<id>/        the tenant's: keys, store; its working directory, for its user alone
//! <root>/hosting/<id>/        ours: identity, process record, log
//! ```
//!
//! Processes outlive this one: a manager that starts again finds them by their records.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use minato_pki::ClusterPki;
use parking_lot::Mutex;

use super::etcd::EtcdHosting;
use super::identity::{self, Identity};
use super::{EndHandler, Hosted, Hosting, HostingError, Tenant};
use crate::cgroup::{Cgroup, Limits};
use crate::process::{Detached, Launch};

/// How long a control plane may take to drain.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// One that ran this long is started again at once.
const STEADY: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Bounds of a runaway control plane; an idle one takes a small part of it.
const LIMITS: Limits = Limits {
    memory: 2 << 30,
    tasks: 1024,
};
/// File with the tenant's cloud credential, in its directory.
const CLOUD_CREDENTIAL: &str = "cloud-credential";
/// Directory with what the tenant proves itself to etcd with, among its records: there is one if it has anything in etcd.
const ETCD: &str = "etcd";

/// Settings of process hosting.
#[derive(Debug, Clone)]
pub struct ProcessHostingConfig {
    /// Directory for all tenants.
    pub root: PathBuf,
    /// The executable with the `control-plane` subcommand.
    pub program: PathBuf,
    /// Arguments that say how to reach the cloud; paths relative to a tenant's directory.
    pub cloud_arguments: Vec<String>,
    /// Name of the cgroup above the tenants' own.
    pub cgroup: String,
    /// The etcd of tenants that ask for one.
    pub etcd: Option<EtcdHosting>,
}

#[derive(Default)]
struct Attempts {
    last: Option<Instant>,
    quick_ends: u32,
}

struct Inner {
    config: ProcessHostingConfig,
    running: Mutex<HashMap<String, Detached>>,
    attempts: Mutex<HashMap<String, Attempts>>,
    handlers: Mutex<Vec<EndHandler>>,
    identities: Mutex<()>,
}

/// Hosting by processes of this machine. Cheap to clone.
#[derive(Clone)]
pub struct ProcessHosting {
    inner: Arc<Inner>,
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> HostingError {
    let what = what.into();
    move |source| HostingError::Io { what, source }
}

impl ProcessHosting {
    /// Hosting below `config.root`, which is made.
    ///
    /// # Errors
    /// The directories cannot be made.
    pub fn new(config: ProcessHostingConfig) -> Result<Self, HostingError> {
        // Tenants' users pass through, and see nothing.
        for directory in [config.root.clone(), config.root.join("tenants")] {
            make_directory(&directory, 0o711)?;
        }
        make_directory(&config.root.join("hosting"), 0o700)?;
        let inner = Inner {
            config,
            running: Mutex::default(),
            attempts: Mutex::default(),
            handlers: Mutex::default(),
            identities: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn directory(&self, id: &str) -> PathBuf {
        self.inner.config.root.join("tenants").join(id)
    }

    fn records(&self, id: &str) -> PathBuf {
        self.inner.config.root.join("hosting").join(id)
    }

    fn identity(&self, id: &str) -> Result<Identity, HostingError> {
        let _one_at_a_time = self.inner.identities.lock();
        make_directory(&self.records(id), 0o700)?;
        identity::ensure(&self.inner.config.root.join("hosting"), id)
    }

    fn cgroup(&self, id: &str) -> Cgroup {
        Cgroup::new(format!("{}/{id}", self.inner.config.cgroup))
    }

    /// Keys and credential, made before the tenant's user owns the directory: never written by root afterwards.
    fn prepare(&self, id: &str, name: &str) -> Result<(), HostingError> {
        let directory = self.directory(id);
        if directory.exists() {
            return Ok(());
        }
        let user = self.identity(id)?.user;
        let fresh = directory.with_extension("new");
        remove_directory(&fresh)?;
        make_directory(&fresh, 0o700)?;
        ClusterPki::load_or_create(&fresh.join("pki"), name)?;
        give(&fresh, user)?;
        std::fs::rename(&fresh, &directory).map_err(io(format!("making {}", directory.display())))
    }

    fn etcd(&self) -> Result<&EtcdHosting, HostingError> {
        let none = || HostingError::Etcd("this management plane has none".to_owned());
        self.inner.config.etcd.as_ref().ok_or_else(none)
    }

    fn arguments(&self, tenant: &Tenant, identity: Identity) -> Result<Vec<String>, HostingError> {
        let mut arguments: Vec<String> = vec!["control-plane".to_owned()];
        let flags = [
            ("name", tenant.name.clone()),
            ("directory", ".".to_owned()),
            (
                "listen",
                SocketAddr::from((Ipv4Addr::LOCALHOST, identity.port)).to_string(),
            ),
            ("advertise", tenant.advertise.to_string()),
            ("service-cidr", tenant.service_cidr.to_string()),
            ("cluster-cidr", tenant.cluster_cidr.to_string()),
            ("dns-domain", tenant.dns_domain.clone()),
            ("cluster-id", tenant.id.clone()),
            ("user", identity.user.to_string()),
            (
                "cloud-credential-file",
                format!("../../hosting/{}/{CLOUD_CREDENTIAL}", tenant.id),
            ),
        ];
        arguments.extend(flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")));
        if tenant.in_etcd {
            let endpoints = self.etcd()?.endpoints().iter();
            arguments.extend(endpoints.map(|endpoint| format!("--etcd={endpoint}")));
            arguments.push(format!("--etcd-prefix={}", EtcdHosting::prefix(&tenant.id)));
            let file = |(flag, name)| format!("--etcd-{flag}=../../hosting/{}/{ETCD}/{name}", tenant.id);
            arguments.extend([("ca", "ca.crt"), ("certificate", "tls.crt"), ("key", "tls.key")].map(file));
        }
        arguments.extend(self.inner.config.cloud_arguments.iter().cloned());
        Ok(arguments)
    }

    /// The process, if it runs: this manager's, or one of an earlier manager.
    fn find(&self, id: &str) -> Option<Detached> {
        let mut running = self.inner.running.lock();
        if let Some(process) = running.get(id) {
            if process.is_running() {
                return Some(process.clone());
            }
            running.remove(id);
        }
        let process = Detached::find(&self.records(id).join("process.json"))?;
        running.insert(id.to_owned(), process.clone());
        drop(running);
        tracing::info!(cluster = id, pid = process.pid(), "control plane found running");
        self.watch(id, &process);
        Some(process)
    }

    fn watch(&self, id: &str, process: &Detached) {
        let (this, id, process) = (self.clone(), id.to_owned(), process.clone());
        tokio::spawn(async move {
            process.ended().await;
            for handler in this.inner.handlers.lock().iter() {
                handler(&id);
            }
        });
    }

    /// How long to wait before the next start; counts the attempt when it is now.
    fn pause(&self, id: &str) -> Option<Duration> {
        let mut attempts = self.inner.attempts.lock();
        let attempt = attempts.entry(id.to_owned()).or_default();
        let Some(last) = attempt.last else {
            attempt.last = Some(Instant::now());
            return None;
        };
        let since = last.elapsed();
        if since >= STEADY {
            attempt.quick_ends = 0;
        }
        let pause = match attempt.quick_ends {
            0 => Duration::ZERO,
            n => Duration::from_millis(100)
                .saturating_mul(1 << n.min(12))
                .min(LONGEST_PAUSE),
        };
        if since < pause {
            return Some(pause - since);
        }
        attempt.last = Some(Instant::now());
        attempt.quick_ends += 1;
        None
    }

    async fn start(&self, tenant: &Tenant, arguments: Vec<String>) -> Result<(), HostingError> {
        let records = self.records(&tenant.id);
        minato_pki::write_private(&records.join(CLOUD_CREDENTIAL), &tenant.cloud_credential)?;
        if tenant.in_etcd {
            let directory = records.join(ETCD);
            // Before anything is made there, so that a removal knows of it.
            make_directory(&directory, 0o700)?;
            let tls = self.etcd()?.provision(&tenant.id).await?;
            for (name, text) in [
                ("ca.crt", tls.authority),
                ("tls.crt", tls.certificate),
                ("tls.key", tls.key),
            ] {
                minato_pki::write_private(&directory.join(name), &text)?;
            }
        }
        let process = Detached::start(&Launch {
            program: &self.inner.config.program,
            arguments,
            directory: &self.directory(&tenant.id),
            log: &records.join("log"),
            record: &records.join("process.json"),
        })?;
        if let Err(error) = self.cgroup(&tenant.id).confine(process.pid(), LIMITS) {
            process.stop(STOP_GRACE).await?;
            return Err(io("confining the control plane to its cgroup")(error));
        }
        tracing::info!(cluster = tenant.name, pid = process.pid(), "control plane started");
        self.inner.running.lock().insert(tenant.id.clone(), process.clone());
        self.watch(&tenant.id, &process);
        Ok(())
    }
}

#[async_trait]
impl Hosting for ProcessHosting {
    fn address(&self, id: &str) -> Result<SocketAddr, HostingError> {
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, self.identity(id)?.port)))
    }

    fn pki(&self, id: &str, name: &str) -> Result<ClusterPki, HostingError> {
        self.prepare(id, name)?;
        Ok(ClusterPki::load_or_create(&self.directory(id).join("pki"), name)?)
    }

    async fn ensure(&self, tenant: &Tenant) -> Result<Hosted, HostingError> {
        self.prepare(&tenant.id, &tenant.name)?;
        let arguments = self.arguments(tenant, self.identity(&tenant.id)?)?;
        if let Some(process) = self.find(&tenant.id) {
            if process.arguments() == arguments {
                return Ok(Hosted::Running);
            }
            tracing::info!(
                cluster = tenant.name,
                "settings changed; starting the control plane anew"
            );
            process.stop(STOP_GRACE).await?;
        }
        if let Some(pause) = self.pause(&tenant.id) {
            return Ok(Hosted::Restarting(pause));
        }
        self.start(tenant, arguments).await?;
        Ok(Hosted::Running)
    }

    async fn stop(&self, id: &str) -> Result<(), HostingError> {
        if let Some(process) = self.find(id) {
            process.stop(STOP_GRACE).await?;
        }
        self.inner.running.lock().remove(id);
        Ok(())
    }

    async fn remove(&self, id: &str) -> Result<(), HostingError> {
        self.stop(id).await?;
        self.cgroup(id)
            .remove()
            .await
            .map_err(io("removing the control plane's cgroup"))?;
        if self.records(id).join(ETCD).exists() {
            self.etcd()?.remove(id).await?;
        }
        remove_directory(&self.directory(id))?;
        // Last, because it says which user and port are taken.
        remove_directory(&self.records(id))?;
        self.inner.attempts.lock().remove(id);
        Ok(())
    }

    fn on_end(&self, handler: EndHandler) {
        self.inner.handlers.lock().push(handler);
    }
}

fn make_directory(path: &Path, mode: u32) -> Result<(), HostingError> {
    let make = || {
        std::fs::create_dir_all(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    make().map_err(io(format!("making {}", path.display())))
}

fn remove_directory(path: &Path) -> Result<(), HostingError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Makes everything below `path` the user's own.
fn give(path: &Path, user: u32) -> Result<(), HostingError> {
    let failed = || io(format!("giving {} to user {user}", path.display()));
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).map_err(failed())? {
            give(&entry.map_err(failed())?.path(), user)?;
        }
    }
    std::os::unix::fs::lchown(path, Some(user), Some(user)).map_err(failed())
}
