//! The clouds that this binary's management plane knows, by name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use minato_fleet::Clouds;
use minato_provider_interface::{CloudError, CloudErrorKind, CloudProvider, ClusterId, OwnerTags};
use minato_provider_mock::MockProvider;
use minato_provider_mock::api::cluster_token;
use minato_provider_mock::call::{Call, Reply};
use minato_provider_mock::remote::RemoteCloud;

/// The mock cloud behind a socket.
pub(crate) struct KnownClouds {
    socket: PathBuf,
    token: String,
}

impl KnownClouds {
    pub(crate) fn new(socket: PathBuf, token: String) -> Self {
        Self { socket, token }
    }

    fn mock(&self, name: &str, cluster: &ClusterId) -> Result<MockProvider, CloudError> {
        if name != "mock" {
            let text = format!("there is no cloud provider {name:?}; this management plane has: mock");
            return Err(CloudError::new(CloudErrorKind::Unsupported, text));
        }
        let endpoint = Arc::new(RemoteCloud::new(&self.socket, &self.token));
        Ok(MockProvider::new(endpoint, cluster.clone()))
    }
}

#[async_trait]
impl Clouds for KnownClouds {
    fn provider(&self, name: &str, cluster: &ClusterId) -> Result<Arc<dyn CloudProvider>, CloudError> {
        Ok(Arc::new(self.mock(name, cluster)?))
    }

    fn credential(&self, name: &str, cluster: &ClusterId) -> Result<String, CloudError> {
        self.mock(name, cluster)?;
        Ok(cluster_token(&self.token, cluster))
    }

    async fn expose(&self, name: &str, owner: &OwnerTags, backend: SocketAddr) -> Result<SocketAddr, CloudError> {
        let call = Call::ExposeEndpoint {
            owner: owner.clone(),
            port: backend.port(),
            backend,
        };
        let invalid = |what: String| CloudError::new(CloudErrorKind::Transient, what);
        match self.mock(name, &owner.cluster)?.call(call).await? {
            Reply::Endpoint { host, port } => {
                let address = host
                    .parse()
                    .map_err(|_| invalid(format!("the mock cloud's address {host:?} is not one")))?;
                Ok(SocketAddr::new(address, port))
            }
            _ => Err(invalid("the mock cloud answered with another call's reply".to_owned())),
        }
    }

    async fn unexpose(&self, name: &str, owner: &OwnerTags) -> Result<(), CloudError> {
        let call = Call::UnexposeEndpoint { owner: owner.clone() };
        self.mock(name, &owner.cluster)?.call(call).await.map(drop)
    }
}
