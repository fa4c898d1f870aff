//! Health, version and metrics paths.

use std::sync::Arc;

use http::StatusCode;
use minato_meta::ApiError;
use serde_json::json;

use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

const PING: &str = "ping";
const STORE: &str = "etcd";
const BOOTSTRAP: &str = "poststarthook/bootstrap";
const SHUTDOWN: &str = "shutdown";

/// Checks of each path, in the order in which they are shown.
fn checks(path: &str) -> &'static [&'static str] {
    match path {
        "livez" => &[PING, BOOTSTRAP],
        "readyz" => &[PING, STORE, BOOTSTRAP, SHUTDOWN],
        _ => &[PING, STORE, BOOTSTRAP],
    }
}

/// Answers health, version and metrics paths; `None` for any other.
pub(crate) async fn handle(server: &Arc<ApiServer>, request: &ApiRequest) -> Option<Result<Response, ApiError>> {
    let path = request.info.path.trim_matches('/');
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match first {
        "healthz" | "livez" | "readyz" => Some(Ok(health(server, request, first, rest).await)),
        "version" if rest.is_empty() => Some(version()),
        "metrics" if rest.is_empty() => Some(Ok(metrics(server))),
        _ => None,
    }
}

async fn passes(server: &Arc<ApiServer>, check: &str) -> bool {
    match check {
        STORE => server.store.revision().await.is_ok(),
        BOOTSTRAP => server.is_started(),
        SHUTDOWN => !server.is_draining(),
        _ => true,
    }
}

async fn health(server: &Arc<ApiServer>, request: &ApiRequest, path: &str, one: &str) -> Response {
    let all = checks(path);
    if !one.is_empty() {
        return match all.iter().find(|c| **c == one) {
            None => response::error(&ApiError::no_such_path()),
            Some(check) if passes(server, check).await => response::text(StatusCode::OK, "ok"),
            Some(_) => response::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal server error: reason withheld\n",
            ),
        };
    }
    let excluded: Vec<&str> = request.query.get_all("exclude").collect();
    let mut report = String::new();
    let mut healthy = true;
    for check in all {
        if excluded.contains(check) {
            report.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if passes(server, check).await {
            report.push_str(&format!("[+]{check} ok\n"));
        } else {
            healthy = false;
            report.push_str(&format!("[-]{check} failed: reason withheld\n"));
        }
    }
    let unknown: Vec<&str> = excluded.into_iter().filter(|e| !all.contains(e)).collect();
    if !unknown.is_empty() {
        report.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {unknown:?}\n"
        ));
    }
    if !healthy {
        report.push_str(&format!("{path} check failed\n"));
        return response::text(StatusCode::INTERNAL_SERVER_ERROR, report);
    }
    if request.query.get("verbose").is_some() {
        report.push_str(&format!("{path} check passed\n"));
        return response::text(StatusCode::OK, report);
    }
    response::text(StatusCode::OK, "ok")
}

fn version() -> Result<Response, ApiError> {
    response::json(
        StatusCode::OK,
        &json!({
            "major": minato_api::KUBERNETES_MAJOR,
            "minor": minato_api::KUBERNETES_MINOR,
            "emulationMajor": minato_api::KUBERNETES_MAJOR,
            "emulationMinor": minato_api::KUBERNETES_MINOR,
            "minCompatibilityMajor": minato_api::KUBERNETES_MAJOR,
            "minCompatibilityMinor": "35",
            "gitVersion": minato_api::GIT_VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, platform_arch()),
        }),
    )
}

/// The architecture as Go names it, which is what clients compare.
fn platform_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn metrics(server: &ApiServer) -> Response {
    response::text(StatusCode::OK, server.metrics.render())
}
