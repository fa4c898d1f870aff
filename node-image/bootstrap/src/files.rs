//! What the node's agents are configured with.

use std::path::{Path, PathBuf};

use anyhow::Context;
use minato_api::k8s::core::v1::Taint;
use minato_pki::{Credential, kubeconfig_with, write_private};
use serde_json::json;

use crate::metadata::Instance;

/// Name of the sandbox image; one of the images that are loaded at boot.
const SANDBOX_IMAGE: &str = "minato.dev/pause:1";

/// Where the node's files are.
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(state: &Path) -> anyhow::Result<Self> {
        let root = state.join("etc");
        std::fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { root })
    }

    pub(crate) fn containerd_config(&self) -> PathBuf {
        self.root.join("containerd.toml")
    }
    fn kubelet_config(&self) -> PathBuf {
        self.root.join("kubelet.yaml")
    }
    fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.root.join("bootstrap.kubeconfig")
    }
    fn authority(&self) -> PathBuf {
        self.root.join("ca.crt")
    }
    /// Written by the kubelet once it has a certificate; the other agents use it too.
    fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }
}

/// Writes all of it.
pub(crate) fn write(layout: &Layout, instance: &Instance) -> anyhow::Result<()> {
    let config = &instance.config;
    write_private(&layout.containerd_config(), &containerd())?;
    write_private(&layout.authority(), &config.certificate_authority)?;
    let bootstrap = kubeconfig_with(
        &config.cluster_name,
        &config.api_server,
        &config.certificate_authority,
        "kubelet-bootstrap",
        Credential::Token(&config.bootstrap_token),
    );
    write_private(&layout.bootstrap_kubeconfig(), &bootstrap)?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {"x509": {"clientCAFile": layout.authority()}},
    });
    write_private(&layout.kubelet_config(), &serde_json::to_string_pretty(&kubelet)?)?;
    Ok(())
}

/// For containerd 1.6 and later. `restrict_oom_score_adj`: a container host may itself be one that may not lower scores.
fn containerd() -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// `key=value:effect,…`.
fn taints(taints: &[Taint]) -> String {
    let one = |taint: &Taint| {
        format!(
            "{}={}:{}",
            taint.key,
            taint.value.as_deref().unwrap_or_default(),
            taint.effect
        )
    };
    taints.iter().map(one).collect::<Vec<_>>().join(",")
}

pub(crate) fn kubelet_arguments(layout: &Layout, instance: &Instance) -> Vec<String> {
    let config = &instance.config;
    let labels: Vec<String> = config
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut arguments = vec![
        flag("config", layout.kubelet_config().display()),
        flag("bootstrap-kubeconfig", layout.bootstrap_kubeconfig().display()),
        flag("kubeconfig", layout.kubeconfig().display()),
        flag("hostname-override", &instance.hostname),
        flag("node-ip", &instance.address),
        flag("provider-id", &instance.provider_id),
        flag("node-labels", labels.join(",")),
        flag("register-with-taints", taints(&config.taints)),
    ];
    if !config.cloud_provider.is_empty() {
        arguments.push(flag("cloud-provider", "external"));
    }
    // A hosted control plane does not reach into the nodes' network.
    arguments.push("--tunnel".to_owned());
    arguments
}

pub(crate) fn proxy_arguments(layout: &Layout, instance: &Instance) -> Vec<String> {
    let mut arguments = vec![
        flag("kubeconfig", layout.kubeconfig().display()),
        flag("hostname-override", &instance.hostname),
        flag("node-ip", &instance.address),
        flag("cluster-cidr", &instance.config.cluster_cidr),
    ];
    // The node's own resolver answers there.
    arguments.extend(
        instance
            .config
            .cluster_dns
            .iter()
            .map(|address| flag("local-address", address)),
    );
    arguments
}

pub(crate) fn dns_arguments(layout: &Layout, instance: &Instance) -> Vec<String> {
    let mut arguments = vec![
        flag("kubeconfig", layout.kubeconfig().display()),
        flag("cluster-domain", &instance.config.cluster_domain),
    ];
    arguments.extend(
        instance
            .config
            .cluster_dns
            .iter()
            .map(|address| flag("address", address)),
    );
    arguments
}

#[cfg(test)]
mod tests {
    use minato_api::node::NodeConfig;

    use super::*;

    #[test]
    fn no_secret_is_an_argument_and_taints_read_as_the_kubelet_reads_them() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let layout = Layout::new(directory.path())?;
        let config: NodeConfig = serde_json::from_value(json!({
            "apiVersion": NodeConfig::API_VERSION, "clusterName": "c", "apiServer": "https://10.0.0.1:6443",
            "certificateAuthority": "CA", "bootstrapToken": "abcdef.0123456789abcdef", "clusterDns": ["10.96.0.10"],
            "clusterDomain": "cluster.local", "clusterCidr": "10.244.0.0/16", "serviceCidr": "10.96.0.0/16",
            "cloudProvider": "mock", "labels": {"a": "b", "c": "d"},
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "e", "effect": "NoExecute"}],
        }))?;
        let instance = Instance {
            hostname: "n1".to_owned(),
            provider_id: "mock:///a/i-1".to_owned(),
            address: "10.0.0.7".to_owned(),
            config,
        };
        write(&layout, &instance)?;
        let arguments = kubelet_arguments(&layout, &instance);
        assert!(arguments.contains(&"--node-labels=a=b,c=d".to_owned()));
        assert!(arguments.contains(&"--register-with-taints=k=v:NoSchedule,e=:NoExecute".to_owned()));
        assert!(arguments.contains(&"--cloud-provider=external".to_owned()));
        let all = [
            arguments,
            proxy_arguments(&layout, &instance),
            dns_arguments(&layout, &instance),
        ]
        .concat();
        assert!(all.iter().all(|argument| !argument.contains("0123456789abcdef")));
        let kept = std::fs::read_to_string(layout.bootstrap_kubeconfig())?;
        assert!(kept.contains("abcdef.0123456789abcdef"));
        Ok(())
    }
}
