//! What the kubelet runs with, after flags and file were read and checked.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use minato_api::k8s::core::v1::Taint;
use minato_meta::Quantity;

use crate::config::{AuthorizationWebhook, KubeletConfiguration};
use crate::options::Options;

/// Why the settings are no good.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("reading {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration file says something that is not known or not allowed.
    #[error("{}: {message}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A value is not allowed.
    #[error("{field}: {message}")]
    Value {
        /// Flag or field.
        field: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// The settings. Made from the command line by [`Options::settings`].
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) node_name: String,
    pub(crate) node_ip: Option<IpAddr>,
    pub(crate) provider_id: Option<String>,
    pub(crate) external_cloud: bool,
    pub(crate) tunnel: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cert_dir: PathBuf,
    pub(crate) root_dir: PathBuf,
    pub(crate) pod_logs_dir: PathBuf,
    pub(crate) container_logs_dir: PathBuf,
    pub(crate) cni_conf_dir: Option<PathBuf>,
    pub(crate) static_pod_path: Option<PathBuf>,
    pub(crate) runtime_socket: PathBuf,
    pub(crate) cgroup_root: String,
    pub(crate) max_pods: u32,
    pub(crate) serve_on: SocketAddr,
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    pub(crate) resolv_conf: PathBuf,
    pub(crate) status_update: Duration,
    pub(crate) status_report: Duration,
    pub(crate) lease: Duration,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) tokens: bool,
    pub(crate) token_ttl: Duration,
    pub(crate) anonymous: bool,
    pub(crate) always_allow: bool,
    pub(crate) authorization: AuthorizationWebhook,
    pub(crate) log_size: u64,
    pub(crate) log_files: usize,
    pub(crate) log_interval: Duration,
    pub(crate) pids_limit: Option<u64>,
    pub(crate) cpu_quota: bool,
    pub(crate) serving_certificate: bool,
    pub(crate) rotate: bool,
}

fn bad(field: &'static str, message: impl Into<String>) -> SettingsError {
    SettingsError::Value {
        field,
        message: message.into(),
    }
}

fn some_path(path: PathBuf) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then_some(path)
}

impl Settings {
    pub(crate) fn new(options: Options, config: KubeletConfiguration) -> Result<Self, SettingsError> {
        let node_name = match options.hostname_override {
            Some(name) => name,
            None => nix::unistd::gethostname()
                .map_err(|error| bad("--hostname-override", error.to_string()))?
                .to_string_lossy()
                .into_owned(),
        };
        let node_name = node_name.trim().to_lowercase();
        if node_name.is_empty() {
            return Err(bad("--hostname-override", "the node has no name"));
        }
        if !matches!(options.cloud_provider.as_str(), "" | "external") {
            return Err(bad("--cloud-provider", "only `external` or nothing"));
        }
        let socket = config
            .container_runtime_endpoint
            .strip_prefix("unix://")
            .ok_or_else(|| bad("containerRuntimeEndpoint", "must begin with unix://"))?;
        let log_size: Quantity = config
            .container_log_max_size
            .parse()
            .map_err(|_| bad("containerLogMaxSize", "not a quantity"))?;
        let log_size = u64::try_from(log_size.units())
            .ok()
            .filter(|size| *size > 0)
            .ok_or_else(|| bad("containerLogMaxSize", "must be positive"))?;
        if config.container_log_max_files < 2 {
            return Err(bad("containerLogMaxFiles", "must be at least 2"));
        }
        if config.container_log_monitor_interval.is_zero() {
            return Err(bad("containerLogMonitorInterval", "must be positive"));
        }
        if config.node_lease_duration_seconds == 0 {
            return Err(bad("nodeLeaseDurationSeconds", "must be positive"));
        }
        if config.node_status_update_frequency.is_zero() {
            return Err(bad("nodeStatusUpdateFrequency", "must be positive"));
        }
        let always_allow = match config.authorization.mode.as_str() {
            "Webhook" => false,
            "AlwaysAllow" => true,
            other => return Err(bad("authorization.mode", format!("unknown mode {other:?}"))),
        };
        Ok(Self {
            node_name,
            node_ip: options.node_ip,
            provider_id: options.provider_id.filter(|id| !id.is_empty()),
            external_cloud: options.cloud_provider == "external",
            tunnel: options.tunnel,
            labels: options.node_labels.0,
            taints: options.register_with_taints.0,
            bootstrap_kubeconfig: options.bootstrap_kubeconfig,
            kubeconfig: options.kubeconfig,
            cert_dir: options.cert_dir,
            root_dir: options.root_dir,
            pod_logs_dir: options.pod_logs_dir,
            container_logs_dir: options.container_logs_dir,
            cni_conf_dir: some_path(options.cni_conf_dir),
            static_pod_path: some_path(config.static_pod_path.clone()),
            runtime_socket: PathBuf::from(socket),
            cgroup_root: config.cgroup_root.trim_matches('/').to_owned(),
            max_pods: config.max_pods,
            serve_on: SocketAddr::new(config.address, config.port),
            cluster_dns: config.cluster_dns,
            cluster_domain: config.cluster_domain,
            resolv_conf: config.resolv_conf,
            status_update: config.node_status_update_frequency,
            status_report: config.node_status_report_frequency,
            lease: Duration::from_secs(config.node_lease_duration_seconds.into()),
            client_ca_file: some_path(config.authentication.x509.client_ca_file),
            tokens: config.authentication.webhook.enabled,
            token_ttl: config.authentication.webhook.cache_ttl,
            anonymous: config.authentication.anonymous.enabled,
            always_allow,
            authorization: config.authorization.webhook,
            log_size,
            log_files: config.container_log_max_files as usize,
            log_interval: config.container_log_monitor_interval,
            pids_limit: u64::try_from(config.pod_pids_limit).ok(),
            cpu_quota: config.cpu_cfs_quota,
            serving_certificate: config.server_tls_bootstrap,
            rotate: config.rotate_certificates,
        })
    }

    /// The directory of one pod's files.
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }

    /// The directory of one pod's logs.
    pub(crate) fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.pod_logs_dir.join(format!("{namespace}_{name}_{uid}"))
    }
}
