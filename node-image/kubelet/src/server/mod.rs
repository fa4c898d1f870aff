//! The kubelet's own HTTPS server, for the API server and for whoever may ask about the node: upstream's paths.
//!
//! ```text
//!  TLS (client certificate or bearer token) -> auth: who, and may they -> routes -> logs | streams (raw, to the runtime)
//! ```
//! HTTP/1.1 only: streams are upgraded connections, which HTTP/2 has not.

mod auth;
mod logs;
mod routes;
mod stats;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use minato_runtime::Metrics;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::ServingCertificate;
use crate::context::Context;
use crate::settings::Settings;
use crate::worker::Workers;
use auth::Auth;

/// A client must finish its TLS handshake and its request head in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a failed accept the loop waits so long, lest it spin.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections at once.
const CONNECTIONS: usize = 512;

type Body = BoxBody<Bytes, std::io::Error>;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The clients' authorities cannot be read.
    #[error("authentication.x509.clientCAFile {path}: {message}")]
    ClientCa {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

fn answer(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// A request that gets no more than a status and a text.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl From<Refusal> for Response<Body> {
    fn from(refusal: Refusal) -> Self {
        answer(refusal.0, refusal.1)
    }
}

/// How the kubelet serves TLS.
pub(crate) fn tls_config(
    settings: &Settings,
    certificate: ServingCertificate,
) -> Result<Arc<ServerConfig>, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = |error: &dyn std::fmt::Display| ServerError::Tls(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| tls(&e))?;
    let builder = match &settings.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let bad = |message: String| ServerError::ClientCa {
                path: path.display().to_string(),
                message,
            };
            let text = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
            let mut roots = RootCertStore::empty();
            for der in CertificateDer::pem_slice_iter(&text) {
                let der = der.map_err(|e| bad(e.to_string()))?;
                roots.add(der).map_err(|e| bad(e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| bad(e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What requests are answered from.
pub(crate) struct Server {
    context: Arc<Context>,
    workers: Workers,
    metrics: Metrics,
    auth: Auth,
}

impl Server {
    pub(crate) fn new(context: Arc<Context>, workers: Workers, metrics: Metrics) -> Arc<Self> {
        let auth = Auth::new(context.client.clone(), context.settings.clone());
        Arc::new(Self {
            context,
            workers,
            metrics,
            auth,
        })
    }

    /// Accepts connections until dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener, tls: Arc<ServerConfig>) {
        let acceptor = TlsAcceptor::from(tls);
        let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (server, acceptor) = (self.clone(), acceptor.clone());
                    let _ = stream.set_nodelay(true);
                    self.context.tasks.spawn("connection", async move {
                        server.serve_tls(stream, acceptor).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection of any kind: from the node's port, or through a tunnel.
    pub(crate) async fn serve_tls<S>(self: Arc<Self>, stream: S, acceptor: TlsAcceptor)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake did not end in time"),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|der| der.clone().into_owned());
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, certificate) = (self.clone(), certificate.clone());
            async move { Ok::<_, std::convert::Infallible>(server.handle(request, certificate.as_ref()).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = served.await {
            tracing::debug!(%error, "a connection ended badly");
        }
    }

    async fn handle(&self, request: Request<Incoming>, certificate: Option<&CertificateDer<'_>>) -> Response<Body> {
        if request.uri().path() == "/healthz" && request.method() == http::Method::GET {
            return answer(StatusCode::OK, "ok");
        }
        let user = match self.auth.authenticate(request.headers(), certificate).await {
            Ok(user) => user,
            Err(refusal) => return refusal,
        };
        if let Err(refusal) = self.auth.authorize(&user, request.method(), request.uri().path()).await {
            return refusal;
        }
        self.route(request).await
    }
}
