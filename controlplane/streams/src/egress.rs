//! How a hosted control plane reaches a node, whose network it is not in.

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// Path of the API server on which nodes offer a tunnel, by an HTTP/1.1 upgrade to [`TUNNEL_PROTOCOL`].
pub const TUNNEL_PATH: &str = "/tunnel/v1/connect";
/// What a connection on [`TUNNEL_PATH`] is upgraded to: HTTP/2 in which the *accepting* side is the client, and opens a
/// stream by `CONNECT`.
pub const TUNNEL_PROTOCOL: &str = "minato-tunnel";

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// What to connect to inside the tenant's network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The kubelet's HTTPS port of a node, by node name.
    Kubelet {
        /// `metadata.name` of the Node.
        node: String,
    },
    /// Any TCP address, reached through whichever node's tunnel is up (services, webhooks, aggregated APIs).
    Address {
        /// Host name or IP address as seen by a node.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A TCP address as seen from one node: a pod on it, or a port of its own.
    From {
        /// `metadata.name` of the Node.
        node: String,
        /// Host name or IP address as seen by it.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// Why a target cannot be reached; the API server turns each into a `Status`.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// No tunnel to that node (or to any node) is up.
    #[error("no tunnel to {0} is up: the node is down, not yet joined, or cannot reach the control plane")]
    NoTunnel(String),
    /// The far end refused or did not answer.
    #[error("cannot connect to {target}: {reason}")]
    Refused {
        /// What was dialled.
        target: String,
        /// What the far end said.
        reason: String,
    },
}

/// Opens connections into the tenant's network. Implemented by the tunnel, and by plain TCP for tests.
#[async_trait]
pub trait Egress: Send + Sync + 'static {
    /// A new connection to the target.
    ///
    /// # Errors
    /// See [`EgressError`].
    async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, EgressError>;

    /// Whether a connection to a node ends at that very node because the way there proves it. Then a kubelet whose
    /// serving certificate is not signed yet can be talked to all the same.
    fn authenticates_nodes(&self) -> bool {
        false
    }
}

/// Takes the connections that nodes offer.
#[async_trait]
pub trait NodeListener: Send + Sync + 'static {
    /// Uses a connection that came from the node of this name, which has been authenticated. Returns when it has ended.
    async fn serve(&self, node: &str, connection: Box<dyn Stream>);
}
