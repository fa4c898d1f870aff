//! exec, attach and port-forward: the runtime gives a URL, and the upgraded connection is passed through to it byte by byte,
//! whatever protocol it speaks.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use minato_cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};
use minato_cri::{Cri, CriError};
use tokio::net::TcpStream;

use super::routes::Query;
use super::{Body, Server, answer};
use crate::pods::PodId;
use crate::view::{Ended, PodView, State};

/// The runtime answers on loopback.
const CONNECT: Duration = Duration::from_secs(10);
const PROTOCOLS: &str = "sec-websocket-protocol";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    Exec,
    Attach,
    PortForward,
}

/// The container or sandbox that is meant, by the runtime's id.
async fn target(cri: &Cri, id: &PodId, container: Option<&str>) -> Result<String, Response<Body>> {
    let failed = |error: CriError| answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let view = PodView::read(cri, &id.uid, &mut Ended::new()).await.map_err(failed)?;
    let not_found = |text: String| answer(StatusCode::NOT_FOUND, text);
    match container {
        Some(name) => {
            let running = view.container(name).filter(|c| c.state == State::Running);
            let running = running.ok_or_else(|| not_found(format!("container not found (\"{name}\")")))?;
            Ok(running.id.clone())
        }
        None => {
            let sandbox = view
                .sandbox()
                .ok_or_else(|| not_found(format!("pod {} has no sandbox", id.long())))?;
            Ok(sandbox.id.clone())
        }
    }
}

impl Server {
    pub(super) async fn stream(
        &self,
        kind: StreamKind,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &Query,
        request: Request<Incoming>,
    ) -> Response<Body> {
        match self.stream_url(kind, namespace, pod, container, query).await {
            Ok(url) => pass_through(&url, request).await,
            Err(refusal) => refusal,
        }
    }

    async fn stream_url(
        &self,
        kind: StreamKind,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &Query,
    ) -> Result<String, Response<Body>> {
        let pod = self.find(namespace, pod)?;
        let cri = &self.context.cri;
        let container = (kind != StreamKind::PortForward).then_some(container);
        let id = target(cri, &PodId::of(&pod), container).await?;
        let tty = query.is_set("tty");
        let (stdin, stdout) = (query.is_set("input"), query.is_set("output"));
        // With a terminal both outputs are one.
        let stderr = query.is_set("error") && !tty;
        let url = match kind {
            StreamKind::Exec => {
                let cmd = query.all("command");
                if cmd.is_empty() {
                    return Err(answer(StatusCode::BAD_REQUEST, "command is missing"));
                }
                let message = ExecRequest {
                    container_id: id,
                    cmd,
                    tty,
                    stdin,
                    stdout,
                    stderr,
                };
                cri.exec(message).await
            }
            StreamKind::Attach => {
                let spec = crate::pods::any_container(&pod, container.unwrap_or_default());
                let tty = spec.is_some_and(|spec| spec.tty == Some(true));
                let message = AttachRequest {
                    container_id: id,
                    stdin,
                    tty,
                    stdout,
                    stderr: stderr && !tty,
                };
                cri.attach(message).await
            }
            StreamKind::PortForward => {
                let ports = query.all("port").into_iter().chain(query.all("ports"));
                let port = ports.flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>());
                let port = port.filter_map(|port| port.parse().ok()).collect();
                cri.port_forward(PortForwardRequest {
                    pod_sandbox_id: id,
                    port,
                })
                .await
            }
        };
        url.map_err(|error| answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// Runs a command to its end and answers with its output.
    pub(super) async fn run_command(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &Query,
    ) -> Response<Body> {
        let run = async {
            let pod = self.find(namespace, pod)?;
            let id = target(&self.context.cri, &PodId::of(&pod), Some(container)).await?;
            let command = query.get("cmd").unwrap_or_default();
            let command = command.split_whitespace().map(str::to_owned).collect();
            let answered = self.context.cri.exec_sync(&id, command, Duration::from_secs(60)).await;
            let output = answered.map_err(|error| answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
            let mut text = output.stdout;
            text.extend_from_slice(&output.stderr);
            let status = if output.exit_code == 0 {
                StatusCode::OK
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            Ok::<_, Response<Body>>(answer(status, text))
        };
        run.await.unwrap_or_else(|refusal| refusal)
    }
}

/// Headers of one connection only, which are set anew on the next.
fn forwarded(headers: &HeaderMap, host: &str) -> HeaderMap {
    let mut forwarded = headers.clone();
    forwarded.remove(header::AUTHORIZATION);
    forwarded.remove(header::CONTENT_LENGTH);
    if let Ok(host) = HeaderValue::from_str(host) {
        forwarded.insert(header::HOST, host);
    }
    // Runtimes know the fourth version of the channel protocol at most, and refuse what names the fifth first.
    let offered: Vec<&str> = headers
        .get_all(PROTOCOLS)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let offered: Vec<&str> = offered.iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    let known: Vec<&str> = offered
        .iter()
        .copied()
        .filter(|name| *name != "v5.channel.k8s.io")
        .collect();
    if known.len() != offered.len()
        && !known.is_empty()
        && let Ok(value) = HeaderValue::from_str(&known.join(", "))
    {
        forwarded.insert(PROTOCOLS, value);
    }
    forwarded
}

async fn pass_through(url: &str, mut request: Request<Incoming>) -> Response<Body> {
    let gateway = |text: String| answer(StatusCode::BAD_GATEWAY, text);
    let Ok(url) = url.parse::<Uri>() else {
        return gateway("the runtime gave no usable URL".to_owned());
    };
    let Some(authority) = url.authority().map(|authority| authority.as_str().to_owned()) else {
        return gateway("the runtime's URL has no host".to_owned());
    };
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect(&authority)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return gateway(format!("connecting to the runtime: {error}")),
        Err(_) => return gateway("connecting to the runtime: timed out".to_owned()),
    };
    let (mut sender, connection) = match hyper::client::conn::http1::handshake(TokioIo::new(stream)).await {
        Ok(parts) => parts,
        Err(error) => return gateway(error.to_string()),
    };
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the runtime ended badly");
        }
    });
    let path = url.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut onward = Request::new(Empty::<Bytes>::new());
    *onward.method_mut() = request.method().clone();
    *onward.headers_mut() = forwarded(request.headers(), &authority);
    match path.parse() {
        Ok(uri) => *onward.uri_mut() = uri,
        Err(_) => return gateway("the runtime gave no usable URL".to_owned()),
    }
    let client = hyper::upgrade::on(&mut request);
    let mut response = match sender.send_request(onward).await {
        Ok(response) => response,
        Err(error) => return gateway(format!("the runtime did not answer: {error}")),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response.map(|body| body.map_err(std::io::Error::other).boxed());
    }
    let runtime = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (client, runtime) = match tokio::try_join!(client, runtime) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "an upgrade failed"),
        };
        minato_streams::relay(TokioIo::new(client), TokioIo::new(runtime)).await;
    });
    let mut upgraded = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *upgraded.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *upgraded.headers_mut() = response.headers().clone();
    upgraded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_protocol_is_not_offered_to_the_runtime() {
        let mut headers = HeaderMap::new();
        headers.insert(
            PROTOCOLS,
            HeaderValue::from_static("v5.channel.k8s.io, v4.channel.k8s.io"),
        );
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer t"));
        let got = forwarded(&headers, "127.0.0.1:1");
        assert_eq!(got[PROTOCOLS], "v4.channel.k8s.io");
        assert_eq!(got[header::HOST], "127.0.0.1:1");
        assert!(!got.contains_key(header::AUTHORIZATION));
    }
}
