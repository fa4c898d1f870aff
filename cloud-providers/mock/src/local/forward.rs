//! Exposed control planes: a port on the network's router that leads to a loopback port of the host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use minato_provider_interface::ClusterId;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::netns::NetnsRuntime;
use super::{LocalError, io};
use crate::state::CloudState;

type Key = (ClusterId, SocketAddr, SocketAddr);

/// All listeners of exposed endpoints.
pub(super) struct Forwards {
    vpc: Arc<NetnsRuntime>,
    running: BTreeMap<Key, JoinHandle<()>>,
}

impl Forwards {
    pub(super) fn new(vpc: Arc<NetnsRuntime>) -> Self {
        Self {
            vpc,
            running: BTreeMap::new(),
        }
    }

    /// Makes the listeners those of the state.
    pub(super) async fn apply(&mut self, state: &CloudState) -> Result<(), LocalError> {
        let wanted: Vec<Key> = state
            .endpoints
            .iter()
            .map(|(cluster, e)| (cluster.clone(), SocketAddr::from((state.gateway(), e.port)), e.backend))
            .collect();
        let gone: Vec<Key> = self.running.keys().filter(|k| !wanted.contains(k)).cloned().collect();
        for key in gone {
            self.stop(&key).await;
        }
        for key in wanted {
            if !self.running.contains_key(&key) {
                let (_, listen, backend) = key.clone();
                // Accepted here, dialled from the host's network: that is where the control plane listens.
                let host = Handle::current();
                let bound = self.vpc.spawn(TcpListener::bind(listen)).await;
                let listener = bound
                    .map_err(|e| LocalError::Unsupported(e.to_string()))?
                    .map_err(io(format!("listening on {listen}")))?;
                let task = self.vpc.spawn(accept(listener, backend, host));
                self.running.insert(key, task);
            }
        }
        Ok(())
    }

    async fn stop(&mut self, key: &Key) {
        if let Some(task) = self.running.remove(key) {
            task.abort();
            let _ = task.await;
        }
    }

    /// Closes all listeners.
    pub(super) async fn stop_all(&mut self) {
        let keys: Vec<Key> = self.running.keys().cloned().collect();
        for key in keys {
            self.stop(&key).await;
        }
    }
}

async fn accept(listener: TcpListener, backend: SocketAddr, host: Handle) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(stream) = stream.into_std() else { continue };
                host.spawn(async move {
                    let (Ok(mut near), Ok(mut far)) = (TcpStream::from_std(stream), TcpStream::connect(backend).await)
                    else {
                        return;
                    };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting for a control plane failed");
                tokio::task::yield_now().await;
            }
        }
    }
}
