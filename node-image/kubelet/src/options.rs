//! The command line, with upstream's flag names.
//!
//! Source: <https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/>.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use minato_api::k8s::core::v1::Taint;

use crate::config::{KubeletConfiguration, read_config};
use crate::settings::{Settings, SettingsError};

/// Flags of the kubelet.
#[derive(Debug, Clone, clap::Parser)]
#[command(
    name = "kubelet",
    version,
    about = "The node agent: runs the pods that are bound to its node"
)]
pub struct Options {
    /// File with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), YAML or JSON.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Kubeconfig with a token, used once to get a client certificate.
    #[arg(long)]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the node itself; written after bootstrapping.
    #[arg(long, default_value = "/var/lib/kubelet/kubeconfig")]
    pub kubeconfig: PathBuf,
    /// Directory for certificates and keys.
    #[arg(long, default_value = "/var/lib/kubelet/pki")]
    pub cert_dir: PathBuf,
    /// Directory for pods' volumes and other files.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Name of the node instead of the host's.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// Address of the node.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// The instance's identity in its cloud.
    #[arg(long)]
    pub provider_id: Option<String>,
    /// `external` when a cloud controller manager initializes the node; empty for no cloud.
    #[arg(long, default_value = "")]
    pub cloud_provider: String,
    /// Labels to register with, `key=value,…`.
    #[arg(long, default_value = "", value_parser = parse_labels)]
    pub node_labels: Labels,
    /// Taints to register with, `key=value:effect,…`.
    #[arg(long, default_value = "", value_parser = parse_taints)]
    pub register_with_taints: Taints,
    /// Directory in which the node's CNI configuration is written from its podCIDR; empty leaves that to others.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Keep a tunnel to the API server up, for a control plane that cannot reach its nodes.
    #[arg(long)]
    pub tunnel: bool,
    /// Directory for pods' logs.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_logs_dir: PathBuf,
    /// Directory with a link to each container's log.
    #[arg(long, default_value = "/var/log/containers")]
    pub container_logs_dir: PathBuf,
}

/// Labels from the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// Taints from the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taints(pub Vec<Taint>);

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn parse_labels(text: &str) -> Result<Labels, String> {
    let pair = |item: &str| match item.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{item:?} is not key=value")),
    };
    items(text).map(pair).collect::<Result<_, _>>().map(Labels)
}

fn parse_taints(text: &str) -> Result<Taints, String> {
    let taint = |item: &str| {
        let (head, effect) = item
            .rsplit_once(':')
            .ok_or_else(|| format!("{item:?} has no effect: key=value:effect"))?;
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            return Err(format!("{effect:?} is none of NoSchedule, PreferNoSchedule, NoExecute"));
        }
        let (key, value) = head.split_once('=').unwrap_or((head, ""));
        if key.is_empty() {
            return Err(format!("{item:?} has no key"));
        }
        Ok(Taint {
            key: key.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        })
    };
    items(text).map(taint).collect::<Result<_, _>>().map(Taints)
}

impl Options {
    /// Reads the configuration file and checks everything.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown field or a bad value, each by name.
    pub fn settings(self) -> Result<Settings, SettingsError> {
        let config = match &self.config {
            Some(path) => read_config(path)?,
            None => KubeletConfiguration::default(),
        };
        Settings::new(self, config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_read_or_refused() {
        let labels = parse_labels("a=b,c/d=").unwrap();
        assert_eq!(labels.0["a"], "b");
        assert_eq!(labels.0["c/d"], "");
        assert!(parse_labels("novalue").is_err());
        let taints = parse_taints("dedicated=db:NoSchedule,gone:NoExecute").unwrap().0;
        assert_eq!(
            (taints[0].key.as_str(), taints[0].value.as_deref()),
            ("dedicated", Some("db"))
        );
        assert_eq!((taints[1].key.as_str(), taints[1].value.as_deref()), ("gone", None));
        assert!(parse_taints("a=b:Sometimes").is_err());
        assert!(parse_taints("a=b").is_err());
    }
}
