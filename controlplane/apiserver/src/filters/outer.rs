//! Stages that do not look at who asks: panics, ids, metrics, headers, draining, deadlines, warnings.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt;
use http::{HeaderName, HeaderValue, header};
use minato_meta::{ApiError, ErrorKind};

use super::{Next, Stage};
use crate::request::ApiRequest;
use crate::response::{self, Response};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A panic in a handler becomes a 500 `Status`; the connection and the server live on.
pub(crate) struct PanicRecovery;

#[async_trait]
impl Stage for PanicRecovery {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        let (method, path) = (request.method.clone(), request.info.path.clone());
        // A panicking handler leaves at most a half-read request behind; shared state is behind poison-free locks.
        match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(_) => {
                tracing::error!(%method, path, "a request handler panicked");
                response::error(&ApiError::internal(format!(
                    "This request caused apiserver to panic. Look in the logs for details. ({method} {path})"
                )))
            }
        }
    }
}

/// Gives the request an id, or keeps the client's, and shows it in the response.
pub(crate) struct AuditInit;

#[async_trait]
impl Stage for AuditInit {
    async fn handle(&self, mut request: ApiRequest, next: Next<'_>) -> Response {
        let id = match request.header(AUDIT_ID.as_str()) {
            Some(id) if !id.is_empty() => id.chars().take(64).collect(),
            _ => uuid::Uuid::new_v4().to_string(),
        };
        let value = HeaderValue::from_str(&id);
        request.audit_id = id;
        let mut response = next.run(request).await;
        if let Ok(value) = value {
            response.headers_mut().insert(AUDIT_ID, value);
        }
        response
    }
}

/// Counts and times requests.
pub(crate) struct Metrics;

#[async_trait]
impl Stage for Metrics {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        let started = Instant::now();
        let metrics = next.server.metrics.clone();
        let labels = metrics.labels(&request);
        let long_running = request.info.is_long_running();
        let response = next.run(request).await;
        metrics.observe(labels, response.status(), (!long_running).then(|| started.elapsed()));
        response
    }
}

/// API responses must not be kept by intermediaries.
pub(crate) struct CacheControl;

#[async_trait]
impl Stage for CacheControl {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        let mut response = next.run(request).await;
        response
            .headers_mut()
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        response
    }
}

/// Refuses new work once the server is stopping; health paths still answer.
pub(crate) struct WaitGroup;

#[async_trait]
impl Stage for WaitGroup {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        if next.server.is_draining() && request.info.is_resource {
            let error = ApiError::new(ErrorKind::ServiceUnavailable, "apiserver is shutting down.");
            return response::error(&error.with_retry_after(1));
        }
        next.run(request).await
    }
}

/// Ends requests that are not long-running at the deadline, or sooner where the client asks.
pub(crate) struct Deadline;

#[async_trait]
impl Stage for Deadline {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        if request.info.is_long_running() {
            return next.run(request).await;
        }
        let longest = next.server.config.request_timeout;
        let timeout = match request.query.get_non_empty("timeout").map(parse_go_duration) {
            None => longest,
            Some(Some(asked)) if asked.is_zero() => longest,
            Some(Some(asked)) => asked.min(longest),
            Some(None) => {
                return response::error(&ApiError::bad_request("invalid timeout specified in the request URL"));
            }
        };
        match tokio::time::timeout(timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => response::error(&ApiError::new(
                ErrorKind::Timeout,
                "Timeout: request did not complete within the allotted timeout",
            )),
        }
    }
}

/// Parses durations as Go writes them: `1m30s`, `500ms`. `None` for anything else or negative.
pub(crate) fn parse_go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..number_len].parse().ok()?;
        rest = &rest[number_len..];
        let unit_len = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let seconds = match &rest[..unit_len] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit_len..];
    }
    (!text.is_empty()).then_some(total)
}

/// Puts the collected warnings into headers.
pub(crate) struct WarningHeaders;

#[async_trait]
impl Stage for WarningHeaders {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        let warnings = request.warnings.clone();
        let mut response = next.run(request).await;
        for text in warnings.take() {
            if let Some((name, value)) = response::warning_header(&text) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// Place of audit logging; passes everything on.
pub(crate) struct AuditLog;

#[async_trait]
impl Stage for AuditLog {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        next.run(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_clients_are_understood() {
        assert_eq!(parse_go_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_go_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_go_duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_go_duration("0"), Some(Duration::ZERO));
        for bad in ["", "5", "s", "-1s", "1x", "1..s"] {
            assert_eq!(parse_go_duration(bad), None, "{bad}");
        }
    }
}
