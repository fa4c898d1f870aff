//! The accept loop: TLS, HTTP/1.1 and HTTP/2, draining.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{ApiServer, ConnectionInfo, ServerTls};
use crate::request::ApiRequest;

/// Streams per HTTP/2 connection; upstream's figure.
const MAX_STREAMS: u32 = 250;
/// Flow-control window of one stream; upstream's figure.
const STREAM_WINDOW: u32 = 256 * 1024;
/// A client must finish its TLS handshake and its request head in this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Largest request head in bytes.
const MAX_HEAD: u32 = 1024 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// After a failed accept (out of descriptors, say) the loop waits so long, lest it spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running listener.
pub struct ServeHandle {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl ServeHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, lets running requests finish (up to the configured drain time), then closes.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the accept loop failed");
        }
    }
}

impl ApiServer {
    /// Serves a listener until the handle, or the whole server, is stopped. Without `tls` connections are in the clear:
    /// for tests and for listeners behind something that ends TLS.
    ///
    /// # Errors
    /// The listener has no local address.
    pub fn serve(self: &Arc<Self>, listener: TcpListener, tls: Option<Arc<ServerTls>>) -> io::Result<ServeHandle> {
        let address = listener.local_addr()?;
        let stop = self.stopped().child_token();
        let task = tokio::spawn(accept_loop(self.clone(), listener, tls, stop.clone()));
        Ok(ServeHandle { address, stop, task })
    }

    /// Serves one accepted connection until it ends or the server drains: for embedders that accept and route
    /// themselves (several control planes behind one port).
    pub async fn serve_connection(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: Option<SocketAddr>,
        tls: Option<Arc<ServerTls>>,
    ) {
        let graceful = GracefulShutdown::new();
        let watcher = graceful.watcher();
        let connection = connection(self.clone(), stream, peer, tls, watcher);
        tokio::pin!(connection);
        tokio::select! {
            () = &mut connection => {}
            () = self.stopped().cancelled() => {
                let drained = async { tokio::join!(graceful.shutdown(), connection) };
                // Past the deadline the connection is dropped, which closes it.
                let _ = tokio::time::timeout(self.config().drain_timeout, drained).await;
            }
        }
    }
}

async fn accept_loop(
    server: Arc<ApiServer>,
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let abort = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = connection(server.clone(), stream, Some(peer), tls.clone(), graceful.watcher());
        let abort = abort.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = connection => {}
                () = abort.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(server.config().drain_timeout, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("connections were cut: they did not finish within the drain time");
    }
    abort.cancel();
}

async fn connection(
    server: Arc<ApiServer>,
    stream: TcpStream,
    peer: Option<SocketAddr>,
    tls: Option<Arc<ServerTls>>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = tls else {
        let info = ConnectionInfo {
            peer,
            ..ConnectionInfo::default()
        };
        return http(server, stream, info, watcher).await;
    };
    let handshake = TlsAcceptor::from(tls.config()).accept(stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let client_certificates = chain.iter().map(|c| c.clone().into_owned()).collect();
            let info = ConnectionInfo {
                peer,
                client_certificates,
            };
            http(server, stream, info, watcher).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, ?peer, "TLS handshake failed"),
        Err(_) => tracing::debug!(?peer, "TLS handshake timed out"),
    }
}

async fn http(
    server: Arc<ApiServer>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    info: ConnectionInfo,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .max_header_list_size(MAX_HEAD)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(info.clone());
        let server = server.clone();
        async move {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            let request = ApiRequest::new(request, server.config().max_body_bytes);
            Ok::<_, std::convert::Infallible>(server.handle(request).await)
        }
    });
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
}
