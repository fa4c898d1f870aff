//! The kubelet's process.

use clap::Parser;
use minato_kubelet::{Kubelet, Options};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MINATO_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let settings = Options::parse().settings()?;
    let kubelet = tokio::select! {
        kubelet = Kubelet::start(settings) => kubelet?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        why = kubelet.failed() => anyhow::bail!("the kubelet failed: {why}"),
    }
    kubelet.stop().await;
    Ok(())
}
