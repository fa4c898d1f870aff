//! Tells load balancers whether this node has backends, at the health-check node port of each Service that asks for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

struct Listener {
    backends: Arc<AtomicUsize>,
    stop: CancellationToken,
}

/// One listener per port.
#[derive(Default)]
pub(crate) struct HealthChecks {
    listeners: HashMap<u16, Listener>,
}

impl HealthChecks {
    /// Makes the listeners those of `wanted`: port, name of the Service, backends on this node.
    pub(crate) async fn apply(&mut self, wanted: &HashMap<u16, (String, usize)>) {
        self.listeners.retain(|port, listener| {
            let kept = wanted.contains_key(port);
            if !kept {
                listener.stop.cancel();
            }
            kept
        });
        for (port, (service, backends)) in wanted {
            if let Some(listener) = self.listeners.get(port) {
                listener.backends.store(*backends, Ordering::Relaxed);
                continue;
            }
            match TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], *port))).await {
                Ok(socket) => {
                    let listener = Listener {
                        backends: Arc::new(AtomicUsize::new(*backends)),
                        stop: CancellationToken::new(),
                    };
                    tokio::spawn(serve(
                        socket,
                        service.clone(),
                        listener.backends.clone(),
                        listener.stop.clone(),
                    ));
                    self.listeners.insert(*port, listener);
                }
                Err(error) => tracing::error!(service, port, %error, "cannot listen for health checks"),
            }
        }
    }
}

async fn serve(socket: TcpListener, service: String, backends: Arc<AtomicUsize>, stop: CancellationToken) {
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        let (service, backends, stop) = (service.clone(), backends.clone(), stop.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |_| {
                let response = answer(&service, backends.load(Ordering::Relaxed));
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                () = stop.cancelled() => {}
                _ = connection => {}
            }
        });
    }
}

/// Upstream's answer.
fn answer(service: &str, backends: usize) -> Response<Full<Bytes>> {
    let (namespace, name) = service.split_once('/').unwrap_or(("", service));
    let body = serde_json::json!({
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": backends,
        "serviceProxyHealthy": true,
    });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    if backends == 0 {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}
