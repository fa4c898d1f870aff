//! The way from a hosted control plane to its nodes, whose network it is not in: nodes dial out.
//!
//! ```text
//! API server ── connect(target) ── TunnelServer ══ one TLS connection a node, HTTP/2 inside ══ TunnelAgent ── kubelet
//!                                  (HTTP/2 client: CONNECT)        dialled by the node         (HTTP/2 server)  └─ pod, service
//! ```
//!
//! The node opens a connection to the API server's own port with its client certificate and has it upgraded
//! ([`minato_streams::TUNNEL_PATH`]). Then the roles turn: the control plane is the HTTP/2 client and opens one stream for each
//! connection that it needs, by `CONNECT` (RFC 9113 §8.5). HTTP/2 brings flow control for each stream, keep-alive in both
//! directions, half-closing, and an answer that says why something could not be dialled.
//!
//! The agent end may be linked into a node's programs. May depend on: streams, runtime.

mod agent;
mod plain;
mod server;
#[cfg(test)]
mod tests;

pub use agent::{AgentConfig, AgentHandle, TunnelAgent};
pub use plain::PlainEgress;
pub use server::TunnelServer;

use std::time::Duration;

/// Authority by which the kubelet is asked for; `.invalid` is no name of a host (RFC 2606 §2).
const KUBELET: &str = "kubelet.invalid:10250";
/// How often a tunnel is probed, from either end, idle or not. Shorter than the idle time-outs of common load balancers
/// and firewalls.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// An end that does not answer a probe for so long is gone.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Streams of one tunnel at the same time.
const MAX_STREAMS: u32 = 512;
/// Bytes that one stream may have on its way unread.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Bytes that a tunnel may have on its way unread: of all its streams together, so that streams that nobody reads cannot
/// stop the others.
const TUNNEL_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS;
