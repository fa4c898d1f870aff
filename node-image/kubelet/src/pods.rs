//! Accessors of pods with upstream's defaults, and the names by which the runtime's objects are known. Pure.

use std::collections::HashMap;

use minato_api::k8s::core::v1::{Container, Pod, PodSpec};
use sha2::{Digest, Sha256};

/// Labels and annotations on sandboxes and containers: all that survives the kubelet.
pub(crate) mod keys {
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub(crate) const HASH: &str = "io.kubernetes.container.hash";
    pub(crate) const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub(crate) const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub(crate) const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// `file` on a static pod.
    pub(crate) const SOURCE: &str = "kubernetes.io/config.source";
    /// On a static pod: its identity.
    pub(crate) const CONFIG_HASH: &str = "kubernetes.io/config.hash";
    /// On a mirror pod: the hash of the static pod it shows.
    pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
}

/// A pod's own name for logs and messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PodId {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodId {
    pub(crate) fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: runtime_uid(pod),
        }
    }

    /// Labels of the pod's sandbox and containers.
    pub(crate) fn labels(&self) -> HashMap<String, String> {
        HashMap::from([
            (keys::POD_NAME.to_owned(), self.name.clone()),
            (keys::POD_NAMESPACE.to_owned(), self.namespace.clone()),
            (keys::POD_UID.to_owned(), self.uid.clone()),
        ])
    }

    /// As in upstream's messages: `name_namespace(uid)`.
    pub(crate) fn long(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// The uid under which the pod runs: of a mirror pod, its static pod's.
fn runtime_uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Whether the pod only shows a static pod of this node.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.metadata
        .annotations
        .as_ref()
        .is_some_and(|a| a.contains_key(keys::MIRROR))
}

/// The spec, or an empty one.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
    pod.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
}

/// `restartPolicy` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

pub(crate) fn restart_policy(pod: &Pod) -> RestartPolicy {
    match spec(pod).restart_policy.as_deref() {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// What a container is in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that keeps running beside the others.
    Sidecar,
    Main,
}

/// All containers with their roles, in order of start.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = (&Container, Role)> {
    let spec = spec(pod);
    let role = |c: &Container| {
        if c.restart_policy.as_deref() == Some("Always") {
            Role::Sidecar
        } else {
            Role::Init
        }
    };
    let init = spec.init_containers.iter().flatten().map(move |c| (c, role(c)));
    init.chain(spec.containers.iter().map(|c| (c, Role::Main)))
}

pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<(&'a Container, Role)> {
    containers(pod).find(|(c, _)| c.name == name)
}

/// Containers that were added to the running pod, to look into it: as others are, and with the name of the one whose
/// processes each shall see.
pub(crate) fn ephemeral(pod: &Pod) -> impl Iterator<Item = (Container, Option<&str>)> {
    spec(pod).ephemeral_containers.iter().flatten().filter_map(|added| {
        // It has the fields of a container, and one more.
        let fields = serde_json::to_value(added).ok()?;
        let container = serde_json::from_value(fields).ok()?;
        let target = added.target_container_name.as_deref().filter(|name| !name.is_empty());
        Some((container, target))
    })
}

/// The container of that name, of any kind.
pub(crate) fn any_container(pod: &Pod, name: &str) -> Option<Container> {
    let known = container(pod, name).map(|(container, _)| container.clone());
    known.or_else(|| ephemeral(pod).map(|(container, _)| container).find(|c| c.name == name))
}

/// Changes when the container must be made anew.
pub(crate) fn container_hash(container: &Container) -> String {
    let mut hash = Sha256::new();
    hash.update(&container.name);
    hash.update([0]);
    hash.update(container.image.as_deref().unwrap_or_default());
    hash.finalize()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Seconds a pod gets to end by itself.
pub(crate) fn spec_grace(pod: &Pod) -> i64 {
    spec(pod).termination_grace_period_seconds.unwrap_or(30).max(0)
}

/// The deletion's grace if the pod is being deleted, else the spec's; at least a second.
pub(crate) fn effective_grace(pod: &Pod) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .unwrap_or_else(|| spec_grace(pod))
        .max(1)
}

pub(crate) fn is_host_network(pod: &Pod) -> bool {
    spec(pod).host_network == Some(true)
}

/// Whether nothing of the pod runs or will run again, by its status.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Key of `spec.containers{name}` in events.
pub(crate) fn field_path(pod: &Pod, name: &str) -> String {
    match container(pod, name) {
        None if ephemeral(pod).any(|(c, _)| c.name == name) => format!("spec.ephemeralContainers{{{name}}}"),
        Some((_, Role::Main)) | None => format!("spec.containers{{{name}}}"),
        Some(_) => format!("spec.initContainers{{{name}}}"),
    }
}
