//! The life of a plug-in's process: it proves to be started by Terraform, says where it listens, serves, and ends.
//!
//! Source: <https://github.com/hashicorp/go-plugin/blob/main/docs/internals.md>.

mod host;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::provider::Provider;
use crate::service::Service;
use crate::wire::host::grpc_broker_server::GrpcBrokerServer;
use crate::wire::host::grpc_controller_server::GrpcControllerServer;
use crate::wire::host::grpc_stdio_server::GrpcStdioServer;
use crate::wire::provider::provider_server::ProviderServer;

/// The environment variable by which a provider knows that Terraform started it, and its value. No secret: it keeps people
/// from starting providers by hand.
pub const COOKIE: (&str, &str) = (
    "TF_PLUGIN_MAGIC_COOKIE",
    "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
);
/// Version of the provider protocol.
const PROTOCOL: &str = "6";
/// Version of the handshake.
const CORE_PROTOCOL: &str = "1";
/// Largest message, as Terraform itself has it.
const LARGEST_MESSAGE: usize = 256 << 20;
/// How long calls may go on after the host has asked for the end; it kills after two seconds.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Why a provider does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was started by hand.
    #[error("this program is a Terraform provider: Terraform starts it, see the README for its configuration")]
    NotTerraform,
    /// Terraform is too old.
    #[error("protocol {PROTOCOL} is needed, and this Terraform speaks {0}: Terraform 1.0 or later is needed")]
    Protocol(String),
    /// The certificate that Terraform proves itself with is unusable.
    #[error("the host's certificate: {0}")]
    Certificate(String),
    /// Our own certificate could not be made.
    #[error("making a certificate")]
    OwnCertificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
    /// The socket could not be made, or something about processes failed.
    #[error("{0}")]
    Io(&'static str, #[source] std::io::Error),
    /// Serving failed.
    #[error("serving")]
    Transport(#[from] tonic::transport::Error),
}

/// What the host says by environment variables.
struct Handshake {
    socket_directory: PathBuf,
    /// PEM of the certificate that the host will show.
    client_certificate: Option<String>,
}

impl Handshake {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ServeError> {
        if variable(COOKIE.0).as_deref() != Some(COOKIE.1) {
            return Err(ServeError::NotTerraform);
        }
        if let Some(versions) = variable("PLUGIN_PROTOCOL_VERSIONS")
            && versions.split(',').all(|version| version.trim() != PROTOCOL)
        {
            return Err(ServeError::Protocol(versions));
        }
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        Ok(Self {
            socket_directory: set("PLUGIN_UNIX_SOCKET_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
            client_certificate: set("PLUGIN_CLIENT_CERT"),
        })
    }
}

/// Serves a provider until the host asks for the end, or is gone.
///
/// # Errors
/// It was not started by Terraform, or cannot serve.
pub async fn serve(provider: Arc<dyn Provider>) -> Result<(), ServeError> {
    let handshake = Handshake::read(|name| std::env::var(name).ok())?;
    // Before it can be known that we run: later, the parent may be another already.
    let host_process = host_process();
    // An interrupt from the keyboard goes to all processes: the host decides what becomes of it.
    let _interrupts = signal(SignalKind::interrupt()).map_err(|e| ServeError::Io("listening for signals", e))?;
    let directory = tempfile::Builder::new()
        .prefix("minato-provider-")
        .tempdir_in(&handshake.socket_directory)
        .map_err(|error| ServeError::Io("making a directory for the socket", error))?;
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).map_err(|error| ServeError::Io("making the socket", error))?;
    let tls = handshake.client_certificate.as_deref().map(tls::mutual).transpose()?;
    let certificate = tls.as_ref().map(|tls| tls.certificate.as_str()).unwrap_or_default();
    announce(&format!(
        "{CORE_PROTOCOL}|{PROTOCOL}|unix|{}|grpc|{certificate}",
        path.display()
    ))?;

    let end = CancellationToken::new();
    let (health, health_service) = tonic_health::server::health_reporter();
    // The name that hosts ask by.
    health
        .set_service_status("plugin", tonic_health::ServingStatus::Serving)
        .await;
    let host = host::Host { end: end.clone() };
    let provider_service = ProviderServer::new(Service::new(provider.clone()))
        .max_decoding_message_size(LARGEST_MESSAGE)
        .max_encoding_message_size(LARGEST_MESSAGE);
    let router = Server::builder()
        .add_service(health_service)
        .add_service(GrpcControllerServer::new(host.clone()))
        .add_service(GrpcStdioServer::new(host.clone()))
        .add_service(GrpcBrokerServer::new(host))
        .add_service(provider_service);
    let connections = UnixListenerStream::new(listener);
    let ended = end.clone().cancelled_owned();
    let serving = async move {
        match tls {
            None => router.serve_with_incoming_shutdown(connections, ended).await,
            Some(tls) => {
                let connections = connections.then(move |connection| tls.clone().accept(connection));
                // A connection that fails to prove itself is none; the others go on.
                let connections = connections.filter(Result::is_ok);
                router.serve_with_incoming_shutdown(connections, ended).await
            }
        }
    };
    let last_calls = async {
        tokio::select! {
            () = end.cancelled() => {}
            result = gone(host_process) => match result {
                Ok(()) => end.cancel(),
                Err(error) => {
                    tracing::warn!(%error, "the host's end will not be noticed");
                    end.cancelled().await;
                }
            },
        }
        provider.stop();
        tokio::time::sleep(LAST_CALLS).await;
    };
    tokio::select! {
        result = serving => result?,
        () = last_calls => {}
    }
    Ok(())
}

fn announce(line: &str) -> Result<(), ServeError> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| ServeError::Io("writing the handshake", error))
}

/// A handle of the process that started this one.
fn host_process() -> std::io::Result<rustix::fd::OwnedFd> {
    let parent = rustix::process::getppid().ok_or(std::io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(
        parent,
        rustix::process::PidfdFlags::NONBLOCK,
    )?)
}

/// Returns when a process has ended: a host that is killed asks for nothing.
async fn gone(process: std::io::Result<rustix::fd::OwnedFd>) -> std::io::Result<()> {
    register(process?)?.readable().await.map(drop)
}

#[expect(unsafe_code, reason = "registering a file descriptor with the reactor")]
fn register(handle: rustix::fd::OwnedFd) -> std::io::Result<AsyncFd<rustix::fd::OwnedFd>> {
    // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until that is dropped.
    unsafe { AsyncFd::register_with_interest(handle, tokio::io::Interest::READABLE) }.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Handshake, ServeError> {
        Handshake::read(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn only_terraform_starts_it() {
        assert!(matches!(read(&[]), Err(ServeError::NotTerraform)));
        assert!(matches!(read(&[(COOKIE.0, "x")]), Err(ServeError::NotTerraform)));
        let old = read(&[COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "4,5")]);
        assert!(matches!(old, Err(ServeError::Protocol(_))));
    }

    #[test]
    fn the_handshake_is_read_from_the_environment() {
        let plain = read(&[COOKIE, ("PLUGIN_CLIENT_CERT", "")]).unwrap();
        assert_eq!(plain.client_certificate, None);
        let variables = [
            COOKIE,
            ("PLUGIN_PROTOCOL_VERSIONS", "5,6"),
            ("PLUGIN_UNIX_SOCKET_DIR", "/a"),
            ("PLUGIN_CLIENT_CERT", "pem"),
        ];
        let full = read(&variables).unwrap();
        assert_eq!(full.socket_directory, PathBuf::from("/a"));
        assert_eq!(full.client_certificate.as_deref(), Some("pem"));
    }
}
