//! What probes and hooks do: run a command, get a page, connect, ask a gRPC service for its health.

use std::time::Duration;

use minato_api::k8s::core::v1::{Container, HTTPGetAction, Probe};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::number;
use crate::context::Context;
use crate::hooks::port_of;

/// This much of a page or of a command's output is shown.
const SHOWN: usize = 10 * 1024;

/// Probes once; what was wrong, as text.
pub(super) async fn run(
    context: &Context,
    container: &Container,
    id: &str,
    ip: &str,
    probe: &Probe,
) -> Result<(), String> {
    let limit = Duration::from_secs(number(probe.timeout_seconds, 1));
    if let Some(exec) = &probe.exec {
        return command(context, id, exec.command.clone().unwrap_or_default(), limit).await;
    }
    let action = async {
        if let Some(http) = &probe.http_get {
            let port = port_of(container, &http.port)?;
            http_get(http, port, ip, limit).await
        } else if let Some(tcp) = &probe.tcp_socket {
            let port = port_of(container, &tcp.port)?;
            let host = tcp.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
            tcp_connect(host, port).await
        } else if let Some(grpc) = &probe.grpc {
            grpc_health(ip, grpc.port, grpc.service.as_deref().unwrap_or_default()).await
        } else {
            Err("the probe says nothing to do".to_owned())
        }
    };
    match tokio::time::timeout(limit, action).await {
        Ok(result) => result,
        Err(_) => Err(format!("timed out after {} s", limit.as_secs())),
    }
}

async fn command(context: &Context, id: &str, command: Vec<String>, limit: Duration) -> Result<(), String> {
    let answer = match context.cri.exec_sync(id, command, limit).await {
        Ok(answer) => answer,
        Err(error) if error.is_timeout() => return Err(format!("command timed out after {} s", limit.as_secs())),
        Err(error) => return Err(error.to_string()),
    };
    if answer.exit_code == 0 {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
    Err(shown(&output))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Connects and hangs up.
pub(crate) async fn tcp_connect(host: &str, port: u16) -> Result<(), String> {
    let address = host_port(host, port);
    let connected = TcpStream::connect(&address).await;
    connected
        .map(drop)
        .map_err(|error| format!("dial tcp {address}: {error}"))
}

/// Gets a page; anything from 200 to 399 is good. Certificates are not verified, as upstream does not.
pub(crate) async fn http_get(action: &HTTPGetAction, port: u16, ip: &str, limit: Duration) -> Result<(), String> {
    let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let path = action.path.as_deref().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let url = format!("{scheme}://{}{slash}{path}", host_port(host, port));
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .timeout(limit)
        .user_agent(concat!("kube-probe/", "1.36"))
        // A redirect elsewhere is an answer; one within the host is followed.
        .redirect(reqwest::redirect::Policy::custom(|attempt| {
            let from = attempt
                .previous()
                .first()
                .and_then(|url| url.host_str().map(str::to_owned));
            match attempt.url().host_str() == from.as_deref() && attempt.previous().len() < 10 {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        }))
        .build()
        .map_err(|error| error.to_string())?;
    let mut request = client.get(&url).header("accept", "*/*");
    for header in action.http_headers.iter().flatten() {
        request = request.header(header.name.as_str(), header.value.as_str());
    }
    let answer = request.send().await.map_err(|error| match error.is_timeout() {
        true => format!("Get \"{url}\": context deadline exceeded"),
        false => format!("Get \"{url}\": {}", deepest(&error)),
    })?;
    let status = answer.status().as_u16();
    if (200..400).contains(&status) {
        Ok(())
    } else {
        Err(format!("HTTP probe failed with statuscode: {status}"))
    }
}

/// The cause at the bottom says what is wrong.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `SERVING` of <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>.
const SERVING: i32 = 1;

async fn grpc_health(ip: &str, port: i32, service: &str) -> Result<(), String> {
    let port = u16::try_from(port).map_err(|_| format!("invalid port number: {port}"))?;
    let endpoint = Endpoint::from_shared(format!("http://{}", host_port(ip, port))).map_err(|e| e.to_string())?;
    let channel = endpoint.connect().await.map_err(|error| deepest(&error))?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| deepest(&error))?;
    let message = HealthCheckRequest {
        service: service.to_owned(),
    };
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let answer = client.unary(tonic::Request::new(message), path, codec).await;
    match answer
        .map_err(|status| status.message().to_owned())?
        .into_inner()
        .status
    {
        SERVING => Ok(()),
        status => Err(format!("service unhealthy (responded with {status})")),
    }
}
