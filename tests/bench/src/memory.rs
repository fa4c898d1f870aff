//! Start and memory of control planes that do nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use minato_control_plane::{Config, ControlPlane};

use crate::client::Client;
use crate::report::{Report, milliseconds, quantile};
use crate::server::{Process, Server, finish, kubeconfig_in, pss};

/// Until what a start leaves behind has settled.
const SETTLE: Duration = Duration::from_secs(30);
/// The same between control planes of one process.
const SETTLE_EACH: Duration = Duration::from_secs(5);

/// Median of nine starts with an empty directory.
pub(crate) async fn ready(report: &mut Report) -> anyhow::Result<()> {
    let mut samples = Vec::new();
    for _ in 0..9 {
        samples.push(milliseconds(Server::start().await?.ready_after));
    }
    report.add("ready_ms_p50", quantile(&samples, 0.5));
    report.add("ready_ms_max", quantile(&samples, 1.0));
    Ok(())
}

/// One control plane that nobody uses.
pub(crate) async fn idle(report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start().await?;
    tokio::time::sleep(SETTLE).await;
    report.add("idle_pss_mib", server.pss()?);
    let before = server.cpu()?;
    tokio::time::sleep(SETTLE).await;
    let used = server.cpu()?.saturating_sub(before);
    report.add("idle_cpu_ms_per_s", milliseconds(used) / SETTLE.as_secs_f64());
    Ok(())
}

/// Ten control planes in one process: what the second and the tenth add.
pub(crate) async fn marginal(report: &mut Report) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("planes")
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    let mut output = BufReader::new(child.stdout.take().context("its output")?);
    let mut process = Process(child);
    let mut sizes = Vec::new();
    for _ in 0..10 {
        input.write_all(b"\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let plane = line.trim().to_owned();
        Client::of(&kubeconfig_in(Path::new(&plane)))?.get("/readyz").await?;
        tokio::time::sleep(SETTLE_EACH).await;
        sizes.push(pss(process.0.id())?);
    }
    process.0.stdin = Some(input);
    finish(process)?;
    report.add("marginal_pss_mib_2nd", sizes[1] - sizes[0]);
    report.add("marginal_pss_mib_10th", sizes[9] - sizes[8]);
    report.add("ten_planes_pss_mib", sizes[9]);
    Ok(())
}

/// Starts one more control plane for each line of input and prints its directory; stops them all at the input's end.
pub(crate) async fn planes(directory: &Path) -> anyhow::Result<()> {
    let mut planes = Vec::new();
    let (sender, mut lines) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || sender.blocking_send(()).is_err() {
                return;
            }
        }
    });
    while lines.recv().await.is_some() {
        let name = format!("c{}", planes.len());
        let home = directory.join(&name);
        planes.push(ControlPlane::start(Config::new(&name, &home)).await?);
        println!("{}", home.display());
    }
    for plane in planes {
        plane.stop().await;
    }
    Ok(())
}
