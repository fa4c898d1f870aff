//! Quotas hold against any number of writers at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{call, embedded};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A quota in force, with nothing used.
async fn limit(server: &Arc<ApiServer>, name: &str, mut spec: Value) {
    let hard = spec["hard"].clone();
    spec["hard"] = hard.clone();
    let quota = json!({"metadata": {"name": name}, "spec": spec});
    let (code, mut made) = call(server, Method::POST, QUOTAS, quota).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .unwrap()
        .keys()
        .map(|k| (k.clone(), json!("0")))
        .collect();
    made["status"] = json!({"hard": hard, "used": used});
    let (code, made) = call(server, Method::PUT, &format!("{QUOTAS}/{name}/status"), made).await;
    assert_eq!(code, StatusCode::OK, "{made}");
    // What admission looks at follows the store.
    while server
        .reader()
        .list(&minato_meta::GroupResource::new("", "resourcequotas"), Some("default"))
        .iter()
        .all(|q| !String::from_utf8_lossy(&q.json).contains(&format!("\"name\":\"{name}\"")))
    {
        tokio::task::yield_now().await;
    }
}

async fn used(server: &Arc<ApiServer>, name: &str) -> Value {
    let (_, quota) = call(server, Method::GET, &format!("{QUOTAS}/{name}"), Value::Null).await;
    quota["status"]["used"].clone()
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_at_once_ten_fit() {
    let (server, _store, _directory) = embedded();
    server.start().await;
    limit(&server, "ten", json!({"hard": {"pods": "10"}})).await;
    let creates = (0..50).map(|i| {
        let server = server.clone();
        tokio::spawn(async move { call(&server, Method::POST, PODS, pod(&format!("p{i}"), json!({}))).await })
    });
    let mut made = 0;
    for create in creates.collect::<Vec<_>>() {
        let (code, body) = create.await.unwrap();
        if code == StatusCode::CREATED {
            made += 1;
            continue;
        }
        assert_eq!(code, StatusCode::FORBIDDEN);
        let message = body["message"].as_str().unwrap();
        assert!(
            message.ends_with("is forbidden: exceeded quota: ten, requested: pods=1, used: pods=10, limited: pods=10"),
            "{message}"
        );
    }
    assert_eq!(made, 10);
    assert_eq!(used(&server, "ten").await, json!({"pods": "10"}));
    let (_, list) = call(&server, Method::GET, PODS, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn amounts_scopes_dry_runs_and_other_kinds() {
    let (server, _store, _directory) = embedded();
    server.start().await;
    limit(
        &server,
        "cpu",
        json!({"hard": {"limits.cpu": "2", "requests.memory": "1Gi"}}),
    )
    .await;
    limit(
        &server,
        "last",
        json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]}),
    )
    .await;
    limit(
        &server,
        "things",
        json!({"hard": {"count/widgets.example.com": "1", "services.nodeports": "1"}}),
    )
    .await;
    let fits = json!({"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}});

    let (code, body) = call(&server, Method::POST, PODS, pod("open", json!({}))).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "pods \"open\" is forbidden: failed quota: cpu: must specify limits.cpu for: c; requests.memory for: c"
    );
    let (code, body) = call(
        &server,
        Method::POST,
        &format!("{PODS}?dryRun=All"),
        pod("a", fits.clone()),
    )
    .await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    assert_eq!(used(&server, "cpu").await["limits.cpu"], "0");
    let (code, body) = call(&server, Method::POST, PODS, pod("a", fits.clone())).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    assert_eq!(
        used(&server, "cpu").await,
        json!({"limits.cpu": "1500m", "requests.memory": "512Mi"})
    );
    assert_eq!(used(&server, "last").await["pods"], "0");
    let (_, body) = call(&server, Method::POST, PODS, pod("b", fits)).await;
    assert_eq!(
        body["message"],
        "pods \"b\" is forbidden: exceeded quota: cpu, requested: limits.cpu=1500m, used: limits.cpu=1500m, limited: \
         limits.cpu=2"
    );

    let small = json!({"limits": {"cpu": "1m"}, "requests": {"memory": "1Mi"}});
    for (name, expected) in [("c", StatusCode::CREATED), ("d", StatusCode::FORBIDDEN)] {
        let mut ending = pod(name, small.clone());
        ending["spec"]["activeDeadlineSeconds"] = json!(5);
        let (code, body) = call(&server, Method::POST, PODS, ending).await;
        assert_eq!(code, expected, "{body}");
    }
    // Refused by one quota, so charged to none.
    assert_eq!(used(&server, "cpu").await["limits.cpu"], "1501m");

    let widget = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let (code, _) = call(&server, Method::POST, WIDGETS, widget("a")).await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, body) = call(&server, Method::POST, WIDGETS, widget("b")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "widgets.example.com \"b\" is forbidden: exceeded quota: things, requested: count/widgets.example.com=1, used: \
         count/widgets.example.com=1, limited: count/widgets.example.com=1"
    );
}

#[tokio::test]
async fn a_change_of_type_uses_more() {
    let (server, _store, _directory) = embedded();
    server.start().await;
    limit(&server, "ports", json!({"hard": {"services.nodeports": "1"}})).await;
    let services = "/api/v1/namespaces/default/services";
    for name in ["a", "b"] {
        let service = json!({"metadata": {"name": name}, "spec": {"type": "ClusterIP", "selector": {"a": "b"},
            "ports": [{"port": 80, "protocol": "TCP"}]}});
        let (code, body) = call(&server, Method::POST, services, service).await;
        assert_eq!(code, StatusCode::CREATED, "{body}");
    }
    let change = |name: &str| {
        (
            format!("{services}/{name}"),
            json!({"spec": {"type": "NodePort"}}).to_string(),
        )
    };
    let kind = "application/merge-patch+json";
    let (path, patch) = change("a");
    let (code, body) = common::call_typed(&server, Method::PATCH, &path, kind, patch).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    assert_eq!(used(&server, "ports").await["services.nodeports"], "1");
    let (path, patch) = change("b");
    let (code, body) = common::call_typed(&server, Method::PATCH, &path, kind, patch).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(
        body["message"].as_str().unwrap().contains("exceeded quota: ports"),
        "{body}"
    );
    // Nothing of the refused write remains: the port is still free.
    let (_, b) = call(&server, Method::GET, &format!("{services}/b"), Value::Null).await;
    assert_eq!(b["spec"]["type"], "ClusterIP");
}
