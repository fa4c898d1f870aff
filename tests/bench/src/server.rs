//! A control plane in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::client::Client;

/// Longest that anything may take to come true.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running control plane; dropping it ends its process.
pub(crate) struct Server {
    process: Process,
    directory: tempfile::TempDir,
    /// From the start of the process to the first `ok` of `/readyz`.
    pub(crate) ready_after: Duration,
}

/// A process that ends with this value.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It is our child and not waited for yet, so the number is its own still.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts `minato control-plane` with an empty embedded store and waits until it is ready.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("minato");
        let directory = tempfile::tempdir()?;
        let port = free_port()?;
        let began = Instant::now();
        let child = Command::new(&program)
            .arg("control-plane")
            .arg("--directory")
            .arg(directory.path().join("plane"))
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log"))?)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut this = Self {
            process: Process(child),
            directory,
            ready_after: Duration::ZERO,
        };
        let kubeconfig = this.kubeconfig();
        this.until("the kubeconfig", began, || kubeconfig.exists()).await?;
        let client = this.client().await?;
        loop {
            if client.get("/readyz").await.is_ok() {
                this.ready_after = began.elapsed();
                return Ok(this);
            }
            this.still_runs(began)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("plane/kubeconfig")
    }

    async fn until(&mut self, what: &str, began: Instant, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        while !holds() {
            self.still_runs(began).with_context(|| format!("waiting for {what}"))?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn still_runs(&mut self, began: Instant) -> anyhow::Result<()> {
        let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        if let Some(status) = self.process.0.try_wait()? {
            bail!("the control plane ended ({status}):\n{}", log());
        }
        if began.elapsed() > PATIENCE {
            bail!("the control plane did not become ready in {PATIENCE:?}:\n{}", log());
        }
        Ok(())
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::of(&self.kubeconfig())
    }

    /// Proportional set size in MiB.
    pub(crate) fn pss(&self) -> anyhow::Result<f64> {
        pss(self.process.0.id())
    }

    /// Processor time used so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()))?;
        let after_name = stat.rsplit_once(") ").context("a stat line")?.1;
        let fields: Vec<u64> = after_name
            .split(' ')
            .skip(11)
            .take(2)
            .map_while(|n| n.parse().ok())
            .collect();
        // Linux reports them in hundredths of a second on every architecture that Rust has.
        Ok(Duration::from_millis(fields.iter().sum::<u64>() * 10))
    }
}

/// Proportional set size of a process in MiB, as the kernel tells it (proc_pid_smaps(5)).
pub(crate) fn pss(pid: u32) -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .context("a Pss line")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Ends the process's input, so that it stops by itself, and waits for it.
pub(crate) fn finish(mut process: Process) -> anyhow::Result<()> {
    drop(process.0.stdin.take());
    let status = process.0.wait()?;
    if !status.success() {
        bail!("it ended with {status}");
    }
    Ok(())
}

/// The kubeconfig's place, for who has only the directory of a control plane.
pub(crate) fn kubeconfig_in(directory: &Path) -> PathBuf {
    directory.join("kubeconfig")
}
