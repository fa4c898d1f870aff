//! `pods/portforward`. All three of its forms end at the kubelet as the bytes that the client sent: SPDY/3.1 directly, SPDY/3.1
//! inside a WebSocket, and the older WebSocket with a pair of channels for each port.

use std::sync::Arc;

use http::{Method, header};
use minato_meta::ApiError;
use serde_json::{Value, json};

use super::upgrade::{self, Answer, ClientUpgrade, SPDY, STREAM_PROTOCOL, Wanted};
use super::{add_parameter, admit, authorize_upgrade, backend, pod};
use crate::endpoints::Target;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// What sub-protocols begin with that carry SPDY; the rest is the stream protocol inside.
const TUNNELLED: &str = "SPDY/3.1+";

/// Connects a client with ports of a pod.
///
/// # Errors
/// 400 for requests that are no upgrade and pods without a node; what the kubelet says.
pub(super) async fn connect(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    authorize_upgrade(server, &request).await?;
    let ports: Vec<Value> = request
        .query
        .get_all("ports")
        .filter_map(port)
        .map(|p| json!(p))
        .collect();
    let options = if ports.is_empty() {
        json!({})
    } else {
        json!({"ports": ports})
    };
    admit(server, &request, &target, "PodPortForwardOptions", options).await?;
    let pod = pod::read(server, &target).await?;
    let node = pod::bound_node(&pod, &target.name)?;
    let client = ClientUpgrade::take(&mut request)?;
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let mut path = format!("/portForward/{namespace}/{}", target.name);
    for port in request.query.get_all("ports").filter_map(port) {
        add_parameter(&mut path, "port", &port.to_string());
    }
    let kubelet = backend::kubelet(server, node).await?;
    match &client.wanted {
        Wanted::WebSocket { accept, protocols } if protocols.iter().any(|p| p.starts_with(TUNNELLED)) => {
            let offered = protocols.iter().filter_map(|p| p.strip_prefix(TUNNELLED));
            let (stream, headers) = match upgrade::ask_spdy(kubelet, &path, node, offered).await? {
                Answer::Refused(response) => return Ok(response),
                Answer::Switched(stream, headers) => (stream, headers),
            };
            let chosen = headers
                .get(STREAM_PROTOCOL)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default();
            let response = upgrade::websocket_response(accept, &format!("{TUNNELLED}{chosen}"))?;
            client.run(server, |connection| async move {
                let socket = minato_streams::websocket(connection).await;
                minato_streams::relay_websocket(socket, stream).await;
            });
            Ok(response)
        }
        Wanted::Other(name) if name.eq_ignore_ascii_case(SPDY) => {
            let offered: Vec<&str> = upgrade::tokens(&request.headers, &STREAM_PROTOCOL).collect();
            let answer = upgrade::ask_spdy(kubelet, &path, node, offered).await?;
            finish(server, client, answer, SPDY)
        }
        Wanted::Other(name) => Err(ApiError::bad_request(format!("unable to upgrade to {name:?}"))),
        Wanted::WebSocket { .. } => {
            let mut kubelet = kubelet;
            let mut opening = backend::request(Method::GET, &path, node)?;
            let names = [
                header::CONNECTION,
                header::UPGRADE,
                header::SEC_WEBSOCKET_KEY,
                header::SEC_WEBSOCKET_VERSION,
                header::SEC_WEBSOCKET_PROTOCOL,
            ];
            for name in names {
                for value in request.headers.get_all(&name) {
                    opening.headers_mut().append(name.clone(), value.clone());
                }
            }
            let answer = upgrade::settle(backend::ask(&mut kubelet, opening).await?).await?;
            finish(server, client, answer, "websocket")
        }
    }
}

/// Joins the client with the backend that has switched.
fn finish(
    server: &Arc<ApiServer>,
    client: ClientUpgrade,
    answer: Answer,
    protocol: &str,
) -> Result<Response, ApiError> {
    match answer {
        Answer::Refused(response) => Ok(response),
        Answer::Switched(stream, headers) => {
            let response = upgrade::pass_on(protocol, &headers)?;
            client.run(server, |connection| minato_streams::relay(connection, stream));
            Ok(response)
        }
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok()
}
