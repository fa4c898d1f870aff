//! Cgroups of pods: `kubepods/{burstable,besteffort}/pod<uid>` under the configured root, in version 1 and 2.
//!
//! Containers' own groups below a pod's are the runtime's. Source: <https://docs.kernel.org/admin-guide/cgroup-v2.html>,
//! <https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html>.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::resources::{CPU_PERIOD, PodBounds, Qos};

const MOUNT: &str = "/sys/fs/cgroup";
/// How long processes that were killed may take to leave their group.
const PATIENCE: Duration = Duration::from_secs(10);

/// The hierarchy or hierarchies of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    mount: PathBuf,
    unified: bool,
    root: String,
    pids: Option<u64>,
}

impl Cgroups {
    /// Of this machine, below `root`, with at most `pids` processes a pod.
    pub(crate) fn new(root: &str, pids: Option<u64>) -> Self {
        let mount = PathBuf::from(MOUNT);
        Self {
            unified: mount.join("cgroup.controllers").exists(),
            mount,
            root: root.to_owned(),
            pids,
        }
    }

    fn class_path(&self, qos: Qos) -> String {
        let class = match qos {
            Qos::Guaranteed => "kubepods",
            Qos::Burstable => "kubepods/burstable",
            Qos::BestEffort => "kubepods/besteffort",
        };
        if self.root.is_empty() {
            class.to_owned()
        } else {
            format!("{}/{class}", self.root)
        }
    }

    /// The pod's group, as the runtime takes it.
    pub(crate) fn parent(&self, qos: Qos, uid: &str) -> String {
        format!("/{}/pod{uid}", self.class_path(qos))
    }

    /// The controllers' directories, by the files they have; one for all in version 2.
    fn hierarchies(&self) -> Vec<PathBuf> {
        if self.unified {
            return vec![self.mount.clone()];
        }
        let entries = std::fs::read_dir(&self.mount).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.join("cgroup.procs").exists() && path.file_name().is_some_and(|n| n != "unified"))
            // Links such as cpu -> cpu,cpuacct are the same directory again.
            .filter(|path| !path.is_symlink())
            .collect()
    }

    fn make(&self, hierarchy: &Path, group: &str) -> std::io::Result<PathBuf> {
        let mut path = hierarchy.to_owned();
        for part in group.split('/').filter(|part| !part.is_empty()) {
            if self.unified {
                enable_controllers(&path);
            }
            let parent = path.clone();
            path.push(part);
            match std::fs::create_dir(&path) {
                Ok(()) => inherit_cpuset(&parent, &path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(path)
    }

    /// Makes a pod's group with its bounds.
    pub(crate) fn ensure(&self, qos: Qos, uid: &str, bounds: &PodBounds) -> std::io::Result<()> {
        let group = self.parent(qos, uid);
        for hierarchy in self.hierarchies() {
            let path = self.make(&hierarchy, &group)?;
            if self.unified {
                self.bound_v2(&path, bounds)
            } else {
                self.bound_v1(&path, bounds)
            }?;
        }
        Ok(())
    }

    fn bound_v1(&self, path: &Path, bounds: &PodBounds) -> std::io::Result<()> {
        write_if_there(path, "cpu.shares", &bounds.shares.to_string())?;
        if let Some(quota) = bounds.quota {
            write_if_there(path, "cpu.cfs_period_us", &CPU_PERIOD.to_string())?;
            write_if_there(path, "cpu.cfs_quota_us", &quota.to_string())?;
        }
        if let Some(memory) = bounds.memory {
            write_if_there(path, "memory.limit_in_bytes", &memory.to_string())?;
        }
        match self.pids {
            Some(pids) => write_if_there(path, "pids.max", &pids.to_string()),
            None => Ok(()),
        }
    }

    fn bound_v2(&self, path: &Path, bounds: &PodBounds) -> std::io::Result<()> {
        // Shares 2..262144 are mapped to weights 1..10000, as runtimes do.
        let weight = 1 + (bounds.shares.clamp(2, 262_144) - 2) * 9999 / 262_142;
        write_if_there(path, "cpu.weight", &weight.to_string())?;
        if let Some(quota) = bounds.quota {
            write_if_there(path, "cpu.max", &format!("{quota} {CPU_PERIOD}"))?;
        }
        if let Some(memory) = bounds.memory {
            write_if_there(path, "memory.max", &memory.to_string())?;
        }
        match self.pids {
            Some(pids) => write_if_there(path, "pids.max", &pids.to_string()),
            None => Ok(()),
        }
    }

    /// Removes a pod's group in whichever class it is, once its processes have gone.
    pub(crate) async fn remove(&self, uid: &str) -> std::io::Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for hierarchy in self.hierarchies() {
            for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
                let path = hierarchy.join(self.parent(qos, uid).trim_start_matches('/'));
                // The kernel gives no event when the last process of a group was reaped (not in version 1).
                while let Err(error) = remove_tree(&path) {
                    if tokio::time::Instant::now() > deadline {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        Ok(())
    }

    /// Pods that have a group.
    pub(crate) fn pods(&self) -> Vec<String> {
        let mut pods = Vec::new();
        for hierarchy in self.hierarchies() {
            for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
                let entries = std::fs::read_dir(hierarchy.join(self.class_path(qos)));
                for entry in entries.into_iter().flatten().flatten() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if let Some(uid) = name.strip_prefix("pod")
                        && !pods.iter().any(|known| known == uid)
                    {
                        pods.push(uid.to_owned());
                    }
                }
            }
        }
        pods
    }
}

fn enable_controllers(path: &Path) {
    for controller in ["cpu", "cpuset", "memory", "pids", "io"] {
        // Fails for controllers that are not there; what is missed shows when a bound is written.
        let _ = std::fs::write(path.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// A new cpuset group of version 1 is empty, and nothing can run in it.
fn inherit_cpuset(parent: &Path, path: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = std::fs::read_to_string(path.join(file));
        if own.is_ok_and(|text| text.trim().is_empty())
            && let Ok(value) = std::fs::read_to_string(parent.join(file))
        {
            let _ = std::fs::write(path.join(file), value.trim());
        }
    }
}

fn write_if_there(path: &Path, file: &str, value: &str) -> std::io::Result<()> {
    match std::fs::OpenOptions::new().write(true).open(path.join(file)) {
        Ok(mut file) => std::io::Write::write_all(&mut file, value.as_bytes()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn remove_tree(path: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: PodBounds = PodBounds {
        shares: 1024,
        quota: Some(50_000),
        memory: Some(1 << 20),
    };

    /// A stand-in for the kernel's files, which are there as soon as a group is.
    fn group(mount: &Path, group: &str, files: &[&str]) -> PathBuf {
        let path = mount.join(group);
        std::fs::create_dir_all(&path).unwrap();
        for file in files {
            std::fs::write(path.join(file), "").unwrap();
        }
        path
    }

    fn cgroups(mount: &Path, unified: bool) -> Cgroups {
        Cgroups {
            mount: mount.to_owned(),
            unified,
            root: "node".to_owned(),
            pids: Some(100),
        }
    }

    #[test]
    fn the_second_version_has_weights_and_one_hierarchy() {
        let mount = tempfile::tempdir().unwrap();
        let files = ["cpu.weight", "cpu.max", "memory.max", "pids.max"];
        let path = group(mount.path(), "node/kubepods/burstable/podu", &files);
        cgroups(mount.path(), true)
            .ensure(Qos::Burstable, "u", &BOUNDS)
            .unwrap();
        let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap();
        // 1 + (1024 - 2) * 9999 / 262142
        assert_eq!(files.map(read), ["39", "50000 100000", "1048576", "100"]);
        let enabled = std::fs::read_to_string(mount.path().join("node/kubepods/cgroup.subtree_control")).unwrap();
        assert!(enabled.starts_with('+'), "{enabled}");
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_each_controller() {
        let mount = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory", "unified"] {
            group(mount.path(), controller, &["cgroup.procs"]);
        }
        let cpu = group(
            mount.path(),
            "cpu/node/kubepods/podu",
            &["cpu.shares", "cpu.cfs_quota_us"],
        );
        let memory = group(mount.path(), "memory/node/kubepods/podu", &["memory.limit_in_bytes"]);
        let cgroups = cgroups(mount.path(), false);
        cgroups.ensure(Qos::Guaranteed, "u", &BOUNDS).unwrap();
        assert_eq!(std::fs::read_to_string(cpu.join("cpu.shares")).unwrap(), "1024");
        assert_eq!(std::fs::read_to_string(cpu.join("cpu.cfs_quota_us")).unwrap(), "50000");
        assert_eq!(
            std::fs::read_to_string(memory.join("memory.limit_in_bytes")).unwrap(),
            "1048576"
        );
        assert!(!mount.path().join("unified/node").exists());
        assert_eq!(cgroups.pods(), ["u"]);
        assert_eq!(cgroups.parent(Qos::BestEffort, "u"), "/node/kubepods/besteffort/podu");
    }
}
