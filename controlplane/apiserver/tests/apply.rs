//! Patches that need the schema, and who owns which field.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{call, call_typed, server};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn apply(server: &Arc<ApiServer>, query: &str, config: &Value) -> (StatusCode, Value) {
    let path = format!("{DEPLOYMENTS}/d?{query}");
    call_typed(
        server,
        Method::PATCH,
        &path,
        "application/apply-patch+yaml",
        config.to_string(),
    )
    .await
}

fn config(replicas: Value) -> Value {
    let mut config = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    if !replicas.is_null() {
        config["spec"]["replicas"] = replicas;
    }
    config
}

#[tokio::test]
async fn apply_creates_conflicts_and_forces() {
    let server = server();
    let (code, status) = apply(&server, "", &config(json!(1))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{status}");
    let (code, created) = apply(&server, "fieldManager=one", &config(json!(1))).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"]),
        (&json!("one"), &json!("Apply"))
    );
    assert!(entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    // The same again changes nothing.
    let (code, same) = apply(&server, "fieldManager=one", &config(json!(1))).await;
    assert_eq!((code, &same), (StatusCode::OK, &created));
    let (code, status) = apply(&server, "fieldManager=two", &config(json!(3))).await;
    assert_eq!((code, &status["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    assert_eq!(status["details"]["causes"][0]["field"], ".spec.replicas");
    let (code, forced) = apply(&server, "fieldManager=two&force=true", &config(json!(3))).await;
    assert_eq!((code, &forced["spec"]["replicas"]), (StatusCode::OK, &json!(3)));
    assert_eq!(forced["metadata"]["generation"], 2);
}

#[tokio::test]
async fn plain_writes_are_booked_to_the_user_agent() {
    let server = server();
    let (code, created) = call(&server, Method::POST, DEPLOYMENTS, config(json!(1))).await;
    assert_eq!(code, StatusCode::CREATED);
    let managers = created["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1);
    assert_eq!(
        (&managers[0]["manager"], &managers[0]["operation"]),
        (&json!("tester"), &json!("Update"))
    );
    let status = json!({"status": {"replicas": 1}}).to_string();
    let path = format!("{DEPLOYMENTS}/d/status?fieldManager=controller");
    let (code, patched) = call_typed(&server, Method::PATCH, &path, "application/merge-patch+json", status).await;
    assert_eq!(code, StatusCode::OK);
    let managers = patched["metadata"]["managedFields"].as_array().unwrap();
    let by_status = managers.iter().find(|m| m["manager"] == "controller").unwrap();
    assert_eq!(by_status["subresource"], "status");
    assert_eq!(by_status["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_key() {
    let server = server();
    call(&server, Method::POST, DEPLOYMENTS, config(json!(1))).await;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j"}]}}}}).to_string();
    let strategic = "application/strategic-merge-patch+json";
    let path = format!("{DEPLOYMENTS}/d");
    let (code, object) = call_typed(&server, Method::PATCH, &path, strategic, patch).await;
    assert_eq!(code, StatusCode::OK);
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"c") && names.contains(&"d"));
    let (code, status) = call_typed(&server, Method::PATCH, &path, strategic, "[1]".to_owned()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{status}");
}
