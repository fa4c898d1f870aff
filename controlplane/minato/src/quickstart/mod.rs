//! `minato up` and `minato down`: everything on one machine, under one directory.

mod down;
mod layout;
mod progress;
mod up;

use std::path::PathBuf;

use clap::Args;

pub(crate) use down::down;
pub(crate) use layout::Layout;
pub(crate) use up::up;

/// The cluster that `up` makes.
const CLUSTER: &str = "demo";
const POOL: &str = "workers";
const NAMESPACE: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where everything is kept.
    #[arg(long, default_value = ".minato")]
    directory: PathBuf,
    /// Number of worker nodes of the cluster that `up` makes.
    #[arg(long, default_value_t = 2)]
    nodes: u16,
    /// Only the management plane and the mock cloud, without a cluster.
    #[arg(long)]
    bare: bool,
}
