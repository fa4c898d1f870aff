//! The `minato` binary: subcommands and assembly, nothing else.

mod quickstart;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use ipnet::IpNet;
use minato_control_plane::{Config, ControlPlane, Role, Workloads};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(version, about = "Hosted Kubernetes control planes")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster's control plane in the background and print how to use it.
    Up {
        /// Where everything is kept.
        #[arg(long, default_value = ".minato")]
        directory: PathBuf,
    },
    /// Stop it and remove all of it.
    Down {
        /// Where everything is kept.
        #[arg(long, default_value = ".minato")]
        directory: PathBuf,
    },
    /// Run one control plane in the foreground until SIGTERM or SIGINT.
    ControlPlane {
        /// Name of the cluster.
        #[arg(long, default_value = "local")]
        name: String,
        /// Directory for its keys, store and kubeconfig.
        #[arg(long)]
        directory: PathBuf,
        /// Where its API server listens.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Range of Service addresses.
        #[arg(long, default_value = "10.96.0.0/16")]
        service_cidr: IpNet,
    },
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .init();
    match Arguments::parse().command {
        Command::Up { directory } => quickstart::up(&directory),
        Command::Down { directory } => quickstart::down(&directory),
        Command::ControlPlane {
            name,
            directory,
            listen,
            service_cidr,
        } => {
            let workloads = Workloads {
                service_cidr,
                ..Workloads::default()
            };
            let config = Config {
                listen,
                role: Role::Workloads(workloads),
                ..Config::new(name, directory)
            };
            tokio::runtime::Runtime::new()?.block_on(serve(config))
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = config.name.clone();
    let plane = ControlPlane::start(config)
        .await
        .with_context(|| format!("cannot start control plane {name}"))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    plane.stop().await;
    Ok(())
}
