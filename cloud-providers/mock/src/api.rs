//! The mock cloud's JSON API on a unix socket: calls for providers, and a view of the whole state for people and tests.
//!
//! `POST /v1/clusters/<cluster id>/call` takes a [`Call`] and answers a [`Reply`], or a [`WireError`] with status 422.
//! `GET /v1/state` answers the state without user data, `GET /v1/calls` the number of calls by name. All need
//! `Authorization: Bearer <token>`. The cloud's own token opens everything; a token made by [`cluster_token`] opens the
//! calls of its cluster alone.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use minato_provider_interface::{CloudError, CloudErrorKind, ClusterId};
use subtle::ConstantTimeEq;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Endpoint, WireError};
use crate::cloud::MockCloud;

/// Largest request body that is read, in bytes.
const MAX_BODY: usize = 4 << 20;

/// Serves the API until `stop` is cancelled. The socket file is made anew.
///
/// # Errors
/// The socket cannot be bound.
pub async fn serve(cloud: MockCloud, socket: &Path, token: String, stop: CancellationToken) -> std::io::Result<()> {
    if socket.exists() {
        std::fs::remove_file(socket)?;
    }
    let listener = UnixListener::bind(socket)?;
    // Tenants' processes run under their own users and reach the cloud through this socket; the token is what counts.
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a cloud API connection failed");
                    continue;
                }
            },
        };
        let (cloud, token, stop) = (cloud.clone(), token.clone(), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (cloud, token) = (cloud.clone(), token.clone());
                async move { Ok::<_, Infallible>(answer(&cloud, &token, request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = stop.cancelled() => {}
                result = connection => if let Err(error) = result {
                    tracing::debug!(%error, "cloud API connection ended");
                },
            }
        });
    }
}

/// What the control plane of `cluster` is given: worthless for any other cluster.
pub fn cluster_token(token: &str, cluster: &ClusterId) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, token.as_bytes());
    let tag = ring::hmac::sign(&key, cluster.0.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the request's credential opens this path.
fn may(token: &str, segments: &[&str], given: &[u8]) -> bool {
    let is = |token: &str| bool::from(given.ct_eq(format!("Bearer {token}").as_bytes()));
    match segments {
        ["v1", "clusters", cluster, "call"] => {
            is(token) || is(&cluster_token(token, &ClusterId((*cluster).to_owned())))
        }
        _ => is(token),
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

fn refuse(status: StatusCode, kind: CloudErrorKind, message: impl Into<String>) -> Response<Full<Bytes>> {
    json(status, &WireError::from(CloudError::new(kind, message)))
}

async fn answer(cloud: &MockCloud, token: &str, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let given = request
        .headers()
        .get(http::header::AUTHORIZATION)
        .map(http::HeaderValue::as_bytes)
        .unwrap_or_default();
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    if !may(token, &segments, given) {
        return refuse(
            StatusCode::UNAUTHORIZED,
            CloudErrorKind::Unauthorized,
            "the cloud credential is missing or wrong",
        );
    }
    match (request.method(), segments.as_slice()) {
        (&Method::GET, ["v1", "state"]) => {
            let mut state = cloud.snapshot();
            state.instances.values_mut().for_each(|i| i.spec.user_data.clear());
            json(StatusCode::OK, &state)
        }
        (&Method::GET, ["v1", "calls"]) => json(StatusCode::OK, &cloud.call_counts()),
        (&Method::POST, ["v1", "clusters", cluster, "call"]) => {
            let cluster = ClusterId((*cluster).to_owned());
            let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    return refuse(
                        StatusCode::BAD_REQUEST,
                        CloudErrorKind::Invalid,
                        format!("cannot read the body: {error}"),
                    );
                }
            };
            let call: Call = match serde_json::from_slice(&body) {
                Ok(call) => call,
                Err(error) => {
                    return refuse(
                        StatusCode::BAD_REQUEST,
                        CloudErrorKind::Invalid,
                        format!("not a call: {error}"),
                    );
                }
            };
            match cloud.call(&cluster, call).await {
                Ok(reply) => json(StatusCode::OK, &reply),
                Err(error) => json(StatusCode::UNPROCESSABLE_ENTITY, &WireError::from(error)),
            }
        }
        _ => refuse(
            StatusCode::NOT_FOUND,
            CloudErrorKind::Invalid,
            format!("no such path: {path}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clusters_token_opens_its_own_calls_alone() {
        let own = format!("Bearer {}", cluster_token("master", &ClusterId("a".into())));
        let path = |cluster: &'static str| ["v1", "clusters", cluster, "call"];
        assert!(may("master", &path("a"), own.as_bytes()));
        assert!(!may("master", &path("b"), own.as_bytes()));
        assert!(!may("master", &["v1", "state"], own.as_bytes()));
        assert!(may("master", &path("b"), b"Bearer master") && may("master", &["v1", "state"], b"Bearer master"));
        assert!(!may("master", &path("a"), b"") && !may("master", &path("a"), b"Bearer other"));
    }
}
