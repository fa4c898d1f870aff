//! Connections to kubelets and to addresses in the cluster, and requests over them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use minato_meta::{ApiError, ErrorKind, GroupResource, GroupVersionResource};
use minato_streams::{EgressError, Stream, Target as Destination};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::tls;
use crate::endpoints::{Target, transaction};
use crate::response::{Body, BoxError};
use crate::server::ApiServer;

/// How long TLS with a backend may take.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a backend may take to begin its answer, where it has no reason to take long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest error text taken from a backend, in bytes.
const MAX_ERROR: usize = 64 * 1024;

/// Requests over one connection.
pub(super) type Requests = SendRequest<Body>;

fn unreachable(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::ServiceUnavailable, format!("error dialing backend: {error}"))
}

fn no_way() -> ApiError {
    unreachable("this server has no connection to nodes")
}

async fn dial(server: &ApiServer, destination: &Destination) -> Result<Box<dyn Stream>, ApiError> {
    let egress = server.deps().egress.as_ref().ok_or_else(no_way)?;
    egress.connect(destination).await.map_err(|error| {
        if let EgressError::Refused { .. } = error {
            tracing::debug!(%error, "a backend refused");
        }
        unreachable(error)
    })
}

/// A connection to the kubelet of a node.
///
/// # Errors
/// 404 without such a node, 503 when it cannot be reached.
pub(super) async fn kubelet(server: &Arc<ApiServer>, node: &str) -> Result<Requests, ApiError> {
    let access = server.deps().kubelet.clone().ok_or_else(no_way)?;
    let object = node_object(server, node).await?;
    let destination = Destination::Kubelet { node: node.to_owned() };
    let stream = dial(server, &destination).await?;
    let mut names: Vec<ServerName<'static>> = Vec::new();
    for text in std::iter::once(node).chain(addresses(&object)) {
        names.extend(ServerName::try_from(text.to_owned()));
    }
    let first = names
        .first()
        .cloned()
        .ok_or_else(|| unreachable("the node has no usable name"))?;
    let way_proves_node = server.deps().egress.as_ref().is_some_and(|e| e.authenticates_nodes());
    let config = access.for_kubelet(names, way_proves_node);
    secure(stream, config, first).await
}

/// A connection to an address as a node sees it; with TLS, whose certificate is not checked, where `tls` says so.
///
/// # Errors
/// 503 when it cannot be reached.
pub(super) async fn address(
    server: &Arc<ApiServer>,
    destination: &Destination,
    host: &str,
    tls: bool,
) -> Result<Requests, ApiError> {
    let stream = dial(server, destination).await?;
    if !tls {
        return plain(stream).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(unreachable)?;
    secure(stream, tls::unverified().map_err(ApiError::internal)?, name).await
}

async fn secure(
    stream: Box<dyn Stream>,
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
) -> Result<Requests, ApiError> {
    let handshake = TlsConnector::from(config).connect(name, stream);
    match tokio::time::timeout(TLS_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => plain(stream).await,
        Ok(Err(error)) => Err(unreachable(format_args!("tls: {error}"))),
        Err(_) => Err(unreachable("TLS handshake timeout")),
    }
}

async fn plain(stream: impl Stream) -> Result<Requests, ApiError> {
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    // Ends with the last request, its response and its upgrade.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a backend broke");
        }
    });
    Ok(requests)
}

/// Sends a request and waits for the head of the answer, for as long as `patience` says.
///
/// # Errors
/// 503 when the connection breaks, 504 when no answer comes.
pub(super) async fn send(
    requests: &mut Requests,
    request: Request<Body>,
    patience: Option<Duration>,
) -> Result<http::Response<Incoming>, ApiError> {
    let answer = requests.send_request(request);
    let answer = match patience {
        None => answer.await,
        Some(patience) => tokio::time::timeout(patience, answer)
            .await
            .map_err(|_| ApiError::new(ErrorKind::Timeout, "error dialing backend: no answer in time"))?,
    };
    answer.map_err(unreachable)
}

/// [`send`] with the time that a kubelet may take.
///
/// # Errors
/// As [`send`].
pub(super) async fn ask(requests: &mut Requests, request: Request<Body>) -> Result<http::Response<Incoming>, ApiError> {
    send(requests, request, Some(ANSWER_TIMEOUT)).await
}

/// A request to a kubelet.
///
/// # Errors
/// The path is not one.
pub(super) fn request(method: http::Method, path: &str, host: &str) -> Result<Request<Body>, ApiError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, host)
        .body(crate::response::empty_body())
        .map_err(|e| ApiError::bad_request(e.to_string()))
}

/// The text of an answer that is an error.
pub(super) async fn error_text(response: http::Response<Incoming>) -> Bytes {
    let body = Limited::new(response.into_body(), MAX_ERROR).collect().await;
    body.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}

/// The error that a client gets for a kubelet's answer, worded as upstream: the kubelet's own text where it has one.
pub(super) async fn error_of(response: http::Response<Incoming>, resource: &GroupResource, name: &str) -> ApiError {
    let code = response.status();
    let text = String::from_utf8_lossy(&error_text(response).await).into_owned();
    match code {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(text),
        StatusCode::NOT_FOUND => ApiError::new(
            ErrorKind::NotFound,
            format!("the server could not find the requested resource ( {resource} {name})"),
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ApiError::internal(format!("the kubelet refused the API server: {text}"))
        }
        StatusCode::TOO_MANY_REQUESTS => ApiError::new(ErrorKind::TooManyRequests, text),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::new(ErrorKind::ServiceUnavailable, text),
        other => ApiError::internal(text).with_code(other.as_u16()),
    }
}

/// A backend's body for the client: ends when the server stops.
pub(super) fn until_stopped(server: &ApiServer, body: Incoming) -> Body {
    let stopped = server.stopped().clone().cancelled_owned();
    let frames = body
        .into_data_stream()
        .map_ok(Frame::data)
        .map_err(|e| -> BoxError { e.into() });
    StreamBody::new(frames.take_until(Box::pin(stopped))).boxed_unsync()
}

/// A Node.
///
/// # Errors
/// 404 when it is absent.
pub(super) async fn node_object(server: &Arc<ApiServer>, name: &str) -> Result<Value, ApiError> {
    let nodes = GroupVersionResource::new("", "v1", "nodes");
    let resource = server.registry.get(&nodes).ok_or_else(ApiError::no_such_path)?;
    let target = Target {
        resource,
        namespace: None,
        name: name.to_owned(),
        subresource: String::new(),
    };
    let stored = transaction::read(server, &target).await?;
    stored.map(|s| s.object).ok_or_else(|| target.not_found())
}

/// Names and addresses of a Node, in its own order.
pub(super) fn addresses(node: &Value) -> impl Iterator<Item = &str> {
    let all = node.pointer("/status/addresses").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(|a| a.get("address").and_then(Value::as_str))
}
