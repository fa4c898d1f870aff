//! Connections that stop being HTTP, at both ends.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use minato_meta::ApiError;

use super::backend::{self, Requests};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
pub(super) const SPDY: &str = "SPDY/3.1";
/// Sub-protocols of this kind carry a browser's token and choose nothing.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// What a client wants its connection upgraded to.
pub(super) enum Wanted {
    WebSocket {
        /// `Sec-WebSocket-Accept`, ready.
        accept: String,
        /// Sub-protocols in the client's order.
        protocols: Vec<String>,
    },
    /// Any other protocol, by name.
    Other(String),
}

/// An upgrade that a client asked for.
pub(super) struct ClientUpgrade {
    pub(super) wanted: Wanted,
    connection: OnUpgrade,
}

/// Whether the request asks for an upgrade.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && tokens(headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"))
}

/// The comma-separated words of all headers of a name.
pub(super) fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
    values
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .filter(|t| !t.is_empty())
}

impl ClientUpgrade {
    /// Takes the upgrade out of a request.
    ///
    /// # Errors
    /// 400 when there is none, or on a connection that cannot be upgraded (HTTP/2, or inside the process).
    pub(super) fn take(request: &mut ApiRequest) -> Result<Self, ApiError> {
        let required = || ApiError::bad_request("Upgrade request required");
        if !is_upgrade(&request.headers) {
            return Err(required());
        }
        let name = request.header("upgrade").unwrap_or_default().to_owned();
        let wanted = if name.eq_ignore_ascii_case("websocket") {
            let key = request.header("sec-websocket-key").filter(|k| !k.is_empty());
            let key = key.ok_or_else(|| ApiError::bad_request("websocket: no Sec-WebSocket-Key"))?;
            if request.header("sec-websocket-version") != Some("13") {
                return Err(ApiError::bad_request("websocket: only version 13 is served"));
            }
            let accept = minato_streams::websocket_accept(key);
            let offered = tokens(&request.headers, &header::SEC_WEBSOCKET_PROTOCOL);
            let protocols = offered.filter(|p| !p.starts_with(BEARER)).map(str::to_owned).collect();
            Wanted::WebSocket { accept, protocols }
        } else {
            Wanted::Other(name)
        };
        let connection = request.extensions.remove::<OnUpgrade>().ok_or_else(required)?;
        Ok(Self { wanted, connection })
    }

    /// Runs `conversation` on the connection once the response has gone out, until it or the server ends.
    pub(super) fn run<F>(
        self,
        server: &Arc<ApiServer>,
        conversation: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = async move {
            match self.connection.await {
                Ok(upgraded) => conversation(TokioIo::new(upgraded)).await,
                Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
            }
        };
        tokio::spawn(server.stopped().clone().run_until_cancelled_owned(task));
    }
}

/// The answer to a WebSocket's opening. Source: RFC 6455 §4.2.2.
///
/// # Errors
/// The values are no header values.
pub(super) fn websocket_response(accept: &str, protocol: &str) -> Result<Response, ApiError> {
    let mut response = switching("websocket")?;
    let headers = response.headers_mut();
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, header_value(accept)?);
    if !protocol.is_empty() {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, header_value(protocol)?);
    }
    Ok(response)
}

pub(super) fn switching(protocol: &str) -> Result<Response, ApiError> {
    let mut response = Response::new(response::empty_body());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, header_value(protocol)?);
    Ok(response)
}

fn header_value(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|_| ApiError::bad_request("not a header value"))
}

/// What a backend said to an upgrade.
pub(super) enum Answer {
    /// The upgraded connection, and the headers of the answer.
    Switched(TokioIo<Upgraded>, HeaderMap),
    /// Another answer, for the client as it is.
    Refused(Response),
}

/// Asks a backend for an upgrade to SPDY/3.1 with one of these stream protocols.
///
/// # Errors
/// The backend cannot be talked to.
pub(super) async fn ask_spdy<'p>(
    mut requests: Requests,
    path: &str,
    host: &str,
    protocols: impl IntoIterator<Item = &'p str>,
) -> Result<Answer, ApiError> {
    let mut request = backend::request(Method::POST, path, host)?;
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    for protocol in protocols {
        headers.append(STREAM_PROTOCOL, header_value(protocol)?);
    }
    let answer = backend::ask(&mut requests, request).await?;
    settle(answer).await
}

/// Sorts a backend's answer to an upgrade.
///
/// # Errors
/// The connection breaks.
pub(super) async fn settle(answer: http::Response<hyper::body::Incoming>) -> Result<Answer, ApiError> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let headers = answer.headers().clone();
        let upgraded = hyper::upgrade::on(answer).await.map_err(ApiError::internal)?;
        return Ok(Answer::Switched(TokioIo::new(upgraded), headers));
    }
    let (code, kind) = (answer.status(), answer.headers().get(header::CONTENT_TYPE).cloned());
    let text = backend::error_text(answer).await;
    // An answer of success is none to an upgrade.
    let code = if code.is_success() {
        StatusCode::BAD_GATEWAY
    } else {
        code
    };
    let kind = kind.unwrap_or_else(|| HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(Answer::Refused(response::with_type(code, kind, text)))
}

/// The answer to a client whose bytes go to the backend as they are: the backend's own headers about the protocol.
///
/// # Errors
/// The values are no header values.
pub(super) fn pass_on(protocol: &str, backend: &HeaderMap) -> Result<Response, ApiError> {
    let mut response = switching(protocol)?;
    for name in [
        STREAM_PROTOCOL,
        header::SEC_WEBSOCKET_ACCEPT,
        header::SEC_WEBSOCKET_PROTOCOL,
    ] {
        for value in backend.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    Ok(response)
}
