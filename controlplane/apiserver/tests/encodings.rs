//! Protobuf, other versions of a kind, TLS with client certificates, and a typed client without a socket.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{call, server, user};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use minato_api::k8s::core::v1::ConfigMap;
use minato_api::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use minato_apiserver::ServerTls;
use minato_codec::proto;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn protobuf_in_and_out() {
    let server = server();
    let schema = minato_schema::builtin().by_kind("", "v1", "ConfigMap").unwrap();
    let sent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let request = Request::post(MAPS)
        .header("content-type", PROTOBUF)
        .header("accept", format!("{PROTOBUF},application/json"))
        .body(Full::new(Bytes::from(proto::encode_protobuf(&sent, schema).unwrap())))
        .unwrap();
    let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let envelope = proto::open(&bytes).unwrap();
    let object = proto::decode_protobuf(&envelope, schema, &minato_codec::Limits::default()).unwrap();
    assert_eq!(object["data"], json!({"k": "v"}));
    assert_eq!(object["metadata"]["resourceVersion"], "1");

    for (accept, code) in [
        ("text/html", StatusCode::NOT_ACCEPTABLE),
        ("application/yaml", StatusCode::CREATED),
    ] {
        let request = Request::post(MAPS)
            .header("accept", accept)
            .body(Full::new(Bytes::from(r#"{"metadata":{"name":"b"}}"#)))
            .unwrap();
        let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
        assert_eq!(response.status(), code, "{accept}");
    }
    let request = Request::post(MAPS)
        .header("content-type", PROTOBUF)
        .body(Full::new(Bytes::from("k8s\0\u{1}\u{2}")))
        .unwrap();
    let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
    assert!(response.status().is_client_error());
}

#[tokio::test]
async fn events_are_one_kind_in_two_groups() {
    let server = server();
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let older = "/api/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "note": "hello",
        "reason": "Because", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a",
        "reportingController": "c", "reportingInstance": "i",
    });
    let (code, created) = call(&server, Method::POST, newer, event).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(
        (&created["apiVersion"], &created["note"]),
        (&json!("events.k8s.io/v1"), &json!("hello"))
    );
    let (_, core) = call(&server, Method::GET, &format!("{older}/e"), Value::Null).await;
    assert_eq!((&core["apiVersion"], &core["message"]), (&json!("v1"), &json!("hello")));
    assert_eq!(core["involvedObject"], json!({"kind": "Pod", "name": "p"}));
    let patch = json!({"note": "again"}).to_string();
    let merge = "application/merge-patch+json";
    let (code, _) = common::call_typed(&server, Method::PATCH, &format!("{newer}/e"), merge, patch).await;
    assert_eq!(code, StatusCode::OK);
    let (_, core) = call(&server, Method::GET, &format!("{older}/e"), Value::Null).await;
    assert_eq!(core["message"], "again");
}

#[tokio::test]
async fn a_typed_client_needs_no_socket() {
    let server = server();
    let maps: Api<ConfigMap> = Api::namespaced(server.client_as(user("component")), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(created.metadata.resource_version.as_deref(), Some("1"));
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "w"}});
    let applied = maps
        .patch("a", &PatchParams::apply("me"), &Patch::Apply(&apply))
        .await
        .unwrap();
    assert_eq!(applied.data.unwrap().len(), 2);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    Authority {
        issuer: Issuer::new(params, key),
        certificate,
    }
}

fn issue(authority: &Authority, name: &str, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    (params.signed_by(&key, &authority.issuer).unwrap(), key)
}

#[tokio::test]
async fn client_certificates_are_asked_for_and_not_required() {
    let authority = authority();
    let (certificate, key) = issue(&authority, "localhost", ExtendedKeyUsagePurpose::ServerAuth);
    let tls = ServerTls::new(
        vec![certificate.der().clone()],
        key.serialize_der().try_into().unwrap(),
        &[authority.certificate.der().clone()],
    )
    .unwrap();
    let server = server();
    server.start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handle = server.serve(listener, Some(tls)).unwrap();
    let url = format!("https://localhost:{}{MAPS}", handle.address().port());

    let root = reqwest::Certificate::from_der(authority.certificate.der()).unwrap();
    let builder = || {
        reqwest::Client::builder()
            .use_rustls_tls()
            .add_root_certificate(root.clone())
            .no_proxy()
    };
    let plain = builder().build().unwrap();
    let response = plain.get(&url).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (403, http::Version::HTTP_2)
    );
    let response = plain.get(&url).bearer_auth("jane").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);

    let (certificate, key) = issue(&authority, "client", ExtendedKeyUsagePurpose::ClientAuth);
    let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
    let identity = reqwest::Identity::from_pem(pem.as_bytes()).unwrap();
    let certified = builder().identity(identity).http1_only().build().unwrap();
    let response = certified.get(&url).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, http::Version::HTTP_11)
    );

    let stranger = issue(&self::authority(), "client", ExtendedKeyUsagePurpose::ClientAuth);
    let pem = format!("{}{}", stranger.0.pem(), stranger.1.serialize_pem());
    let identity = reqwest::Identity::from_pem(pem.as_bytes()).unwrap();
    let stranger = builder().identity(identity).build().unwrap();
    assert!(stranger.get(&url).send().await.is_err());
    drop((plain, certified, stranger));
    let stopping = tokio::time::Instant::now();
    server.stop();
    handle.stop().await;
    assert!(
        stopping.elapsed() < server.config().drain_timeout,
        "idle connections do not hold up a stop"
    );
    let _keep: Arc<_> = server;
}
