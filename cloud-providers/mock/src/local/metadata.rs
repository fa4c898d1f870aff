//! The instances' metadata service on 169.254.169.254, in the manner of IMDSv2: a session token first, then reads.
//!
//! `PUT /latest/api/token` answers a token; `GET /minato/v1/<item>` with `X-Metadata-Token` answers `instance-id`,
//! `provider-id`, `hostname`, `local-ipv4`, `instance-type`, `zone`, `region` or `user-data` of the instance whose address asks.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use minato_provider_interface::MachineState;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use super::netns::NetnsRuntime;
use super::{LocalError, io};
use crate::cloud::MockCloud;

/// Starts the service; it ends with the runtime.
pub(super) async fn serve(vpc: &NetnsRuntime, cloud: MockCloud) -> Result<(), LocalError> {
    let address = SocketAddr::from(([169, 254, 169, 254], 80));
    let listener = vpc
        .spawn(TcpListener::bind(address))
        .await
        .map_err(|e| LocalError::Unsupported(e.to_string()))?
        .map_err(io("listening for the metadata service"))?;
    let token: Arc<str> = format!("{:032x}", rand::random::<u128>()).into();
    vpc.spawn(async move {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let (cloud, token) = (cloud.clone(), token.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = answer(&cloud, &token, from.ip(), &request);
                    async move { Ok::<_, Infallible>(response) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(())
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

fn answer(cloud: &MockCloud, token: &str, from: IpAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    // Requests forwarded on behalf of somebody else get nothing, as in IMDSv2.
    if request.headers().contains_key("x-forwarded-for") {
        return text(StatusCode::FORBIDDEN, "forwarded requests are refused".to_owned());
    }
    if request.method() == Method::PUT && request.uri().path() == "/latest/api/token" {
        return text(StatusCode::OK, token.to_owned());
    }
    let given = request
        .headers()
        .get("x-metadata-token")
        .map(http::HeaderValue::as_bytes)
        .unwrap_or_default();
    if !bool::from(given.ct_eq(token.as_bytes())) {
        return text(
            StatusCode::UNAUTHORIZED,
            "get a token first: PUT /latest/api/token".to_owned(),
        );
    }
    let state = cloud.snapshot();
    let running = |s: MachineState| matches!(s, MachineState::Pending | MachineState::Running);
    let Some(instance) = state
        .instances
        .values()
        .find(|i| IpAddr::V4(i.ip) == from && running(i.state))
    else {
        return text(StatusCode::NOT_FOUND, format!("no instance has the address {from}"));
    };
    let body = match request.uri().path().strip_prefix("/minato/v1/") {
        Some("instance-id") => instance.id.clone(),
        Some("provider-id") => instance.provider_id().to_string(),
        Some("hostname") => instance.spec.name.clone(),
        Some("local-ipv4") => instance.ip.to_string(),
        Some("instance-type") => instance.spec.instance_type.clone(),
        Some("zone") => instance.zone.clone(),
        Some("region") => state.region.clone(),
        Some("user-data") => instance.spec.user_data.clone(),
        _ => return text(StatusCode::NOT_FOUND, "no such item".to_owned()),
    };
    text(StatusCode::OK, body)
}
