//! Byte streams between clients, API server and kubelets.
//!
//! ```text
//! kubectl ── WebSocket, channels in one connection ──┐                       ┌── SPDY/3.1, one stream a channel ── kubelet
//!            (v5.channel.k8s.io …: channels)         ├─ remote_command ──────┤   (spdy)
//! kubectl ── WebSocket around SPDY/3.1 ──────────────┼─ relay_websocket ─────┤
//! kubectl ── SPDY/3.1 ───────────────────────────────┘─ relay ───────────────┘
//! ```
//!
//! [`Egress`] is how the API server reaches into the tenant's network, [`NodeListener`] how a node offers the way; both are
//! implemented by the tunnel. May depend on: tokio, tungstenite, flate2. Nothing of ours.

mod channels;
mod egress;
mod relay;
mod remote_command;
pub mod spdy;

pub use channels::{Channel, ChannelProtocol, negotiate};
pub use egress::{Egress, EgressError, NodeListener, Stream, TUNNEL_PATH, TUNNEL_PROTOCOL, Target};
pub use relay::{relay, relay_websocket};
pub use remote_command::{CommandStreams, serve_command};
pub use tokio_tungstenite::WebSocketStream;
pub use tokio_tungstenite::tungstenite;

/// A WebSocket of which the HTTP part is done, at its server end, with messages bounded.
pub async fn websocket<S: Stream>(stream: S) -> WebSocketStream<S> {
    let config = tungstenite::protocol::WebSocketConfig::default()
        .read_buffer_size(32 * 1024)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(stream, tungstenite::protocol::Role::Server, Some(config)).await
}

/// Largest WebSocket message taken, in bytes. Some clients send all of stdin as one.
const MAX_MESSAGE: usize = 16 << 20;

/// The `Sec-WebSocket-Accept` of a `Sec-WebSocket-Key`. Source: RFC 6455 §4.2.2.
pub fn websocket_accept(key: &str) -> String {
    tungstenite::handshake::derive_accept_key(key.as_bytes())
}
