//! The way in for a hosted control plane, which is not in the node's network: the node keeps a tunnel open to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use minato_api::kube::client::ConfigExt;
use minato_runtime::Tasks;
use minato_tunnel::{AgentConfig, TunnelAgent};
use rustls::ClientConfig;
use tokio::sync::watch;

use crate::client::{ClientError, read_kubeconfig};
use crate::settings::Settings;

/// Told of each new client certificate.
pub(crate) type Credentials = watch::Sender<Arc<ClientConfig>>;

/// TLS with the credentials of a kubeconfig file.
pub(crate) async fn tls_of(path: &Path) -> Result<Arc<ClientConfig>, ClientError> {
    let config = read_kubeconfig(path).await?;
    let tls = config.rustls_client_config().map_err(|source| ClientError::Client {
        path: path.display().to_string(),
        source: Box::new(source),
    })?;
    Ok(Arc::new(tls))
}

/// Keeps a tunnel to the API server of the node's kubeconfig.
pub(crate) async fn start(settings: &Settings, tasks: &Tasks) -> Result<Credentials, ClientError> {
    let config = read_kubeconfig(&settings.kubeconfig).await?;
    let (credentials, tls) = watch::channel(tls_of(&settings.kubeconfig).await?);
    let host = config.cluster_url.host().unwrap_or_default();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let agent = AgentConfig {
        node: settings.node_name.clone(),
        server: format!("{host}:{port}"),
        server_name: config.tls_server_name.unwrap_or_default(),
        tls,
        kubelet: reachable(settings.serve_on),
    };
    TunnelAgent::start(agent, tasks);
    Ok(credentials)
}

/// An address at which the kubelet's own server is reached from the node itself.
fn reachable(serve_on: SocketAddr) -> SocketAddr {
    let ip = match serve_on.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, serve_on.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_reached_on_the_node_itself() {
        for (serves, reached) in [
            ("0.0.0.0:10250", "127.0.0.1:10250"),
            ("[::]:10250", "[::1]:10250"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(reachable(serves.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
