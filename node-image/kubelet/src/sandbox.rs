//! The configuration of a pod's sandbox, as the runtime takes it.

use std::collections::HashMap;

use minato_api::k8s::core::v1::{Pod, SeccompProfile};
use minato_cri::v1::security_profile::ProfileType;
use minato_cri::v1::{
    Int64Value, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, PortMapping, Protocol, SecurityProfile,
};

use crate::context::Context;
use crate::network;
use crate::pods::{PodId, containers, is_host_network, spec};
use crate::resources::qos;
use crate::settings::Settings;

/// Which namespaces the pod shares with what.
pub(crate) fn namespaces(pod: &Pod) -> NamespaceOption {
    let spec = spec(pod);
    let node = |yes: Option<bool>| {
        if yes == Some(true) {
            NamespaceMode::Node
        } else {
            NamespaceMode::Pod
        }
    };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => NamespaceMode::Node,
        (_, Some(true)) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    NamespaceOption {
        network: node(spec.host_network).into(),
        ipc: node(spec.host_ipc).into(),
        pid: pid.into(),
        ..NamespaceOption::default()
    }
}

/// A seccomp profile as the runtime takes it; unconfined where none is named.
pub(crate) fn seccomp(profile: Option<&SeccompProfile>, settings: &Settings) -> SecurityProfile {
    let (kind, localhost_ref) = match profile.map(|profile| profile.type_.as_str()) {
        Some("RuntimeDefault") => (ProfileType::RuntimeDefault, String::new()),
        Some("Localhost") => {
            let name = profile
                .and_then(|profile| profile.localhost_profile.clone())
                .unwrap_or_default();
            let path = settings.root_dir.join("seccomp").join(name);
            (ProfileType::Localhost, path.display().to_string())
        }
        _ => (ProfileType::Unconfined, String::new()),
    };
    SecurityProfile {
        profile_type: kind.into(),
        localhost_ref,
    }
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if is_host_network(pod) {
        return Vec::new();
    }
    let ports = containers(pod).flat_map(|(container, _)| container.ports.iter().flatten());
    let mapping = |port: &minato_api::k8s::core::v1::ContainerPort| {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        Some(PortMapping {
            protocol: protocol.into(),
            container_port: port.container_port,
            host_port: port.host_port.filter(|port| *port > 0)?,
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
    };
    ports.filter_map(mapping).collect()
}

fn is_privileged(pod: &Pod) -> bool {
    let privileged =
        |c: &minato_api::k8s::core::v1::Container| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true);
    containers(pod).any(|(container, _)| privileged(container))
}

/// Groups that all processes of the pod get besides their own.
pub(crate) fn supplemental_groups(pod: &Pod) -> Vec<i64> {
    let security = spec(pod).security_context.as_ref();
    let groups = security.and_then(|s| s.supplemental_groups.clone()).unwrap_or_default();
    let fs_group = security.and_then(|s| s.fs_group);
    groups.into_iter().chain(fs_group).collect()
}

/// The sandbox of that attempt.
pub(crate) fn config(context: &Context, pod: &Pod, attempt: u32) -> PodSandboxConfig {
    let id = PodId::of(pod);
    let settings = &context.settings;
    let security = spec(pod).security_context.as_ref();
    let number = |value: Option<i64>| value.map(|value| Int64Value { value });
    let mut labels: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(id.labels());
    let sysctls = security.and_then(|s| s.sysctls.as_ref()).into_iter().flatten();
    let hostname = if is_host_network(pod) {
        String::new()
    } else {
        network::names(pod, settings).0
    };
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: id.name.clone(),
            uid: id.uid.clone(),
            namespace: id.namespace.clone(),
            attempt,
        }),
        hostname,
        log_directory: settings
            .pod_log_dir(&id.namespace, &id.name, &id.uid)
            .display()
            .to_string(),
        dns_config: Some(network::dns(pod, settings)),
        port_mappings: port_mappings(pod),
        labels,
        annotations: pod
            .metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: context.cgroups.parent(qos(pod), &id.uid),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod)),
                run_as_user: number(security.and_then(|s| s.run_as_user)),
                run_as_group: number(
                    security
                        .filter(|s| s.run_as_user.is_some())
                        .and_then(|s| s.run_as_group),
                ),
                supplemental_groups: supplemental_groups(pod),
                privileged: is_privileged(pod),
                seccomp: Some(SecurityProfile {
                    profile_type: ProfileType::RuntimeDefault.into(),
                    localhost_ref: String::new(),
                }),
                ..LinuxSandboxSecurityContext::default()
            }),
            sysctls: sysctls
                .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
                .collect(),
            ..LinuxPodSandboxConfig::default()
        }),
        windows: None,
    }
}
