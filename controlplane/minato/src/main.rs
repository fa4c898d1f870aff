//! The `minato` binary: subcommands and assembly, nothing else.

mod clouds;
mod manager;
mod mock_cloud;
mod plane;
mod quickstart;
mod supervise;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(version, about = "Hosted Kubernetes control planes")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a management plane, a mock cloud and a cluster with nodes on this machine, and print how to use it.
    Up(quickstart::Options),
    /// Stop all of that and remove it.
    Down(quickstart::Options),
    /// Run one control plane in the foreground until SIGTERM or SIGINT.
    ControlPlane(Box<plane::Options>),
    /// Run the management plane: an API for Cluster and NodePool objects, and what makes them true.
    Manager(Box<manager::Options>),
    /// Run the mock cloud of this machine.
    MockCloud(mock_cloud::Options),
    /// Keep the mock cloud and the management plane of a directory running.
    Supervise {
        /// Where everything is kept.
        #[arg(long)]
        directory: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let command = Arguments::parse().command;
    // People read the output of these two; the others write logs.
    let quiet = matches!(command, Command::Up(_) | Command::Down(_));
    let level = if quiet { "error" } else { "info" };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| level.into()))
        .with_writer(std::io::stderr)
        .with_ansi(quiet)
        .init();
    if let Command::ControlPlane(options) = &command {
        // Before the first thread: the change of user is the whole process's.
        plane::become_user(options)?;
    }
    tokio::runtime::Runtime::new()?.block_on(async {
        match command {
            Command::Up(options) => quickstart::up(&options).await,
            Command::Down(options) => quickstart::down(&options).await,
            Command::ControlPlane(options) => plane::run(*options).await,
            Command::Manager(options) => manager::run(*options).await,
            Command::MockCloud(options) => mock_cloud::run(options).await,
            Command::Supervise { directory } => supervise::run(&directory).await,
        }
    })
}

/// Waits for SIGTERM or SIGINT.
async fn asked_to_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
