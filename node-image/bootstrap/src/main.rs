//! The first program of a worker node: learns who the node is from its cloud's metadata service, writes what the node's
//! agents need, and keeps containerd, kubelet, kube-proxy and DNS running.
//!
//! ```text
//! init ─ mounts (only where nobody has made them) ─┐
//! run ─────────────────────────────────────────────┴─ metadata ─ files ─ images ─ supervisor
//! ```
//!
//! `init` is process 1 of an instance of the mock cloud's local mode; `run` is the same for a machine that booted by
//! itself. May depend on: `minato-api`, `minato-pki`.

mod files;
mod images;
mod metadata;
mod mounts;
mod supervisor;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use files::Layout;
use supervisor::{Program, Supervisor};

#[derive(Parser)]
#[command(version, about = "First boot of a worker node")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Be process 1 of an instance: make its mounts, then do as `run`.
    Init {
        /// The instance's own files, kept over restarts.
        #[arg(long)]
        state_dir: PathBuf,
        /// Container images to load, as archives.
        #[arg(long)]
        images: Option<PathBuf>,
    },
    /// Set the node up and keep its agents running.
    Run {
        /// The node's own files, kept over restarts.
        #[arg(long, default_value = "/var/lib/minato")]
        state_dir: PathBuf,
        /// Container images to load, as archives.
        #[arg(long, default_value = "/usr/share/minato/images")]
        images: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Init { state_dir, images } => {
            let mounted = mounts::make(&state_dir, images.as_deref())?;
            run(&mounted.state, mounted.images.as_deref())
        }
        Command::Run { state_dir, images } => run(&state_dir, Some(&images)),
    }
}

fn run(state: &std::path::Path, images: Option<&std::path::Path>) -> anyhow::Result<()> {
    // Before any thread is there: signals wait for the supervisor from here on.
    let mut supervisor = Supervisor::new(&state.join("log"))?;
    let layout = Layout::new(state)?;
    let instance = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(metadata::read())?;
    say(&format!("this is {} ({})", instance.hostname, instance.provider_id));
    mounts::name_host(&instance.hostname)?;
    files::write(&layout, &instance)?;
    supervisor.start(containerd(&layout))?;
    images::load(images)?;
    for program in agents(&layout, &instance)? {
        supervisor.start(program)?;
    }
    supervisor.run()
}

/// The console's line; nothing secret goes there.
fn say(text: &str) {
    eprintln!("minato-bootstrap: {text}");
}

fn containerd(layout: &Layout) -> Program {
    Program {
        name: "containerd",
        path: PathBuf::from("containerd"),
        arguments: vec!["--config".to_owned(), layout.containerd_config().display().to_string()],
    }
}

/// The agents that lie beside this program.
fn agents(layout: &Layout, instance: &metadata::Instance) -> anyhow::Result<Vec<Program>> {
    let here = std::env::current_exe()?;
    let all = [
        ("kubelet", files::kubelet_arguments(layout, instance)),
        ("kube-proxy", files::proxy_arguments(layout, instance)),
        ("minato-dns", files::dns_arguments(layout, instance)),
    ];
    let programs = all.into_iter().filter_map(|(name, arguments)| {
        let path = here.with_file_name(name);
        if !path.exists() {
            say(&format!("{} is not there: the node runs without it", path.display()));
            return None;
        }
        Some(Program { name, path, arguments })
    });
    Ok(programs.collect())
}
