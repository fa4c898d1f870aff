//! The client side of [`crate::api`].

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use minato_provider_interface::{CloudError, CloudErrorKind, ClusterId};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::call::{Call, Endpoint, Reply, WireError};

/// A mock cloud in another process. Each call is a connection of its own, so a restart of the cloud needs no care here.
#[derive(Clone)]
pub struct RemoteCloud {
    socket: PathBuf,
    token: String,
    timeout: Duration,
}

impl std::fmt::Debug for RemoteCloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteCloud")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl RemoteCloud {
    /// A client for the cloud behind `socket`, with its bearer token.
    pub fn new(socket: impl Into<PathBuf>, token: impl Into<String>) -> Self {
        Self {
            socket: socket.into(),
            token: token.into(),
            timeout: Duration::from_secs(30),
        }
    }

    /// The cloud's whole state, as JSON.
    ///
    /// # Errors
    /// The cloud cannot be reached or refuses the credential.
    pub async fn state(&self) -> Result<serde_json::Value, CloudError> {
        self.send(Method::GET, "/v1/state", Bytes::new()).await
    }

    async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, CloudError> {
        match tokio::time::timeout(self.timeout, self.exchange(method, path, body)).await {
            Ok(result) => result,
            Err(_) => Err(transient("the mock cloud did not answer in time")),
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, CloudError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|e| transient(format!("cannot reach the mock cloud at {}: {e}", self.socket.display())))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| transient(format!("mock cloud: {e}")))?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, "mock-cloud")
            .header(http::header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|e| CloudError::new(CloudErrorKind::Invalid, format!("mock cloud request: {e}")))?;
        let result = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|e| transient(format!("mock cloud: {e}")))?;
            let status = response.status();
            let body = response
                .into_body()
                .collect()
                .await
                .map_err(|e| transient(format!("mock cloud: {e}")))?
                .to_bytes();
            if status == StatusCode::OK {
                return serde_json::from_slice(&body).map_err(|e| transient(format!("mock cloud reply: {e}")));
            }
            let wire: WireError = serde_json::from_slice(&body)
                .map_err(|e| transient(format!("mock cloud answered {status} and not an error object: {e}")))?;
            Err(CloudError::from(wire))
        }
        .await;
        driver.abort();
        result
    }
}

fn transient(message: impl Into<String>) -> CloudError {
    CloudError::new(CloudErrorKind::Transient, message)
}

#[async_trait]
impl Endpoint for RemoteCloud {
    async fn call(&self, cluster: &ClusterId, call: Call) -> Result<Reply, CloudError> {
        let body = serde_json::to_vec(&call)
            .map_err(|e| CloudError::new(CloudErrorKind::Invalid, format!("cannot encode the call: {e}")))?;
        self.send(Method::POST, &format!("/v1/clusters/{cluster}/call"), Bytes::from(body))
            .await
    }
}
