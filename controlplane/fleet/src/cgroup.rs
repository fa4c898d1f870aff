//! Control groups of hosted processes, in the first and the second version of the interface.
//! Source: <https://docs.kernel.org/admin-guide/cgroup-v1/>, <https://docs.kernel.org/admin-guide/cgroup-v2.html>.

use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";
/// The hierarchies of the first version that are used.
const CONTROLLERS: &[&str] = &["memory", "pids", "cpu", "cpuacct"];

/// What a group's processes may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes.
    pub memory: u64,
    /// Number of threads.
    pub tasks: u64,
}

/// A group by its path below the root.
#[derive(Debug, Clone)]
pub struct Cgroup {
    name: String,
}

impl Cgroup {
    /// Names a group such as `minato/c1`; nothing is made yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Where it is in each hierarchy that this machine has.
    fn paths(&self) -> Vec<PathBuf> {
        let root = Path::new(ROOT);
        if root.join("cgroup.controllers").exists() {
            return vec![root.join(&self.name)];
        }
        let hierarchies = CONTROLLERS
            .iter()
            .map(|name| root.join(name))
            .filter(|path| path.join("cgroup.procs").exists());
        hierarchies.map(|path| path.join(&self.name)).collect()
    }

    /// Makes the group and puts the process into it.
    ///
    /// # Errors
    /// The kernel refuses: the group is then not relied upon.
    pub fn confine(&self, pid: u32, limits: Limits) -> std::io::Result<()> {
        for path in self.paths() {
            std::fs::create_dir_all(&path)?;
            let settings = [
                ("memory.limit_in_bytes", limits.memory),
                ("memory.max", limits.memory),
                ("pids.max", limits.tasks),
            ];
            for (file, value) in settings {
                if path.join(file).exists() {
                    std::fs::write(path.join(file), value.to_string())?;
                }
            }
            std::fs::write(path.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Removes the group once its last process has gone, and its parent if that is empty then.
    ///
    /// # Errors
    /// It still has processes after ten seconds.
    pub async fn remove(&self) -> std::io::Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        for path in self.paths().into_iter().filter(|path| path.is_dir()) {
            // A killed process stays in its group until reaped; the first version gives no event for that.
            while let Err(error) = std::fs::remove_dir(&path) {
                if error.kind() == std::io::ErrorKind::NotFound {
                    break;
                }
                if tokio::time::Instant::now() > deadline {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The group above goes with its last member; the kernel keeps one that is in use.
            if let Some(parent) = path.parent() {
                let _ = std::fs::remove_dir(parent);
            }
        }
        Ok(())
    }
}
