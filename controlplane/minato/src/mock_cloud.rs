//! `minato mock-cloud`: instances, routes and load balancers on this machine.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use minato_provider_mock::local::{self, LocalConfig, LocalHost, NodeProgram};
use minato_provider_mock::{CloudConfig, MockCloud, api};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for its state, socket, token, images and instances.
    #[arg(long)]
    directory: PathBuf,
}

/// Where a mock cloud keeps its things.
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("api.sock")
    }
    pub(crate) fn token(&self) -> PathBuf {
        self.root.join("token")
    }
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("cloud.json")
    }
    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Names of everything on the machine come from the directory, so that two checkouts do not meet.
    pub(crate) fn prefix(&self) -> String {
        let hash = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        format!("mn{:02x}{:02x}", hash[0], hash[1])
    }

    /// What runs on an instance: the same set-up that the node image starts at first boot.
    pub(crate) fn local(&self) -> anyhow::Result<LocalConfig> {
        let program = std::env::current_exe()?.with_file_name("minato-bootstrap");
        Ok(LocalConfig {
            directory: self.root.join("instances"),
            prefix: self.prefix(),
            program: NodeProgram {
                path: program,
                arguments: vec![
                    "init".to_owned(),
                    "--images".to_owned(),
                    self.images().display().to_string(),
                ],
            },
        })
    }
}

/// Runs until it is asked to end; instances keep running, and are taken over by the next run.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let root = std::fs::canonicalize(&options.directory)
        .with_context(|| format!("the directory {}", options.directory.display()))?;
    let layout = Layout { root };
    let token = minato_pki::keep_private(&layout.token(), || Ok(new_token()))?;
    let config = CloudConfig {
        network: network(&layout.state()).await?,
        zones: vec!["a".to_owned(), "b".to_owned()],
        region: "local".to_owned(),
        state_file: Some(layout.state()),
        local: true,
    };
    let cloud = MockCloud::open(config)?;
    let host = LocalHost::start(cloud.clone(), layout.local()?).await?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (socket, stop) = (layout.socket(), stop.clone());
        async move { api::serve(cloud, &socket, token, stop).await }
    });
    let running = tokio::spawn(host.run(stop.clone()));
    tracing::info!(socket = %layout.socket().display(), "mock cloud ready");
    crate::asked_to_end().await?;
    stop.cancel();
    running.await?;
    serving.await?.context("serving the cloud's API")
}

/// The network of the state that is there; for a new cloud, one that is free.
async fn network(state: &Path) -> anyhow::Result<ipnet::Ipv4Net> {
    match std::fs::read(state) {
        Ok(bytes) => {
            let state: minato_provider_mock::state::CloudState = serde_json::from_slice(&bytes)?;
            Ok(state.network)
        }
        Err(_) => Ok(local::free_network().await?),
    }
}

fn new_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
