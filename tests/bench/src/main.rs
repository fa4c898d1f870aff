//! `make bench`: measures the built programs as their users meet them, prints a table and writes a flat JSON object of
//! names and numbers.
//!
//! The control plane under test is a process of its own, so that its memory and its processor time are its own; this
//! program is the client. Load is bounded in count, and everything that is started is stopped.
//!
//! May depend on: `minato-control-plane` (for several control planes in one process), `minato-test-support` (a real etcd),
//! HTTP and TLS client libraries.

mod client;
mod deployments;
mod lists;
mod memory;
mod report;
mod server;
mod watches;
mod writes;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};

use report::Report;

/// Requests that run at the same time, where it is said "at concurrency 16".
const CONCURRENCY: usize = 16;

#[derive(Debug, Parser)]
#[command(about = "Measures control planes.")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures everything, or what is named.
    Run {
        /// Where the result is written.
        #[arg(long)]
        output: PathBuf,
        /// Parts to measure; all of them when none is named.
        #[arg(long, value_delimiter = ',')]
        only: Vec<Part>,
    },
    /// Runs control planes in this process until its input ends; how their marginal memory is measured.
    #[command(hide = true)]
    Planes {
        /// Directory for all of them.
        directory: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Ready,
    Memory,
    Writes,
    Lists,
    Watches,
    Deployments,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.command {
            Command::Run { output, only } => run(&output, &only).await,
            Command::Planes { directory } => memory::planes(&directory).await,
        }
    })
}

async fn run(output: &std::path::Path, only: &[Part]) -> anyhow::Result<()> {
    let mut report = Report::default();
    let wanted = |part| only.is_empty() || only.contains(&part);
    if wanted(Part::Ready) {
        memory::ready(&mut report).await.context("time to ready")?;
    }
    if wanted(Part::Memory) {
        memory::idle(&mut report).await.context("idle memory")?;
        memory::marginal(&mut report).await.context("marginal memory")?;
    }
    if wanted(Part::Writes) {
        writes::embedded(&mut report).await.context("writes")?;
        // What cannot be measured has no figure; the others still do.
        if let Err(error) = writes::etcd(&mut report).await {
            eprintln!("creates on etcd were not measured: {error:#}");
        }
    }
    if wanted(Part::Lists) {
        lists::measure(&mut report).await.context("lists")?;
    }
    if wanted(Part::Watches) {
        watches::measure(&mut report).await.context("watches")?;
    }
    if wanted(Part::Deployments) {
        deployments::measure(&mut report).await.context("deployments")?;
    }
    report.write(output)
}
