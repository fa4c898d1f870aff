//! `minato up` and `minato down`: one control plane as a background process under one directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const START_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

struct Layout {
    root: PathBuf,
}

impl Layout {
    fn plane(&self) -> PathBuf {
        self.root.join("control-plane")
    }
    fn process(&self) -> PathBuf {
        self.root.join("process")
    }
    fn log(&self) -> PathBuf {
        self.root.join("control-plane.log")
    }
    fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The process that an earlier `up` started, if it still runs: number and start time must both match.
    fn running(&self) -> Option<Pid> {
        let record = fs::read_to_string(self.process()).ok()?;
        let (pid, started) = record.trim().split_once(' ')?;
        let pid = Pid::from_raw(pid.parse().ok()?)?;
        (start_time(pid)? == started).then_some(pid)
    }
}

/// Starts the control plane unless it runs already.
pub(crate) fn up(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let layout = Layout {
        root: fs::canonicalize(directory)?,
    };
    if layout.running().is_none() {
        start(&layout)?;
    }
    let kubeconfig = layout.kubeconfig();
    println!("The control plane is ready.\n");
    println!("  export KUBECONFIG={}\n", kubeconfig.display());
    println!("Next:\n  kubectl get namespaces\n  kubectl create configmap hello --from-literal=to=world");
    println!("  kubectl get configmaps --watch");
    Ok(())
}

fn start(layout: &Layout) -> anyhow::Result<()> {
    let written = layout.plane().join("kubeconfig");
    let _ = fs::remove_file(&written);
    let log = fs::File::create(layout.log()).context("creating the log file")?;
    // In a process group of its own, so that an interrupt at this terminal does not reach it.
    let mut child = {
        use std::os::unix::process::CommandExt;
        Command::new(std::env::current_exe()?)
            .arg("control-plane")
            .arg("--directory")
            .arg(layout.plane())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting the control plane")?
    };
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("the control plane has no process id")?;
    let started = start_time(pid).unwrap_or_default();
    fs::write(layout.process(), format!("{} {started}\n", child.id())).context("recording the process")?;
    let deadline = Instant::now() + START_TIMEOUT;
    // The kubeconfig is the last thing that a control plane writes once it is ready.
    while !written.exists() {
        if let Some(status) = child.try_wait()? {
            bail!("the control plane ended ({status}); see {}", layout.log().display());
        }
        if Instant::now() > deadline {
            bail!(
                "the control plane is not ready after {START_TIMEOUT:?}; see {}",
                layout.log().display()
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::copy(&written, layout.kubeconfig()).context("writing the kubeconfig")?;
    Ok(())
}

/// Stops the control plane and removes everything that `up` made.
pub(crate) fn down(directory: &Path) -> anyhow::Result<()> {
    let Ok(root) = fs::canonicalize(directory) else {
        return Ok(());
    };
    let layout = Layout { root };
    if let Some(pid) = layout.running() {
        let handle = pidfd_open(pid, PidfdFlags::empty()).context("reaching the control plane's process")?;
        pidfd_send_signal(&handle, Signal::TERM).context("stopping the control plane")?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while layout.running().is_some() {
            if Instant::now() > deadline {
                pidfd_send_signal(&handle, Signal::KILL).context("ending the control plane")?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // Only what `up` made: the directory may hold other things.
    for path in [layout.process(), layout.log(), layout.kubeconfig()] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    if layout.plane().exists() {
        fs::remove_dir_all(layout.plane()).context("removing the control plane's files")?;
    }
    let _ = fs::remove_dir(&layout.root);
    println!("The control plane is gone.");
    Ok(())
}

/// Start time of a live process, in clock ticks since boot.
fn start_time(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19).map(|s| (*s).to_owned())
}
