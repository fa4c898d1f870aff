//! Loads container images into containerd, so that a node needs no registry for its own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// How long containerd may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for containerd, then loads every archive of the directory, if there is one.
pub(crate) fn load(directory: Option<&Path>) -> anyhow::Result<()> {
    wait_for_containerd()?;
    let Some(directory) = directory.filter(|directory| directory.is_dir()) else {
        return Ok(());
    };
    for entry in std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            let output = ctr()
                .args(["images", "import"])
                .arg(&path)
                .output()
                .context("running ctr")?;
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "loading {} failed: {text}", path.display());
        }
    }
    Ok(())
}

fn ctr() -> Command {
    let mut command = Command::new("ctr");
    command
        .args(["--connect-timeout", "1s", "--namespace", "k8s.io"])
        .stdin(Stdio::null());
    command
}

fn wait_for_containerd() -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = ctr()
            .args(["plugins", "ls"])
            .output()
            .context("running ctr (package containerd)")?;
        let ready = |line: &str| line.contains(".cri") || line.split_whitespace().nth(1) == Some("cri");
        if output.status.success()
            && String::from_utf8_lossy(&output.stdout)
                .lines()
                .any(|line| ready(line) && line.contains("ok"))
        {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "containerd is not ready after {PATIENCE:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        // Another program's start: nothing tells when it is ready.
        std::thread::sleep(Duration::from_millis(20));
    }
}
