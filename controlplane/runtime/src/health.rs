//! `/healthz`, `/livez`, `/readyz` and `/metrics` of a component.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use tokio::net::TcpListener;

use crate::{Metrics, Tasks};

/// A named question that is answered by `Ok` or a reason.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a component. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health {
    live: Arc<RwLock<Vec<(&'static str, Check)>>>,
    ready: Arc<RwLock<Vec<(&'static str, Check)>>>,
}

impl Health {
    /// Without checks: always well.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check whose failure calls for a restart; it also counts for readiness.
    pub fn add_live(&self, name: &'static str, check: Check) {
        self.live.write().push((name, check));
    }

    /// Adds a check whose failure means "not now".
    pub fn add_ready(&self, name: &'static str, check: Check) {
        self.ready.write().push((name, check));
    }

    /// Whether all live checks pass, and the page that says so.
    pub fn live(&self) -> (bool, String) {
        page(&self.live.read(), &[])
    }

    /// Whether all checks pass, and the page that says so.
    pub fn ready(&self) -> (bool, String) {
        page(&self.live.read(), &self.ready.read())
    }
}

fn page(first: &[(&'static str, Check)], second: &[(&'static str, Check)]) -> (bool, String) {
    let mut well = true;
    let mut text = String::new();
    for (name, check) in first.iter().chain(second) {
        match check() {
            Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
            Err(reason) => {
                well = false;
                text.push_str(&format!("[-]{name} failed: {reason}\n"));
            }
        }
    }
    if well {
        text = "ok".to_owned();
    }
    (well, text)
}

/// Serves the pages on `listener` until `tasks` stops.
pub fn serve_health(listener: TcpListener, health: Health, metrics: Metrics, tasks: &Tasks) {
    let group = tasks.clone();
    tasks.spawn("health", async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely: let others finish first.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let (health, metrics) = (health.clone(), metrics.clone());
            group.spawn("health connection", async move {
                let service = service_fn(move |request| {
                    let response = answer(&request, &health, &metrics);
                    async move { Ok::<_, Infallible>(response) }
                });
                // A peer that breaks off is its own affair.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

fn answer(request: &Request<Incoming>, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (well, text) = match request.uri().path() {
        "/healthz" | "/livez" => health.live(),
        "/readyz" => health.ready(),
        "/metrics" => (true, metrics.render()),
        _ => return respond(StatusCode::NOT_FOUND, "not found".to_owned()),
    };
    let code = if well {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    respond(code, text)
}

fn respond(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn tells_readiness_and_metrics() {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::new();
        health.add_ready("caches", Arc::new(|| Err("not yet".to_owned())));
        let metrics = Metrics::new();
        metrics.queue("test").depth.set(3);
        serve_health(listener, health, metrics, &tasks);
        let get = async |path: &str| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        assert!(get("/livez").await.starts_with("HTTP/1.1 200"));
        let ready = get("/readyz").await;
        assert!(
            ready.starts_with("HTTP/1.1 500") && ready.contains("[-]caches failed: not yet"),
            "{ready}"
        );
        assert!(get("/metrics").await.contains("workqueue_depth{name=\"test\"} 3"));
        tasks.stop().await;
    }
}
