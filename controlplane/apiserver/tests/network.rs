//! The server over real sockets: identities, refusals, health, limits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::server;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use minato_apiserver::{ApiServer, ServeHandle};
use serde_json::Value;

async fn serve() -> (Arc<ApiServer>, ServeHandle) {
    let server = server();
    server.start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handle = server.serve(listener, None).unwrap();
    (server, handle)
}

async fn get(handle: &ServeHandle, path: &str, token: Option<&str>) -> (StatusCode, http::HeaderMap, Value) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut request = Request::builder().uri(format!("http://{}{path}", handle.address()));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
    (head.status, head.headers, value)
}

#[tokio::test]
async fn identities_decide() {
    let (_server, handle) = serve().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, _, status) = get(&handle, path, Some("wrong")).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::UNAUTHORIZED, &"Unauthorized".into())
    );
    let (code, headers, status) = get(&handle, path, Some("nobody")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        status["message"],
        "configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    assert!(headers.contains_key("audit-id"));
    let (code, _, _) = get(&handle, path, None).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let (code, _, list) = get(&handle, path, Some("jane")).await;
    assert_eq!((code, &list["kind"]), (StatusCode::OK, &"ConfigMapList".into()));
    handle.stop().await;
}

#[tokio::test]
async fn health_version_and_metrics() {
    let (server, handle) = serve().await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping", "/readyz/etcd"] {
        let (code, _, body) = get(&handle, path, None).await;
        assert_eq!((code, body), (StatusCode::OK, "ok".into()), "{path}");
    }
    let (_, _, body) = get(&handle, "/readyz?verbose", None).await;
    assert!(body.as_str().unwrap().ends_with("readyz check passed\n"));
    let (code, _, _) = get(&handle, "/readyz/nothing", None).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let (_, _, version) = get(&handle, "/version", None).await;
    assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"36".into()));
    let (_, _, metrics) = get(&handle, "/metrics", None).await;
    assert!(metrics.as_str().unwrap().contains("apiserver_request_total{"));
    let (code, _, status) = get(&handle, "/nothing", None).await;
    assert_eq!((code, &status["reason"]), (StatusCode::NOT_FOUND, &"NotFound".into()));
    server.stop();
    handle.stop().await;
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let (_server, handle) = serve().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::post(format!(
        "http://{}/api/v1/namespaces/default/configmaps",
        handle.address()
    ))
    .header("authorization", "Bearer jane")
    .body(Full::new(Bytes::from(vec![b' '; 4 << 20])))
    .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    handle.stop().await;
}
