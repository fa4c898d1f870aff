//! A client of the API server whose credentials can be replaced under it.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use minato_api::kube::client::{Body, ConfigExt};
use minato_api::kube::config::{KubeConfigOptions, Kubeconfig};
use minato_api::kube::{Client, Config};
use tokio::sync::watch;
use tower::Service;

/// A server that does not take a connection in this time is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection on which nothing came for so long is dead: watches have a bookmark each minute. Without this, a network
/// that swallows everything would leave the node with what it last knew for minutes after it came back.
const SILENCE: Duration = Duration::from_secs(100);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is no good.
    #[error("{path}: {source}")]
    Kubeconfig {
        /// Its path.
        path: String,
        /// Why.
        source: Box<minato_api::kube::config::KubeconfigError>,
    },
    /// The client cannot be made of it.
    #[error("{path}: {source}")]
    Client {
        /// Path of the kubeconfig.
        path: String,
        /// Why.
        source: Box<minato_api::kube::Error>,
    },
}

/// The configuration that a kubeconfig file describes.
pub(crate) async fn read_kubeconfig(path: &Path) -> Result<Config, ClientError> {
    let failed = |source| ClientError::Kubeconfig {
        path: path.display().to_string(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(failed)
}

/// A way to the API server, with the credentials of one moment.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// `host:port`.
    pub(crate) server: String,
}

/// The way to the server of a kubeconfig file, with its credentials.
pub(crate) async fn connection_of(path: &Path) -> Result<Connection, ClientError> {
    let mut config = read_kubeconfig(path).await?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let failed = |source| ClientError::Client {
        path: path.display().to_string(),
        source: Box::new(source),
    };
    let tls = Arc::new(config.rustls_client_config().map_err(failed)?);
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(443);
    Ok(Connection {
        server: format!("{host}:{port}"),
        tls,
        client: Client::try_from(config).map_err(failed)?,
    })
}

/// Where the present client is kept.
#[derive(Clone)]
pub(crate) struct Replaceable {
    present: Arc<ArcSwap<Client>>,
    tls: watch::Sender<Arc<rustls::ClientConfig>>,
}

impl Replaceable {
    pub(crate) fn new(connection: &Connection) -> Self {
        Self {
            present: Arc::new(ArcSwap::from_pointee(connection.client.clone())),
            tls: watch::Sender::new(connection.tls.clone()),
        }
    }

    /// Requests from now on go through this one; running watches end by themselves.
    pub(crate) fn replace(&self, connection: Connection) {
        self.present.store(Arc::new(connection.client));
        self.tls.send_replace(connection.tls);
    }

    /// The present credentials, for connections of another kind than requests.
    pub(crate) fn tls(&self) -> watch::Receiver<Arc<rustls::ClientConfig>> {
        self.tls.subscribe()
    }

    /// A client that always uses the present one.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }
}

impl Service<http::Request<Body>> for Replaceable {
    type Response = http::Response<Body>;
    type Error = minato_api::kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let client = self.present.load_full();
        Box::pin(async move { client.send(request).await })
    }
}

/// The status code of an answer that is an error of the API, if it is one.
pub(crate) fn api_code(error: &minato_api::kube::Error) -> Option<u16> {
    match error {
        minato_api::kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// An error's text for people: what the API server said, without the rest of its answer.
pub(crate) fn api_message(error: &minato_api::kube::Error) -> String {
    match error {
        minato_api::kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
