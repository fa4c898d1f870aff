//! The instance's identity, from its cloud's metadata service: the mock cloud's, which works as EC2's second version does.
//! Source: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html>.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use minato_api::node::NodeConfig;

/// Link-local address of metadata services.
const SERVICE: &str = "http://169.254.169.254";
/// How long the network may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest answer: EC2 allows 16 KiB of user data, OpenStack 64.
const MAX_ANSWER: usize = 128 * 1024;

/// What an instance knows of itself.
pub(crate) struct Instance {
    /// Host name, and name of the Node.
    pub(crate) hostname: String,
    /// The Node's `spec.providerID`.
    pub(crate) provider_id: String,
    /// Its address.
    pub(crate) address: String,
    /// Where its cluster is, and how to join it.
    pub(crate) config: NodeConfig,
}

type Http = Client<HttpConnector, Empty<Bytes>>;

/// Reads all of it; waits for the service while the network comes up.
pub(crate) async fn read() -> anyhow::Result<Instance> {
    let http: Http = Client::builder(TokioExecutor::new()).build_http();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let token = loop {
        match token(&http).await {
            Ok(token) => break token,
            Err(error) if tokio::time::Instant::now() > deadline => {
                return Err(error.context("the metadata service does not answer"));
            }
            // Nothing tells when a network works but a packet that comes back.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let user_data = get(&http, &token, "user-data").await?;
    let config: NodeConfig = serde_yaml_ng::from_str(&user_data).context("the user data is no node configuration")?;
    ensure!(
        config.api_version == NodeConfig::API_VERSION,
        "the user data is of version {:?}; this image knows {:?}",
        config.api_version,
        NodeConfig::API_VERSION
    );
    Ok(Instance {
        hostname: get(&http, &token, "hostname").await?,
        provider_id: get(&http, &token, "provider-id").await?,
        address: get(&http, &token, "local-ipv4").await?,
        config,
    })
}

async fn token(http: &Http) -> anyhow::Result<String> {
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("{SERVICE}/latest/api/token"))
        .header("x-metadata-token-ttl-seconds", "300");
    send(http, request.body(Empty::new())?).await
}

async fn get(http: &Http, token: &str, item: &str) -> anyhow::Result<String> {
    let request = Request::builder()
        .uri(format!("{SERVICE}/minato/v1/{item}"))
        .header("x-metadata-token", token);
    let answer = send(http, request.body(Empty::new())?).await;
    answer.with_context(|| format!("reading {item} from the metadata service"))
}

async fn send(http: &Http, request: Request<Empty<Bytes>>) -> anyhow::Result<String> {
    let exchange = async {
        let response = http.request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        if !status.is_success() {
            bail!("it answers {status}");
        }
        Ok(String::from_utf8(body.to_vec())?)
    };
    tokio::time::timeout(Duration::from_secs(2), exchange)
        .await
        .context("no answer within 2 s")?
}
