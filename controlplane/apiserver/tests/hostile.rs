//! Bad input of every sort: a `Status` with a reason, never a panic, and kinds with schemas of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{call, call_typed, server};
use http::{Method, StatusCode};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

const COLLECTIONS: &[&str] = &[
    MAPS,
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/events",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/example.com/v1/namespaces/default/widgets",
    "/api/v1/namespaces",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
];

/// Bodies that no kind takes.
fn bodies() -> Vec<String> {
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(5000), close.repeat(5000));
    let mut bodies: Vec<String> = [
        "",
        "null",
        "1",
        "[]",
        "\"text\"",
        "{",
        "}{",
        "{\"metadata\":",
        "{\"metadata\":{}}{}",
        "NaN",
        "{\"metadata\":{\"name\":1}}",
        "{\"metadata\":[]}",
        "{\"metadata\":\"x\"}",
        "{\"metadata\":{\"name\":{\"a\":\"b\"}}}",
        "{\"metadata\":{\"labels\":[]}}",
        "{\"metadata\":{\"labels\":{\"a\":1}}}",
        "{\"metadata\":{\"finalizers\":\"x\"}}",
        "{\"metadata\":{\"ownerReferences\":[1]}}",
        "{\"metadata\":{\"name\":\"UPPER CASE\"}}",
        "{\"metadata\":{\"name\":\"a/b\"}}",
        "{\"metadata\":{\"name\":\"..\\u0000\"}}",
        "{\"kind\":\"Nothing\",\"metadata\":{\"name\":\"a\"}}",
        "{\"apiVersion\":\"v7\",\"metadata\":{\"name\":\"a\"}}",
        "{\"apiVersion\":1,\"kind\":2,\"metadata\":{\"name\":\"a\",\"labels\":3}}",
        "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"x\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"elsewhere\"}}",
        "{\"metadata\":{\"name\":\"a\",\"creationTimestamp\":\"yesterday\"}}",
        "\u{0}\u{1}\u{2}",
    ]
    .map(str::to_owned)
    .into();
    bodies.push(deep("[", "]"));
    bodies.push(deep("{\"a\":", "}"));
    bodies.push(format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "a/".repeat(2000)));
    bodies
}

fn assert_refused(what: &str, code: StatusCode, status: &Value) {
    assert!(code.is_client_error(), "{what}: {code} {status}");
    assert_eq!(status["kind"], "Status", "{what}");
    assert_eq!(status["code"], code.as_u16(), "{what}");
    assert!(
        status["reason"].as_str().is_some_and(|r| !r.is_empty()),
        "{what}: {status}"
    );
}

#[tokio::test]
async fn malformed_creates_are_refused() {
    let server = server();
    for collection in COLLECTIONS {
        for content_type in [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "text/plain",
        ] {
            for body in bodies() {
                let what = format!(
                    "{collection} {content_type} {}",
                    body.chars().take(60).collect::<String>()
                );
                let sent = call_typed(&server, Method::POST, collection, content_type, body).await;
                // JSON that YAML reads otherwise, and reviews and namespaces, which do not mind a name.
                if sent.0 == StatusCode::CREATED {
                    assert!(
                        collection.contains("reviews")
                            || content_type == "application/yaml"
                            || *collection == "/api/v1/namespaces",
                        "{what}: {}",
                        sent.1
                    );
                    continue;
                }
                assert_refused(&what, sent.0, &sent.1);
            }
        }
    }
}

#[tokio::test]
async fn malformed_patches_are_refused() {
    let server = server();
    call(
        &server,
        Method::POST,
        MAPS,
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
    )
    .await;
    call(&server, Method::POST, WIDGETS, json!({"metadata": {"name": "a"}})).await;
    let patches = [
        "",
        "1",
        "\"x\"",
        "[1]",
        "[{}]",
        "{\"metadata\":1}",
        "{\"metadata\":{\"name\":\"b\"}}",
        "{\"metadata\":{\"uid\":\"b\"}}",
        "{\"data\":[]}",
        "{\"data\":{\"k\":{\"x\":1}}, \"spec\":{\"size\":\"x\"}}",
        "{\"kind\":\"Pod\"}",
        "{\"apiVersion\":\"v9\"}",
        "[{\"op\":\"no\",\"path\":\"/a\"}]",
        "[{\"op\":\"remove\",\"path\":\"/absent/x\"}]",
        "[{\"op\":\"replace\",\"path\":\"/metadata\",\"value\":1}]",
        "[{\"op\":\"remove\",\"path\":\"\"}]",
        "[{\"op\":\"test\",\"path\":\"/kind\",\"value\":\"x\"}]",
        "{\"$patch\":\"nonsense\"}",
        "{\"metadata\":{\"labels\":{\"a b\":\"c\"}}}",
        "{\"metadata\":{\"finalizers\":[\"not a name\"]}}",
        "{\"metadata\":{\"resourceVersion\":\"999999\"},\"data\":{\"x\":\"y\"}}",
    ];
    let types = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/json",
        "application/octet-stream",
    ];
    for path in [
        format!("{MAPS}/a?fieldManager=m"),
        format!("{WIDGETS}/a?fieldManager=m"),
        format!("{WIDGETS}/a/status?fieldManager=m"),
    ] {
        for patch in patches {
            for content_type in types {
                let what = format!("{path} {content_type} {patch}");
                let (code, status) = call_typed(&server, Method::PATCH, &path, content_type, patch.to_owned()).await;
                assert!(!code.is_server_error(), "{what}: {status}");
                if !code.is_success() {
                    assert_refused(&what, code, &status);
                } else {
                    assert_eq!(status["metadata"]["name"], "a", "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn odd_paths_and_queries_are_refused() {
    let server = server();
    for path in [
        "/api/v1/nothings",
        "/api/v9/pods",
        "/apis/nothing/v1/things",
        "/api/v1/namespaces/a/namespaces",
        "/api/v1/pods/p",
        "/api/v1/namespaces/default/pods/p/nothing",
        "/apis/apps/v1/deployments/d/scale",
        "/api/v1/namespaces/default/pods/%2e%2e",
        "/api/v1/namespaces/default/pods/%00",
        "/api/v1/namespaces/default/pods/%ff%fe",
        "/api/v1/namespaces/default/pods/%zz",
        "/api/v1/namespaces/default/configmaps?labelSelector=a+b+c",
        "/api/v1/namespaces/default/configmaps?labelSelector=%21%21",
        "/api/v1/namespaces/default/configmaps?fieldSelector=spec.nothing%3Dx",
        "/api/v1/namespaces/default/configmaps?fieldSelector=x",
        "/api/v1/namespaces/default/configmaps?timeout=soon",
        "/nothing/at/all",
    ] {
        let (code, status) = call(&server, Method::GET, path, Value::Null).await;
        assert_refused(path, code, &status);
    }
    for (method, path) in [
        (Method::POST, "/api/v1/namespaces/default/configmaps/a"),
        (Method::PUT, "/api/v1/namespaces/default/configmaps"),
        (Method::PATCH, "/api/v1/namespaces/default/configmaps"),
        (Method::OPTIONS, "/api/v1/namespaces/default/configmaps"),
        (
            Method::from_bytes(b"WHATEVER").unwrap(),
            "/api/v1/namespaces/default/configmaps",
        ),
        (Method::POST, "/api/v1/configmaps"),
    ] {
        let (code, status) = call(&server, method.clone(), path, json!({"metadata": {"name": "a"}})).await;
        assert_refused(&format!("{method} {path}"), code, &status);
    }
    for body in [
        "[]",
        "{\"kind\":\"Pod\"}",
        "{\"gracePeriodSeconds\":\"x\"}",
        "{\"propagationPolicy\":\"Never\"}",
        "{\"orphanDependents\":true,\"propagationPolicy\":\"Orphan\"}",
        "{\"dryRun\":[\"Some\"]}",
    ] {
        let (code, status) = call_typed(
            &server,
            Method::DELETE,
            &format!("{MAPS}/a"),
            "application/json",
            body.to_owned(),
        )
        .await;
        assert_refused(body, code, &status);
    }
}

#[tokio::test]
async fn kinds_with_schemas_of_their_own() {
    let server = server();
    let (code, created) = call(
        &server,
        Method::POST,
        WIDGETS,
        json!({"metadata": {"name": "a"}, "spec": {"colour": "red", "lost": 1}}),
    )
    .await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["spec"], json!({"colour": "red", "size": 3}));
    let (code, status) = call(
        &server,
        Method::POST,
        WIDGETS,
        json!({"metadata": {"name": "b"}, "spec": {"size": 0}}),
    )
    .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["field"], "spec.size");
    assert_eq!(
        status["message"].as_str().unwrap().split(" is invalid").next(),
        Some("Widget.example.com \"b\"")
    );
    let apply = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 7}}).to_string();
    let path = format!("{WIDGETS}/a?fieldManager=m");
    let (code, applied) = call_typed(&server, Method::PATCH, &path, "application/apply-patch+yaml", apply).await;
    assert_eq!(
        (code, &applied["spec"]),
        (StatusCode::CONFLICT, &Value::Null),
        "the creator owns the default too: {applied}"
    );
    let (code, _) = call_typed(
        &server,
        Method::PATCH,
        &path,
        "application/strategic-merge-patch+json",
        "{}".to_owned(),
    )
    .await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
