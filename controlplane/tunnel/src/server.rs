//! The control plane's end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use minato_streams::{Egress, EgressError, NodeListener, Stream, Target};
use parking_lot::RwLock;

use super::{KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, KUBELET, STREAM_WINDOW, TUNNEL_WINDOW};

/// How long opening a connection may take, the node's dialling included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Tunnels tried for an address that any node may reach.
const ATTEMPTS: usize = 3;
/// Tunnels kept of one node. A node has one, or two while it changes its certificate; more are leftovers.
const TUNNELS_PER_NODE: usize = 4;
/// Longest reason of a refusal, in bytes.
const MAX_REASON: usize = 1024;

#[derive(Clone)]
struct Tunnel {
    id: u64,
    requests: SendRequest<Empty<Bytes>>,
}

/// The tunnels of one cluster's nodes: takes the connections that nodes offer, and opens streams over them.
#[derive(Default)]
pub struct TunnelServer {
    /// By node name, the newest last.
    tunnels: RwLock<HashMap<String, Vec<Tunnel>>>,
    next_id: AtomicU64,
    /// Where the next search for any node begins.
    next_node: AtomicUsize,
}

impl TunnelServer {
    /// One without tunnels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names of the nodes whose tunnel is up.
    pub fn nodes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tunnels.read().keys().cloned().collect();
        names.sort();
        names
    }

    fn add(&self, node: &str, requests: SendRequest<Empty<Bytes>>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut tunnels = self.tunnels.write();
        let of_node = tunnels.entry(node.to_owned()).or_default();
        if of_node.len() >= TUNNELS_PER_NODE {
            // With its last sender gone the tunnel closes when its streams have ended.
            of_node.remove(0);
        }
        of_node.push(Tunnel { id, requests });
        id
    }

    fn remove(&self, node: &str, id: u64) {
        let mut tunnels = self.tunnels.write();
        if let Some(of_node) = tunnels.get_mut(node) {
            of_node.retain(|t| t.id != id);
            if of_node.is_empty() {
                tunnels.remove(node);
            }
        }
    }

    fn of(&self, node: &str) -> Result<Tunnel, EgressError> {
        let tunnels = self.tunnels.read();
        let newest = tunnels
            .get(node)
            .into_iter()
            .flatten()
            .rev()
            .find(|t| !t.requests.is_closed());
        newest
            .cloned()
            .ok_or_else(|| EgressError::NoTunnel(format!("node {node:?}")))
    }

    /// Tunnels of several nodes, each time beginning with another.
    fn any(&self) -> Vec<Tunnel> {
        let tunnels = self.tunnels.read();
        let mut newest: Vec<(&String, &Tunnel)> = tunnels
            .iter()
            .filter_map(|(node, all)| Some((node, all.iter().rev().find(|t| !t.requests.is_closed())?)))
            .collect();
        newest.sort_by_key(|(node, _)| *node);
        if !newest.is_empty() {
            let start = self.next_node.fetch_add(1, Ordering::Relaxed) % newest.len();
            newest.rotate_left(start);
        }
        newest
            .into_iter()
            .take(ATTEMPTS)
            .map(|(_, tunnel)| tunnel.clone())
            .collect()
    }
}

#[async_trait]
impl NodeListener for TunnelServer {
    async fn serve(&self, node: &str, connection: Box<dyn Stream>) {
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(TUNNEL_WINDOW)
            .handshake(TokioIo::new(connection));
        let (requests, driver) = match tokio::time::timeout(CONNECT_TIMEOUT, handshake).await {
            Ok(Ok(pair)) => pair,
            Ok(Err(error)) => return tracing::warn!(node, %error, "a tunnel did not come up"),
            Err(_) => return tracing::warn!(node, "a tunnel did not come up in time"),
        };
        let entry = Registered {
            server: self,
            node,
            id: self.add(node, requests),
        };
        tracing::info!(node, tunnel = entry.id, "tunnel up");
        match driver.await {
            Ok(()) => tracing::info!(node, tunnel = entry.id, "tunnel closed"),
            Err(error) => tracing::info!(node, tunnel = entry.id, %error, "tunnel lost"),
        }
    }
}

/// A tunnel in the table; leaves it even when its task is dropped.
struct Registered<'a> {
    server: &'a TunnelServer,
    node: &'a str,
    id: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.server.remove(self.node, self.id);
    }
}

/// `host:port`, with brackets around IPv6 addresses.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[async_trait]
impl Egress for TunnelServer {
    async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, EgressError> {
        let (tunnels, authority) = match target {
            Target::Kubelet { node } => (vec![self.of(node)?], KUBELET.to_owned()),
            Target::From { node, host, port } => (vec![self.of(node)?], authority(host, *port)),
            Target::Address { host, port } => (self.any(), authority(host, *port)),
        };
        let mut failure = EgressError::NoTunnel("any node".to_owned());
        for tunnel in tunnels {
            match tokio::time::timeout(CONNECT_TIMEOUT, open(tunnel, &authority)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(reason)) => failure = refused(target, reason),
                Err(_) => failure = refused(target, "timed out".to_owned()),
            }
        }
        Err(failure)
    }

    fn authenticates_nodes(&self) -> bool {
        true
    }
}

fn refused(target: &Target, reason: String) -> EgressError {
    let target = match target {
        Target::Kubelet { node } => format!("the kubelet of node {node:?}"),
        Target::Address { host, port } => authority(host, *port),
        Target::From { node, host, port } => format!("{} from node {node:?}", authority(host, *port)),
    };
    EgressError::Refused { target, reason }
}

/// Opens one stream.
async fn open(mut tunnel: Tunnel, authority: &str) -> Result<Box<dyn Stream>, String> {
    let uri = Uri::builder()
        .authority(authority)
        .build()
        .map_err(|_| "not a host and port".to_owned())?;
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = uri;
    tunnel.requests.ready().await.map_err(|e| e.to_string())?;
    let response = tunnel.requests.send_request(request).await.map_err(|e| e.to_string())?;
    if response.status() != StatusCode::OK {
        let reason = Limited::new(response.into_body(), MAX_REASON).collect().await;
        let reason = reason.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
        return Err(reason.unwrap_or_else(|_| "refused by the node".to_owned()));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|e| e.to_string())?;
    Ok(Box::new(TokioIo::new(upgraded)))
}
