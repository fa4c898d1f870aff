//! `pods/exec` and `pods/attach`.

use std::sync::Arc;

use minato_meta::ApiError;
use minato_streams::CommandStreams;
use minato_streams::spdy::Session;
use serde_json::{Value, json};

use super::upgrade::{self, Answer, ClientUpgrade, SPDY, STREAM_PROTOCOL, Wanted};
use super::{add_parameter, admit, authorize_upgrade, backend, pod};
use crate::endpoints::Target;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// The stream protocol that is spoken with kubelets on behalf of WebSocket clients.
const KUBELET_PROTOCOL: &str = "v4.channel.k8s.io";

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Exec,
    Attach,
}

impl Action {
    fn path(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
        }
    }
    fn options_kind(self) -> &'static str {
        match self {
            Self::Exec => "PodExecOptions",
            Self::Attach => "PodAttachOptions",
        }
    }
}

/// Connects a client with a command in a container.
///
/// # Errors
/// 400 for requests that are no upgrade, pods without such a container, pods without a node; what the kubelet says.
pub(super) async fn connect(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
    action: Action,
) -> Result<Response, ApiError> {
    authorize_upgrade(server, &request).await?;
    let streams = streams(&request)?;
    admit(
        server,
        &request,
        &target,
        action.options_kind(),
        options(&request, streams),
    )
    .await?;
    let pod = pod::read(server, &target).await?;
    let asked = request.query.get("container").unwrap_or_default().to_owned();
    let container = pod::container(&pod, &target.name, &asked)?;
    let node = pod::bound_node(&pod, &target.name)?;
    let client = ClientUpgrade::take(&mut request)?;
    let path = path(action, &request, &target, container, streams);
    match &client.wanted {
        Wanted::Other(name) if name.eq_ignore_ascii_case(SPDY) => {
            let offered: Vec<&str> = upgrade::tokens(&request.headers, &STREAM_PROTOCOL).collect();
            let kubelet = backend::kubelet(server, node).await?;
            match upgrade::ask_spdy(kubelet, &path, node, offered).await? {
                Answer::Refused(response) => Ok(response),
                Answer::Switched(backend, headers) => {
                    let response = upgrade::pass_on(SPDY, &headers)?;
                    client.run(server, |stream| minato_streams::relay(stream, backend));
                    Ok(response)
                }
            }
        }
        Wanted::Other(name) => Err(ApiError::bad_request(format!("unable to upgrade to {name:?}"))),
        Wanted::WebSocket { accept, protocols } => {
            let Some(protocol) = minato_streams::negotiate(protocols.iter().map(String::as_str)) else {
                return Err(ApiError::bad_request(format!(
                    "unable to upgrade: none of the sub-protocols {protocols:?} is served"
                )));
            };
            let response = upgrade::websocket_response(accept, protocol.name())?;
            let kubelet = backend::kubelet(server, node).await?;
            match upgrade::ask_spdy(kubelet, &path, node, [KUBELET_PROTOCOL]).await? {
                Answer::Refused(response) => Ok(response),
                Answer::Switched(backend, _) => {
                    let session = Session::client(backend).map_err(ApiError::internal)?;
                    client.run(server, move |stream| async move {
                        let socket = minato_streams::websocket(stream).await;
                        minato_streams::serve_command(socket, protocol, session, streams).await;
                    });
                    Ok(response)
                }
            }
        }
    }
}

fn streams(request: &ApiRequest) -> Result<CommandStreams, ApiError> {
    let query = &request.query;
    let tty = query.is_true("tty");
    let streams = CommandStreams {
        stdin: query.is_true("stdin"),
        stdout: query.is_true("stdout"),
        // A terminal has one output; runtimes do not expect another stream then.
        stderr: query.is_true("stderr") && !tty,
        tty,
    };
    if streams.stdin || streams.stdout || streams.stderr {
        return Ok(streams);
    }
    Err(ApiError::bad_request(
        "you must specify at least 1 of stdin, stdout, stderr",
    ))
}

/// The options object that admission sees.
fn options(request: &ApiRequest, streams: CommandStreams) -> Value {
    let mut options = json!({});
    for (name, is_set) in [
        ("stdin", streams.stdin),
        ("stdout", streams.stdout),
        ("stderr", streams.stderr),
        ("tty", streams.tty),
    ] {
        if is_set {
            options[name] = json!(true);
        }
    }
    if let Some(container) = request.query.get_non_empty("container") {
        options["container"] = json!(container);
    }
    let command: Vec<&str> = request.query.get_all("command").collect();
    if !command.is_empty() {
        options["command"] = json!(command);
    }
    options
}

fn path(action: Action, request: &ApiRequest, target: &Target, container: &str, streams: CommandStreams) -> String {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let mut path = format!("/{}/{namespace}/{}/{container}", action.path(), target.name);
    if action == Action::Exec {
        for word in request.query.get_all("command") {
            add_parameter(&mut path, "command", word);
        }
    }
    for (name, is_set) in [
        ("input", streams.stdin),
        ("output", streams.stdout),
        ("error", streams.stderr),
        ("tty", streams.tty),
    ] {
        if is_set {
            add_parameter(&mut path, name, "1");
        }
    }
    path
}
