//! Local mode: makes the state real on this machine, and reports back what happened.
//!
//! [`LocalHost::run`] is one loop that compares the state with what is there and acts on the difference: after every
//! change, when an instance's processes end, and after a restart, when it finds again what an earlier run left. The
//! network is a namespace of its own (the "VPC"): a bridge with the router's address, a veth to each instance, one veth
//! to the host so that a person can reach instances, routes for pod CIDRs. Listeners for load balancers, exposed control
//! planes and the metadata service live in that namespace too, served by a thread that has joined it.

mod balancer;
mod forward;
mod instance;
mod metadata;
mod netns;
mod network;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use minato_provider_interface::MachineState;
use tokio_util::sync::CancellationToken;

use crate::cloud::MockCloud;
use crate::state::CloudState;

pub use instance::{Launch, NodeProgram};
pub use network::{check_host, free_network};

/// Failures of local mode; each says what could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A command failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line (never holds secrets).
        command: String,
        /// What it printed.
        output: String,
    },
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The machine lacks something that local mode needs.
    #[error("{0}")]
    Unsupported(String),
}

pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LocalError {
    let what = what.into();
    move |source| LocalError::Io { what, source }
}

/// How local mode is set up on this machine.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    /// Directory for instances' files and records.
    pub directory: PathBuf,
    /// Prefix of namespace, interface and cgroup names, at most 8 characters; unique on this machine.
    pub prefix: String,
    /// What runs as the first process of an instance.
    pub program: NodeProgram,
}

/// The local host of a mock cloud.
pub struct LocalHost {
    cloud: MockCloud,
    config: LocalConfig,
    vpc: Arc<netns::NetnsRuntime>,
    network: network::Network,
    launches: BTreeMap<String, Launch>,
    balancers: balancer::Balancers,
    forwards: forward::Forwards,
    exits: (tokio::sync::mpsc::Sender<String>, tokio::sync::mpsc::Receiver<String>),
}

impl LocalHost {
    /// Sets the network up, or takes over that of an earlier run.
    ///
    /// # Errors
    /// Not root, a missing tool or kernel feature, or a failed command.
    pub async fn start(cloud: MockCloud, config: LocalConfig) -> Result<Self, LocalError> {
        network::check_host()?;
        std::fs::create_dir_all(&config.directory).map_err(io("creating the instances' directory"))?;
        let state = cloud.snapshot();
        let network = network::Network::ensure(&config.prefix, &state).await?;
        let vpc = Arc::new(netns::NetnsRuntime::start(network.namespace())?);
        metadata::serve(&vpc, cloud.clone()).await?;
        Ok(Self {
            balancers: balancer::Balancers::new(vpc.clone(), network.clone()),
            forwards: forward::Forwards::new(vpc.clone()),
            launches: BTreeMap::new(),
            exits: tokio::sync::mpsc::channel(64),
            cloud,
            config,
            vpc,
            network,
        })
    }

    /// Follows the state until `stop`. Instances keep running afterwards; a later run takes them over.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.cloud.changes();
        loop {
            changes.borrow_and_update();
            let complete = self.reconcile().await;
            let retry = if complete {
                std::time::Duration::from_secs(3600)
            } else {
                std::time::Duration::from_secs(1)
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = changes.changed() => {}
                Some(id) = self.exits.1.recv() => self.on_exit(&id),
                () = tokio::time::sleep(retry) => {}
            }
        }
        self.balancers.stop_all().await;
        self.forwards.stop_all().await;
        drop(self.vpc);
    }

    fn on_exit(&mut self, id: &str) {
        self.launches.remove(id);
        if let Err(error) = self.cloud.instance_died(id) {
            tracing::error!(instance = id, %error, "recording an instance's end failed");
        }
    }

    /// One pass over everything; true when nothing is left to do.
    async fn reconcile(&mut self) -> bool {
        let state = self.cloud.snapshot();
        let mut complete = true;
        for instance in state.instances.values() {
            if let Err(error) = self.reconcile_instance(&state, &instance.id).await {
                tracing::warn!(instance = instance.id, %error, "instance is not as it should be; trying again");
                complete = false;
            }
        }
        let state = self.cloud.snapshot();
        let network = self.network.apply_routes(&state).await;
        let balancers = self.balancers.apply(&state).await;
        let forwards = self.forwards.apply(&state).await;
        for result in [network, balancers, forwards] {
            if let Err(error) = result {
                tracing::warn!(%error, "the network is not as it should be; trying again");
                complete = false;
            }
        }
        complete
    }

    async fn reconcile_instance(&mut self, state: &CloudState, id: &str) -> Result<(), LocalError> {
        let Some(instance) = state.instances.get(id) else {
            return Ok(());
        };
        match instance.state {
            MachineState::Pending | MachineState::Running => {
                if !self.launches.contains_key(id) {
                    self.network.ensure_instance(state, instance).await?;
                    let launch = Launch::start_or_adopt(&self.config, &self.network, instance).await?;
                    launch.report_exit(self.exits.0.clone());
                    self.launches.insert(id.to_owned(), launch);
                }
            }
            MachineState::Stopping | MachineState::Stopped => self.power_off(id).await?,
            MachineState::ShuttingDown => {
                self.power_off(id).await?;
                self.network.remove_instance(instance).await?;
                instance::remove_files(&self.config, id)?;
            }
            MachineState::Terminated => return Ok(()),
        }
        if matches!(
            instance.state,
            MachineState::Pending | MachineState::Stopping | MachineState::ShuttingDown
        ) {
            self.cloud
                .settle(id)
                .map_err(|e| LocalError::Unsupported(e.to_string()))?;
        }
        Ok(())
    }

    async fn power_off(&mut self, id: &str) -> Result<(), LocalError> {
        let launch = match self.launches.remove(id) {
            Some(launch) => Some(launch),
            None => Launch::adopt(&self.config, id)?,
        };
        match launch {
            Some(launch) => launch.stop(&self.config).await,
            None => Ok(()),
        }
    }
}

/// Removes everything that local mode ever made under this configuration: processes, namespaces, interfaces, cgroups and
/// files, whatever state an earlier run was left in.
///
/// # Errors
/// The first thing that could not be removed; the rest is removed all the same.
pub async fn purge(config: &LocalConfig, instances: impl IntoIterator<Item = String>) -> Result<(), LocalError> {
    let mut first = Ok(());
    for id in instances {
        let result = async {
            if let Some(launch) = Launch::adopt(config, &id)? {
                launch.stop(config).await?;
            }
            instance::remove_files(config, &id)
        }
        .await;
        first = first.and(result);
    }
    first.and(network::purge(&config.prefix).await)
}
