//! Addresses and ports of Services, and what a fresh cluster has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{MemoryStore, call, server, server_on};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": name},
        "spec": {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP"}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

async fn create(server: &Arc<ApiServer>, name: &str, spec: Value) -> Value {
    let (code, created) = call(server, Method::POST, SERVICES, service(name, spec)).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    created
}

fn ip(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn addresses_are_given_once_and_given_back() {
    let server = server();
    server.start().await;
    let first = create(&server, "a", json!({})).await;
    assert_eq!(first["spec"]["clusterIPs"], json!([ip(&first)]));
    assert_eq!(
        (&first["spec"]["ipFamilies"], &first["spec"]["ipFamilyPolicy"]),
        (&json!(["IPv4"]), &json!("SingleStack"))
    );
    // The same address by name: refused while it is held, given when it is free.
    let (code, status) = call(
        &server,
        Method::POST,
        SERVICES,
        service("b", json!({"clusterIP": ip(&first)})),
    )
    .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated"),
        "{status}"
    );
    let (code, _) = call(&server, Method::DELETE, &format!("{SERVICES}/a"), Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    let again = create(&server, "b", json!({"clusterIP": ip(&first)})).await;
    assert_eq!(ip(&again), ip(&first));
    let outside = service("c", json!({"clusterIP": "10.97.0.1"}));
    let (code, status) = call(&server, Method::POST, SERVICES, outside).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("The range of valid IPs is 10.96.0.0/27"),
        "{status}"
    );
}

#[tokio::test]
async fn a_range_is_used_to_its_last_address() {
    let server = server();
    server.start().await;
    // A /27 has 30 usable addresses; the kubernetes Service has the first.
    let creates = (0..29).map(|i| {
        let server = server.clone();
        async move { ip(&create(&server, &format!("s{i}"), json!({})).await) }
    });
    let given: BTreeSet<String> = futures::future::join_all(creates).await.into_iter().collect();
    assert_eq!(given.len(), 29);
    assert!(!given.contains("10.96.0.1"));
    let (code, status) = call(&server, Method::POST, SERVICES, service("more", json!({}))).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(status["message"].as_str().unwrap().contains("range is full"));
}

#[tokio::test]
async fn allocations_are_the_stores_and_not_the_servers() {
    let store = Arc::new(MemoryStore::default());
    let (one, two) = (server_on(store.clone()), server_on(store));
    one.start().await;
    two.start().await;
    let a = create(&one, "a", json!({"type": "NodePort"})).await;
    let port = a["spec"]["ports"][0]["nodePort"].clone();
    assert!((30000..=30009).contains(&port.as_u64().unwrap()));
    let same = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let (code, status) = call(&two, Method::POST, SERVICES, service("b", same.clone())).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["field"], "spec.ports[0].nodePort");
    call(&two, Method::DELETE, &format!("{SERVICES}/a"), Value::Null).await;
    create(&one, "b", same).await;
}

#[tokio::test]
async fn updates_keep_take_and_drop() {
    let server = server();
    server.start().await;
    let a = create(&server, "a", json!({"type": "NodePort"})).await;
    let path = format!("{SERVICES}/a");
    // A client that knows nothing of what was allocated.
    let (code, kept) = call(&server, Method::PUT, &path, service("a", json!({"type": "NodePort"}))).await;
    assert_eq!(code, StatusCode::OK, "{kept}");
    assert_eq!((ip(&kept), &kept["spec"]["ports"]), (ip(&a), &a["spec"]["ports"]));
    // To a type without node ports: the port is free again.
    let mut plain = kept.clone();
    plain["spec"]["type"] = json!("ClusterIP");
    let (code, plain) = call(&server, Method::PUT, &path, plain).await;
    assert_eq!(code, StatusCode::OK);
    assert!(plain["spec"]["ports"][0].get("nodePort").is_none());
    let port = a["spec"]["ports"][0]["nodePort"].clone();
    create(
        &server,
        "b",
        json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": port}]}),
    )
    .await;
    // To a type without an address: that is free again, too.
    let mut external = plain.clone();
    external["spec"]["type"] = json!("ExternalName");
    external["spec"]["externalName"] = json!("example.com");
    let (code, external) = call(&server, Method::PUT, &path, external).await;
    assert_eq!(code, StatusCode::OK);
    assert!(external["spec"].get("clusterIP").is_none());
    create(&server, "c", json!({"clusterIP": ip(&a)})).await;
}

#[tokio::test]
async fn kinds_of_services() {
    let server = server();
    server.start().await;
    let headless = create(&server, "headless", json!({"clusterIP": "None"})).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = create(
        &server,
        "external",
        json!({"type": "ExternalName", "externalName": "example.com"}),
    )
    .await;
    assert!(external["spec"].get("clusterIP").is_none());
    let balancer = create(
        &server,
        "balancer",
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
    )
    .await;
    let node_port = balancer["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let health = balancer["spec"]["healthCheckNodePort"].as_u64().unwrap();
    assert_ne!(node_port, health);
    let without = create(
        &server,
        "without",
        json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}),
    )
    .await;
    assert!(without["spec"]["ports"][0].get("nodePort").is_none());
    let dns = json!({"type": "NodePort", "ports": [{"name": "u", "port": 53, "protocol": "UDP"}, {"name": "t", "port": 53, "protocol": "TCP"}]});
    let dns = create(&server, "dns", dns).await;
    assert_eq!(dns["spec"]["ports"][0]["nodePort"], dns["spec"]["ports"][1]["nodePort"]);
    let dual = service("dual", json!({"ipFamilyPolicy": "RequireDualStack"}));
    let (code, _) = call(&server, Method::POST, SERVICES, dual).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_fresh_cluster_has_what_clients_expect() {
    let store = Arc::new(MemoryStore::default());
    let server = server_on(store.clone());
    assert!(!server.is_ready());
    server.start().await;
    assert!(server.is_ready());
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let (code, namespace) = call(&server, Method::GET, &format!("/api/v1/namespaces/{name}"), Value::Null).await;
        assert_eq!(code, StatusCode::OK);
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
    }
    let (_, kubernetes) = call(&server, Method::GET, &format!("{SERVICES}/kubernetes"), Value::Null).await;
    assert_eq!(ip(&kubernetes), "10.96.0.1");
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let (_, found) = call(&server, Method::GET, endpoints, Value::Null).await;
    assert_eq!(found["subsets"][0]["addresses"][0]["ip"], "192.0.2.1");
    let class = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let (_, class) = call(&server, Method::GET, class, Value::Null).await;
    assert_eq!(class["value"], 2_000_001_000_u32, "{class}");

    // A second start changes nothing, but mends roles and endpoints.
    let role_path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:test";
    let (_, mut role) = call(&server, Method::GET, role_path, Value::Null).await;
    role["rules"] = json!([]);
    call(&server, Method::PUT, role_path, role).await;
    let (_, mut wrong) = call(&server, Method::GET, endpoints, Value::Null).await;
    wrong["subsets"][0]["addresses"][0]["ip"] = json!("192.0.2.9");
    call(&server, Method::PUT, endpoints, wrong).await;
    let again = server_on(store);
    again.start().await;
    let (_, same) = call(&again, Method::GET, &format!("{SERVICES}/kubernetes"), Value::Null).await;
    assert_eq!(same, kubernetes);
    let (_, role) = call(&again, Method::GET, role_path, Value::Null).await;
    assert_eq!(role["rules"][0]["resources"], json!(["pods"]));
    let (_, mended) = call(&again, Method::GET, endpoints, Value::Null).await;
    assert_eq!(mended["subsets"][0]["addresses"][0]["ip"], "192.0.2.1");
}
