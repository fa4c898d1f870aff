//! No tunnel: for control planes inside the nodes' network, and for tests.

use std::collections::HashMap;
use std::net::SocketAddr;

use async_trait::async_trait;
use minato_streams::{Egress, EgressError, Stream, Target};
use parking_lot::RwLock;
use tokio::net::TcpStream;

/// Connects by plain TCP.
#[derive(Default)]
pub struct PlainEgress {
    kubelets: RwLock<HashMap<String, SocketAddr>>,
}

impl PlainEgress {
    /// Says where the kubelet of a node listens.
    pub fn set_kubelet(&self, node: &str, address: SocketAddr) {
        self.kubelets.write().insert(node.to_owned(), address);
    }
}

#[async_trait]
impl Egress for PlainEgress {
    async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, EgressError> {
        let address = match target {
            Target::Kubelet { node } => {
                let known = self.kubelets.read().get(node).copied();
                known.ok_or_else(|| EgressError::NoTunnel(node.clone()))?.to_string()
            }
            Target::Address { host, port } | Target::From { host, port, .. } => super::server::authority(host, *port),
        };
        let connecting = TcpStream::connect(&address);
        let reason = match tokio::time::timeout(super::server::CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => return Ok(Box::new(stream)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        Err(EgressError::Refused {
            target: address,
            reason,
        })
    }
}
