//! The processes of an instance: started in namespaces and cgroups of their own, found again after a restart.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::network::Network;
use super::{LocalConfig, LocalError, io};
use crate::state::Instance;

/// The program that runs as the first process of an instance, in the instance's namespaces.
#[derive(Debug, Clone)]
pub struct NodeProgram {
    /// Absolute path of the executable.
    pub path: PathBuf,
    /// Arguments, before `--state-dir <directory>`, which is added.
    pub arguments: Vec<String>,
}

/// The started processes of an instance, held by the process whose end ends all of them.
pub struct Launch {
    id: String,
    pid: Pid,
}

#[derive(Serialize, Deserialize)]
struct Record {
    pid: i32,
    /// Start time in clock ticks since boot: tells a process from a later one with the same number.
    started: u64,
}

// Joins its own cgroup in every hierarchy, then enters the namespaces. Arguments: cgroup name, namespace path, log file,
// then the program with its arguments.
const LAUNCHER: &str = r#"
set -eu
group=$1 netns=$2 log=$3
shift 3
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$group"
  echo $$ > "/sys/fs/cgroup/$group/cgroup.procs"
else
  for c in /sys/fs/cgroup/*/; do
    [ -e "$c/cgroup.procs" ] || continue
    case $c in */unified/) continue ;; esac
    parent=$c
    IFS=/
    for part in $group; do
      IFS=' '
      mkdir -p "$parent/$part"
      if [ -e "$parent/$part/cpuset.cpus" ]; then
        [ -n "$(cat "$parent/$part/cpuset.cpus")" ] || cat "$parent/cpuset.cpus" > "$parent/$part/cpuset.cpus"
        [ -n "$(cat "$parent/$part/cpuset.mems")" ] || cat "$parent/cpuset.mems" > "$parent/$part/cpuset.mems"
      fi
      parent=$parent/$part
    done
    echo $$ > "$parent/cgroup.procs"
  done
fi
exec >>"$log" 2>&1 </dev/null
exec nsenter --net="$netns" unshare --mount --uts --ipc --cgroup --pid --fork --kill-child --mount-proc "$@"
"#;

impl Launch {
    /// Starts the instance, or takes over what an earlier run started.
    pub(super) async fn start_or_adopt(
        config: &LocalConfig,
        network: &Network,
        instance: &Instance,
    ) -> Result<Self, LocalError> {
        if let Some(launch) = Self::adopt(config, &instance.id)? {
            return Ok(launch);
        }
        let directory = directory(config, &instance.id);
        std::fs::create_dir_all(&directory).map_err(io("creating an instance's directory"))?;
        let namespace = PathBuf::from("/run/netns").join(network.instance_namespace(&instance.id));
        let child = tokio::process::Command::new("setsid")
            .args(["sh", "-c", LAUNCHER, "launch", &group(config, &instance.id)])
            .arg(namespace)
            .arg(directory.join("console.log"))
            .arg(&config.program.path)
            .args(&config.program.arguments)
            .arg("--state-dir")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(false)
            .spawn()
            .map_err(io("starting an instance"))?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(pid) = pid else {
            return Err(LocalError::Unsupported(format!(
                "instance {} ended at once",
                instance.id
            )));
        };
        let record = Record {
            pid: pid.as_raw_nonzero().get(),
            started: start_time(pid).unwrap_or_default(),
        };
        let bytes = serde_json::to_vec(&record).map_err(|e| io("recording an instance")(e.into()))?;
        std::fs::write(directory.join("process.json"), bytes).map_err(io("recording an instance"))?;
        tracing::info!(instance = instance.id, name = instance.spec.name, ip = %instance.ip, "instance started");
        // tokio reaps dropped children in the background; the exit itself is seen through the pidfd.
        drop(child);
        Ok(Self {
            id: instance.id.clone(),
            pid,
        })
    }

    /// The instance's processes if an earlier run started them and they still run.
    pub(super) fn adopt(config: &LocalConfig, id: &str) -> Result<Option<Self>, LocalError> {
        let path = directory(config, id).join("process.json");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(format!("reading {}", path.display()))(error)),
        };
        let Ok(record) = serde_json::from_slice::<Record>(&bytes) else {
            return Ok(None);
        };
        let pid = Pid::from_raw(record.pid).filter(|pid| start_time(*pid) == Some(record.started));
        Ok(pid.map(|pid| Self { id: id.to_owned(), pid }))
    }

    /// Sends the instance's id when its processes have ended.
    pub(super) fn report_exit(&self, exits: mpsc::Sender<String>) {
        let (id, pid) = (self.id.clone(), self.pid);
        tokio::spawn(async move {
            wait_for_exit(pid).await;
            let _ = exits.send(id).await;
        });
    }

    /// Ends the instance's processes at once, as pulling the plug would, and removes its cgroup.
    pub(super) async fn stop(&self, config: &LocalConfig) -> Result<(), LocalError> {
        if let Ok(fd) = pidfd_open(self.pid, PidfdFlags::empty()) {
            let _ = pidfd_send_signal(&fd, Signal::KILL);
        }
        if tokio::time::timeout(Duration::from_secs(20), wait_for_exit(self.pid))
            .await
            .is_err()
        {
            return Err(LocalError::Unsupported(format!(
                "the processes of instance {} do not end",
                self.id
            )));
        }
        let _ = std::fs::remove_file(directory(config, &self.id).join("process.json"));
        remove_cgroups(&group(config, &self.id)).await
    }
}

#[expect(unsafe_code, reason = "registering a file descriptor with the reactor")]
async fn wait_for_exit(pid: Pid) {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::NONBLOCK) else {
        return;
    };
    // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until that is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE) };
    if let Ok(fd) = registered {
        // A pidfd becomes readable when its process has ended.
        let _ = fd.readable().await;
    }
}

fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The command name, in parentheses, may hold spaces; fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

fn directory(config: &LocalConfig, id: &str) -> PathBuf {
    config.directory.join(id)
}

fn group(config: &LocalConfig, id: &str) -> String {
    format!("{}/{id}", config.prefix)
}

/// Removes the instance's files.
pub(super) fn remove_files(config: &LocalConfig, id: &str) -> Result<(), LocalError> {
    match std::fs::remove_dir_all(directory(config, id)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("removing an instance's files")(error)),
        _ => Ok(()),
    }
}

/// Removes a cgroup and those below it from every hierarchy, once their last processes have gone.
async fn remove_cgroups(group: &str) -> Result<(), LocalError> {
    let root = Path::new("/sys/fs/cgroup");
    let mut bases = vec![root.join(group)];
    if let Ok(entries) = std::fs::read_dir(root) {
        bases.extend(entries.flatten().map(|e| e.path().join(group)));
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    for base in bases.into_iter().filter(|b| b.is_dir()) {
        // Processes that were killed stay in their cgroup until reaped; the kernel gives no event for v1.
        while let Err(error) = remove_tree(&base) {
            if tokio::time::Instant::now() > deadline {
                return Err(io(format!("removing cgroup {}", base.display()))(error));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if let Some(parent) = base.parent() {
            // The deployment's own group goes with its last instance.
            let _ = std::fs::remove_dir(parent);
        }
    }
    Ok(())
}

fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    std::fs::remove_dir(path)
}
