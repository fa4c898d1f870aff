//! The configuration of a container, as the runtime takes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use minato_api::k8s::core::v1::{Container, Pod, VolumeMount};
use minato_cri::v1::security_profile::ProfileType;
use minato_cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, Image, ImageSpec, Int64Value, KeyValue, LinuxContainerConfig,
    LinuxContainerSecurityContext, Mount, MountPropagation, NamespaceMode, NamespaceOption, SecurityProfile,
};

use crate::context::Context;
use crate::env::expand;
use crate::pods::{PodId, container_hash, keys, spec, spec_grace};
use crate::volumes::{Volumes, prepare_subpath};
use crate::{resources, sandbox};

/// Where a container writes its last words, unless it says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Paths of /proc and /sys that containers neither see nor write, as upstream's default.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What a container's configuration is made of.
pub(crate) struct Parts<'a> {
    pub(crate) context: &'a Context,
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) restart_count: u32,
    pub(crate) image: &'a Image,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) volumes: &'a Volumes,
    pub(crate) hosts_file: &'a Path,
    /// The runtime's id of a container whose processes this one shares.
    pub(crate) target: Option<String>,
}

impl Parts<'_> {
    /// The configuration; makes the files that it mounts.
    pub(crate) fn build(self) -> Result<ContainerConfig, String> {
        let Self { pod, container, .. } = &self;
        let id = PodId::of(pod);
        let known: HashMap<String, String> = self.environment.iter().cloned().collect();
        let expanded = |list: &Option<Vec<String>>| list.iter().flatten().map(|text| expand(text, &known)).collect();
        let mut labels = id.labels();
        labels.insert(keys::CONTAINER_NAME.to_owned(), container.name.clone());
        let name = &container.name;
        Ok(ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.clone(),
                attempt: self.restart_count,
            }),
            image: Some(ImageSpec {
                image: self.image.id.clone(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..ImageSpec::default()
            }),
            command: expanded(&container.command),
            args: expanded(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs: self
                .environment
                .iter()
                .map(|(key, value)| KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                })
                .collect(),
            mounts: self.mounts(&known)?,
            labels,
            annotations: self.annotations(),
            log_path: format!("{name}/{}.log", self.restart_count),
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            linux: Some(LinuxContainerConfig {
                resources: Some(resources::container(
                    pod,
                    container,
                    &self.context.facts.capacity,
                    self.context.settings.cpu_quota,
                )),
                security_context: Some(self.security()?),
            }),
            ..ContainerConfig::default()
        })
    }

    fn annotations(&self) -> HashMap<String, String> {
        let container = self.container;
        let path = container
            .termination_message_path
            .as_deref()
            .filter(|path| !path.is_empty());
        let mut annotations = HashMap::from([
            (keys::HASH.to_owned(), container_hash(container)),
            (keys::RESTART_COUNT.to_owned(), self.restart_count.to_string()),
            (
                keys::TERMINATION_PATH.to_owned(),
                path.unwrap_or(TERMINATION_LOG).to_owned(),
            ),
            (keys::GRACE.to_owned(), spec_grace(self.pod).to_string()),
        ]);
        if let Some(policy) = &container.termination_message_policy {
            annotations.insert(keys::TERMINATION_POLICY.to_owned(), policy.clone());
        }
        annotations
    }

    fn mounts(&self, known: &HashMap<String, String>) -> Result<Vec<Mount>, String> {
        let mut mounts = Vec::new();
        for (index, mount) in self.container.volume_mounts.iter().flatten().enumerate() {
            mounts.push(self.volume_mount(index, mount, known)?);
        }
        let own = |path: &str| mounts.iter().any(|mount: &Mount| mount.container_path == path);
        let file = |container_path: &str, host_path: &Path| Mount {
            container_path: container_path.to_owned(),
            host_path: host_path.display().to_string(),
            ..Mount::default()
        };
        let hosts = (!own("/etc/hosts")).then(|| file("/etc/hosts", self.hosts_file));
        let path = self
            .container
            .termination_message_path
            .as_deref()
            .filter(|path| !path.is_empty());
        let words = file(path.unwrap_or(TERMINATION_LOG), &self.termination_file()?);
        mounts.extend(hosts);
        mounts.push(words);
        Ok(mounts)
    }

    /// A new file for each attempt.
    fn termination_file(&self) -> Result<PathBuf, String> {
        use std::os::unix::fs::PermissionsExt;
        let directory = self.context.settings.pod_dir(&PodId::of(self.pod).uid);
        let directory = directory.join("containers").join(&self.container.name);
        let path = directory.join(format!("{:08x}", rand::random::<u32>()));
        let make = || {
            std::fs::create_dir_all(&directory)?;
            std::fs::File::create(&path)?;
            // Whoever the container runs as may write it.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
        };
        make().map_err(|error| format!("making {}: {error}", path.display()))?;
        Ok(path)
    }

    fn volume_mount(
        &self,
        index: usize,
        mount: &VolumeMount,
        known: &HashMap<String, String>,
    ) -> Result<Mount, String> {
        let volume = self.volumes.paths.get(&mount.name);
        let volume = volume.ok_or_else(|| format!("cannot find volume \"{}\" to mount", mount.name))?;
        let subpath = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(text)) if !text.is_empty() => Some(expand(text, known)),
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let host_path = match subpath {
            Some(path) => {
                let parts = self
                    .context
                    .settings
                    .pod_dir(&PodId::of(self.pod).uid)
                    .join("volume-subpaths");
                let target = parts
                    .join(&mount.name)
                    .join(&self.container.name)
                    .join(index.to_string());
                prepare_subpath(volume, &path, &target)?
            }
            None => volume.clone(),
        };
        let propagation = match mount.mount_propagation.as_deref() {
            Some("Bidirectional") => MountPropagation::PropagationBidirectional,
            Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
            _ => MountPropagation::PropagationPrivate,
        };
        let path = &mount.mount_path;
        Ok(Mount {
            container_path: if path.starts_with('/') {
                path.clone()
            } else {
                format!("/{path}")
            },
            host_path: host_path.display().to_string(),
            readonly: mount.read_only == Some(true),
            propagation: propagation.into(),
            ..Mount::default()
        })
    }

    fn security(&self) -> Result<LinuxContainerSecurityContext, String> {
        let own = self.container.security_context.as_ref();
        let of_pod = spec(self.pod).security_context.as_ref();
        let user = own.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
        let group = own.and_then(|s| s.run_as_group).or(of_pod.and_then(|s| s.run_as_group));
        let non_root = own
            .and_then(|s| s.run_as_non_root)
            .or(of_pod.and_then(|s| s.run_as_non_root));
        if non_root == Some(true) {
            self.check_non_root(user)?;
        }
        let privileged = own.and_then(|s| s.privileged) == Some(true);
        let profile = own.and_then(|s| s.seccomp_profile.as_ref());
        let profile = profile.or(of_pod.and_then(|s| s.seccomp_profile.as_ref()));
        let capabilities = own.and_then(|s| s.capabilities.as_ref());
        let number = |value: Option<i64>| value.map(|value| Int64Value { value });
        let unmasked = privileged || own.and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked");
        let paths = |list: &[&str]| {
            if unmasked {
                Vec::new()
            } else {
                list.iter().map(|p| (*p).to_owned()).collect()
            }
        };
        // A group without a user is not taken by CRI: the image's user goes with it.
        let user = user.or_else(|| group.map(|_| self.image.uid.as_ref().map_or(0, |uid| uid.value)));
        let image_user = &self.image.username;
        Ok(LinuxContainerSecurityContext {
            capabilities: Some(Capability {
                add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
                drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
                ..Capability::default()
            }),
            privileged,
            namespace_options: Some(self.namespaces()),
            run_as_user: number(user.or_else(|| self.image.uid.as_ref().map(|uid| uid.value))),
            run_as_group: number(group),
            run_as_username: if user.is_none() && self.image.uid.is_none() {
                image_user.clone()
            } else {
                String::new()
            },
            readonly_rootfs: own.and_then(|s| s.read_only_root_filesystem) == Some(true),
            supplemental_groups: sandbox::supplemental_groups(self.pod),
            no_new_privs: own.and_then(|s| s.allow_privilege_escalation) == Some(false),
            masked_paths: paths(MASKED),
            readonly_paths: paths(READ_ONLY),
            seccomp: Some(if privileged {
                SecurityProfile {
                    profile_type: ProfileType::Unconfined.into(),
                    localhost_ref: String::new(),
                }
            } else {
                sandbox::seccomp(profile, &self.context.settings)
            }),
            ..LinuxContainerSecurityContext::default()
        })
    }

    fn namespaces(&self) -> NamespaceOption {
        let mut namespaces = sandbox::namespaces(self.pod);
        if let Some(target) = &self.target {
            namespaces.pid = NamespaceMode::Target.into();
            namespaces.target_id.clone_from(target);
        }
        namespaces
    }

    fn check_non_root(&self, user: Option<i64>) -> Result<(), String> {
        let long = PodId::of(self.pod).long();
        let name = &self.container.name;
        let of_image = self.image.uid.as_ref().map(|uid| uid.value);
        match user.or(of_image) {
            Some(0) if user.is_some() => Err(format!(
                "container's runAsUser breaks non-root policy (pod: \"{long}\", container: {name})"
            )),
            Some(0) => Err(format!(
                "container has runAsNonRoot and image will run as root (pod: \"{long}\", container: {name})"
            )),
            Some(_) => Ok(()),
            None if !self.image.username.is_empty() => Err(format!(
                "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root (pod: \"{long}\", container: {name})",
                self.image.username
            )),
            None => Err(format!(
                "container has runAsNonRoot and image will run as root (pod: \"{long}\", container: {name})"
            )),
        }
    }
}
