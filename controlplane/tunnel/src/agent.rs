//! The node's end.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use minato_runtime::Tasks;
use minato_streams::{TUNNEL_PATH, TUNNEL_PROTOCOL};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::{KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, KUBELET, MAX_STREAMS, STREAM_WINDOW, TUNNEL_WINDOW};

/// Limits of getting connected, step by step.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between attempts: the first, and what they grow to. Each is spread by half, so that the nodes of a cluster do
/// not come back in step.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A tunnel that lived so long was a good one: the next attempt is made at once.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// How long streams of a tunnel that is replaced may go on.
const DRAIN: Duration = Duration::from_secs(600);

/// How an agent finds the control plane and the kubelet.
#[derive(Clone)]
pub struct AgentConfig {
    /// The node's name; must be that of the client certificate.
    pub node: String,
    /// The API server: `host:port`.
    pub server: String,
    /// Name that its certificate is checked against; the host of `server` when empty.
    pub server_name: String,
    /// TLS with the node's client certificate. A new value (after a rotation) makes a new tunnel; streams of the old one
    /// go on for a while. ALPN is set here.
    pub tls: watch::Receiver<Arc<ClientConfig>>,
    /// Where the kubelet listens.
    pub kubelet: SocketAddr,
}

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("cannot reach the API server: {0}")]
    Dial(#[source] std::io::Error),
    #[error("{0} took too long")]
    Timeout(&'static str),
    #[error("not a name of a server: {0:?}")]
    Name(String),
    #[error("TLS: {0}")]
    Tls(#[source] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("the API server refused the tunnel: {0}")]
    Refused(StatusCode),
}

/// The node's end of the tunnel.
pub struct TunnelAgent;

/// A started agent.
#[derive(Clone)]
pub struct AgentHandle {
    connected: watch::Receiver<bool>,
}

impl AgentHandle {
    /// Whether the tunnel is up.
    pub fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    /// Waits until the tunnel is up; returns early only when the agent has stopped.
    pub async fn connected(&mut self) {
        let _ = self.connected.wait_for(|up| *up).await;
    }

    /// Waits until the tunnel is down, or the agent has stopped.
    pub async fn disconnected(&mut self) {
        let _ = self.connected.wait_for(|up| !*up).await;
    }
}

impl TunnelAgent {
    /// Keeps a tunnel up for as long as `tasks` run.
    pub fn start(config: AgentConfig, tasks: &Tasks) -> AgentHandle {
        let (state, connected) = watch::channel(false);
        let own = tasks.child();
        tasks.spawn("tunnel-agent", keep_up(config, own, state));
        AgentHandle { connected }
    }
}

async fn keep_up(mut config: AgentConfig, tasks: Tasks, state: watch::Sender<bool>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let tls = config.tls.borrow_and_update().clone();
        match dial(&config, tls).await {
            Ok(tunnel) => {
                tracing::info!(node = config.node, server = config.server, "tunnel up");
                state.send_replace(true);
                let since = tokio::time::Instant::now();
                let rotated = serve(tunnel, &mut config, &tasks).await;
                state.send_replace(false);
                if rotated || since.elapsed() >= GOOD_LIFE {
                    pause = FIRST_PAUSE;
                }
                if rotated {
                    continue;
                }
                tracing::warn!(node = config.node, "tunnel lost");
            }
            Err(error) => tracing::warn!(node = config.node, %error, "no tunnel"),
        }
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn within<T>(what: &'static str, step: impl Future<Output = T>) -> Result<T, AttemptError> {
    let done = tokio::time::timeout(DIAL_TIMEOUT, step).await;
    done.map_err(|_| AttemptError::Timeout(what))
}

/// Connects, proves who we are, and has the connection upgraded.
async fn dial(config: &AgentConfig, tls: Arc<ClientConfig>) -> Result<Upgraded, AttemptError> {
    let name = server_name(config)?;
    let stream = within("connecting", TcpStream::connect(&config.server))
        .await?
        .map_err(AttemptError::Dial)?;
    stream.set_nodelay(true).map_err(AttemptError::Dial)?;
    let mut tls = ClientConfig::clone(&tls);
    // Only HTTP/1.1 connections can be upgraded.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let stream = within("TLS", connector.connect(name, stream))
        .await?
        .map_err(AttemptError::Tls)?;
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = http::Uri::from_static(TUNNEL_PATH);
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static(TUNNEL_PROTOCOL));
    if let Ok(host) = header::HeaderValue::from_str(&config.server) {
        headers.insert(header::HOST, host);
    }
    let exchange = async {
        let response = requests.send_request(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(AttemptError::Refused(response.status()));
        }
        Ok(hyper::upgrade::on(response).await?)
    };
    // The connection ends by handing itself over.
    let driven = async {
        let (exchanged, _) = tokio::join!(exchange, connection.with_upgrades());
        exchanged
    };
    within("the upgrade", driven).await?
}

fn server_name(config: &AgentConfig) -> Result<ServerName<'static>, AttemptError> {
    let host = config
        .server
        .rsplit_once(':')
        .map_or(config.server.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = if config.server_name.is_empty() {
        host
    } else {
        &config.server_name
    };
    ServerName::try_from(name.to_owned()).map_err(|_| AttemptError::Name(name.to_owned()))
}

/// Serves a tunnel until it is lost (`false`) or a new certificate asks for another (`true`).
pub(super) async fn serve<T>(tunnel: T, config: &mut AgentConfig, tasks: &Tasks) -> bool
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let kubelet = config.kubelet;
    let relays = tasks.clone();
    let service = service_fn(move |request| {
        let relays = relays.clone();
        async move { Ok::<_, Infallible>(connect(request, kubelet, &relays).await) }
    });
    let mut connection = Box::pin(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(TUNNEL_WINDOW)
            .serve_connection(tunnel, service),
    );
    let rotated = async {
        if config.tls.changed().await.is_err() {
            // Nobody will rotate any more; the tunnel serves on.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a tunnel broke");
            }
            return false;
        }
        () = rotated => {}
    }
    connection.as_mut().graceful_shutdown();
    tasks.spawn("tunnel-drain", async move {
        let _ = tokio::time::timeout(DRAIN, connection).await;
    });
    true
}

fn answer(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response
}

/// Dials what the control plane asks for, and carries bytes.
async fn connect(request: Request<Incoming>, kubelet: SocketAddr, relays: &Tasks) -> Response<Full<Bytes>> {
    if request.method() != Method::CONNECT {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "only CONNECT is served");
    }
    let Some(authority) = request.uri().authority().cloned() else {
        return answer(StatusCode::BAD_REQUEST, "no host and port");
    };
    let dialled = if authority.as_str() == KUBELET {
        dial_first(&[kubelet]).await
    } else {
        match resolve(authority.host(), authority.port_u16()).await {
            Ok(addresses) => dial_first(&addresses).await,
            Err(reason) => Err(reason),
        }
    };
    let stream = match dialled {
        Ok(stream) => stream,
        Err(reason) => return answer(StatusCode::BAD_GATEWAY, reason),
    };
    relays.spawn("tunnel-stream", async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => minato_streams::relay(TokioIo::new(upgraded), stream).await,
            Err(error) => tracing::debug!(%error, "a tunnel stream was given up"),
        }
    });
    answer(StatusCode::OK, Bytes::new())
}

async fn resolve(host: &str, port: Option<u16>) -> Result<Vec<SocketAddr>, String> {
    let port = port.ok_or_else(|| "no port".to_owned())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::time::timeout(DIAL_TIMEOUT, tokio::net::lookup_host((host, port))).await;
    let found = found
        .map_err(|_| "resolving timed out".to_owned())?
        .map_err(|e| e.to_string())?;
    let allowed: Vec<SocketAddr> = found.filter(|address| is_allowed(address.ip())).collect();
    if allowed.is_empty() {
        return Err(format!("{host} is not an address that may be dialled"));
    }
    Ok(allowed)
}

/// The node's own loopback, and the link-local addresses where clouds keep credentials, are nobody's service.
fn is_allowed(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

async fn dial_first(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut reason = "no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                return Ok(stream);
            }
            Ok(Err(error)) => reason = format!("dial tcp {address}: {error}"),
            Err(_) => reason = format!("dial tcp {address}: timed out"),
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_others_are_dialled() {
        for (address, allowed) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(is_allowed(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
