//! A client with the identity of the node that this process runs on: the kubelet gets it and renews it, others use it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minato_api::kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use minato_api::kube::{self, Client, Config};

/// How often a file that another process writes is looked at.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_FOR_RENEWAL: Duration = Duration::from_secs(60);

/// The client, and what to watch for its renewal.
pub struct NodeClient {
    /// The way to the API server.
    pub client: Client,
    certificate: Option<(PathBuf, Option<SystemTime>)>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NodeClientError {
    /// The kubeconfig cannot be read.
    #[error("the node's kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// What it says cannot be used.
    #[error("a client of the node's kubeconfig: {0}")]
    Client(#[from] kube::Error),
}

impl NodeClient {
    /// Waits until the kubelet has written the kubeconfig, which is when the node has joined.
    ///
    /// # Errors
    /// See [`NodeClientError`].
    pub async fn when_joined(kubeconfig: &Path) -> Result<Self, NodeClientError> {
        while !kubeconfig.exists() {
            tokio::time::sleep(LOOK).await;
        }
        let parsed = Kubeconfig::read_from(kubeconfig)?;
        let mut users = parsed.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
        let file = users
            .find_map(|user| user.client_certificate.as_ref())
            .map(PathBuf::from);
        let certificate = file.map(|file| {
            let modified = modified(&file);
            (file, modified)
        });
        let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
            certificate,
        })
    }

    /// Ends when the node has a new certificate: a process that keeps no state starts anew with it.
    pub async fn renewed(&self) {
        let Some((file, first)) = &self.certificate else {
            return std::future::pending().await;
        };
        while modified(file) == *first {
            tokio::time::sleep(LOOK_FOR_RENEWAL).await;
        }
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).ok()?.modified().ok()
}
