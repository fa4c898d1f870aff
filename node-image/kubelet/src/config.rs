//! The configuration file: a part of upstream's `KubeletConfiguration`. A field that is not here is an error that names it:
//! silence would mean another behaviour than the one asked for.
//!
//! Source: <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::settings::SettingsError;

/// What the file may say; defaults are upstream's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletConfiguration {
    /// `kubelet.config.k8s.io/v1beta1`.
    pub api_version: String,
    /// `KubeletConfiguration`.
    pub kind: String,
    /// Name servers of pods with DNS policy ClusterFirst.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
    /// `unix://` and the runtime's socket.
    pub container_runtime_endpoint: String,
    /// Cgroup under which `kubepods` is made.
    pub cgroup_root: String,
    /// Most pods on the node.
    pub max_pods: u32,
    /// Address to serve on.
    pub address: IpAddr,
    /// Port to serve on.
    pub port: u16,
    /// How often the node's status is computed.
    #[serde(deserialize_with = "duration")]
    pub node_status_update_frequency: Duration,
    /// How often an unchanged status is sent all the same.
    #[serde(deserialize_with = "duration")]
    pub node_status_report_frequency: Duration,
    /// Life of the node's lease; renewed at a quarter of it.
    pub node_lease_duration_seconds: u32,
    /// Who may ask.
    pub authentication: Authentication,
    /// Who may get what.
    pub authorization: Authorization,
    /// Directory with manifests of static pods.
    pub static_pod_path: PathBuf,
    /// Resolver configuration of the host, for pods that inherit it.
    pub resolv_conf: PathBuf,
    /// Size at which a container's log is rotated, such as `10Mi`.
    pub container_log_max_size: String,
    /// Log files kept per container.
    pub container_log_max_files: u32,
    /// How often logs' sizes are looked at.
    #[serde(deserialize_with = "duration")]
    pub container_log_monitor_interval: Duration,
    /// Most processes in a pod; -1 for no limit.
    pub pod_pids_limit: i64,
    /// Whether CPU limits are enforced.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// Whether the serving certificate is asked of the cluster.
    pub server_tls_bootstrap: bool,
    /// Whether certificates are renewed before they end.
    pub rotate_certificates: bool,
}

impl Default for KubeletConfiguration {
    fn default() -> Self {
        Self {
            api_version: String::new(),
            kind: String::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            cgroup_root: "/".to_owned(),
            max_pods: 110,
            address: IpAddr::from([0, 0, 0, 0]),
            port: 10250,
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(300),
            node_lease_duration_seconds: 40,
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            static_pod_path: PathBuf::new(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            container_log_max_size: "10Mi".to_owned(),
            container_log_max_files: 5,
            container_log_monitor_interval: Duration::from_secs(10),
            pod_pids_limit: -1,
            cpu_cfs_quota: true,
            server_tls_bootstrap: true,
            rotate_certificates: true,
        }
    }
}

/// `authentication`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authentication {
    /// By client certificate.
    pub x509: X509,
    /// By token, asked of the API server.
    pub webhook: Webhook,
    /// Without credentials.
    pub anonymous: Anonymous,
}

/// `authentication.x509`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct X509 {
    /// File with the certificates that client certificates must be signed by.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: PathBuf,
}

/// `authentication.webhook`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// Whether tokens are accepted.
    pub enabled: bool,
    /// How long an answer is remembered.
    #[serde(rename = "cacheTTL", deserialize_with = "duration")]
    pub cache_ttl: Duration,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            enabled: true,
            cache_ttl: Duration::from_secs(120),
        }
    }
}

/// `authentication.anonymous`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Anonymous {
    /// Whether requests without credentials are those of `system:anonymous`.
    pub enabled: bool,
}

/// `authorization`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authorization {
    /// `Webhook` or `AlwaysAllow`.
    pub mode: String,
    /// For the mode `Webhook`.
    pub webhook: AuthorizationWebhook,
}

impl Default for Authorization {
    fn default() -> Self {
        Self {
            mode: "Webhook".to_owned(),
            webhook: AuthorizationWebhook::default(),
        }
    }
}

/// `authorization.webhook`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuthorizationWebhook {
    /// How long a permission is remembered.
    #[serde(rename = "cacheAuthorizedTTL", deserialize_with = "duration")]
    pub cache_authorized_ttl: Duration,
    /// How long a refusal is remembered.
    #[serde(rename = "cacheUnauthorizedTTL", deserialize_with = "duration")]
    pub cache_unauthorized_ttl: Duration,
}

impl Default for AuthorizationWebhook {
    fn default() -> Self {
        Self {
            cache_authorized_ttl: Duration::from_secs(300),
            cache_unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

/// Go's notation of durations: `10s`, `1m30s`, `100ms`.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    (!text.is_empty())
        .then(|| Duration::try_from_secs_f64(total).ok())
        .flatten()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not a duration such as 10s")))
}

/// Reads a configuration file.
///
/// # Errors
/// It cannot be read, is not YAML, has an unknown field or another kind.
pub(crate) fn read_config(path: &Path) -> Result<KubeletConfiguration, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::File {
        path: path.to_owned(),
        source,
    })?;
    let config = parse_config(&text).map_err(|message| SettingsError::Config {
        path: path.to_owned(),
        message,
    })?;
    Ok(config)
}

fn parse_config(text: &str) -> Result<KubeletConfiguration, String> {
    let config: KubeletConfiguration = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    if config.api_version != "kubelet.config.k8s.io/v1beta1" || config.kind != "KubeletConfiguration" {
        return Err(format!(
            "expected a KubeletConfiguration of kubelet.config.k8s.io/v1beta1, not {:?} of {:?}",
            config.kind, config.api_version
        ));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    #[test]
    fn known_fields_are_read() {
        let text = format!(
            "{HEAD}clusterDNS: [10.96.0.10]\nnodeStatusUpdateFrequency: 1m30s\nauthentication:\n  x509:\n    clientCAFile: /ca.crt\n"
        );
        let config = parse_config(&text).unwrap();
        assert_eq!(config.cluster_dns, ["10.96.0.10".parse::<IpAddr>().unwrap()]);
        assert_eq!(config.node_status_update_frequency, Duration::from_secs(90));
        assert_eq!(config.authentication.x509.client_ca_file, Path::new("/ca.crt"));
        assert_eq!(config.max_pods, 110);
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = parse_config(&format!("{HEAD}evictionHard: {{}}\n")).unwrap_err();
        assert!(error.contains("evictionHard"), "{error}");
        assert!(parse_config("kind: Pod\napiVersion: v1\n").is_err());
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(parse_duration("1h2m3s"), Some(Duration::from_secs(3723)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("10"), None);
        assert_eq!(parse_duration(""), None);
        assert_eq!(parse_duration("5x"), None);
    }
}
