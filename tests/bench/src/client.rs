//! A client with one HTTP/2 connection and the admin's certificate.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One connection to one API server.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: String,
}

impl Client {
    /// A client by the first cluster and user of a kubeconfig.
    pub(crate) fn of(kubeconfig: &Path) -> anyhow::Result<Self> {
        let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?).context("the kubeconfig as JSON")?;
        let data = |pointer: &str| -> anyhow::Result<Vec<u8>> {
            let text = config.pointer(pointer).and_then(Value::as_str);
            let text = text.with_context(|| format!("the kubeconfig has no {pointer}"))?;
            Ok(STANDARD.decode(text)?)
        };
        let mut identity = data("/users/0/user/client-certificate-data")?;
        identity.push(b'\n');
        identity.extend(data("/users/0/user/client-key-data")?);
        let authority = data("/clusters/0/cluster/certificate-authority-data")?;
        let http = reqwest::Client::builder()
            .use_rustls_tls()
            .tls_built_in_root_certs(false)
            .add_root_certificate(reqwest::Certificate::from_pem(&authority)?)
            .identity(reqwest::Identity::from_pem(&identity)?)
            .tcp_nodelay(true)
            .http2_initial_stream_window_size(4 << 20)
            .http2_initial_connection_window_size(16 << 20)
            .timeout(Duration::from_secs(120))
            .build()?;
        let server = config.pointer("/clusters/0/cluster/server").and_then(Value::as_str);
        Ok(Self {
            http,
            server: server.context("the kubeconfig has no server")?.to_owned(),
        })
    }

    /// Sends a request; anything but success is an error.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> anyhow::Result<Vec<u8>> {
        let url = format!("{}{path}", self.server);
        let request = self
            .http
            .request(method.parse()?, url)
            .header("content-type", content_type)
            .body(body);
        let response = request.send().await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        if !status.is_success() {
            bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes));
        }
        Ok(bytes.into())
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        self.send("POST", path, "application/json", object.to_string())
            .await
            .map(drop)
    }

    /// Gets a body of any type.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.get_as(path, "application/json").await
    }

    /// Gets a body of the types that are accepted.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> anyhow::Result<Vec<u8>> {
        let response = self.open(path, accept).await?;
        Ok(response.bytes().await?.into())
    }

    /// Begins to get a body.
    pub(crate) async fn open(&self, path: &str, accept: &str) -> anyhow::Result<reqwest::Response> {
        let request = self.http.get(format!("{}{path}", self.server)).header("accept", accept);
        let response = request.send().await?;
        let status = response.status();
        if !status.is_success() {
            bail!("GET {path}: {status} {}", response.text().await.unwrap_or_default());
        }
        Ok(response)
    }

    /// The revision of a collection, to watch from.
    pub(crate) async fn revision(&self, path: &str) -> anyhow::Result<String> {
        let list: Value = serde_json::from_slice(&self.get(&format!("{path}?limit=1")).await?)?;
        let revision = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Ok(revision.context("the list has no resourceVersion")?.to_owned())
    }
}
