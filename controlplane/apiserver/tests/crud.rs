//! Writes of one object at a time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{call, call_typed, server};
use http::{Method, StatusCode};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn create_sets_what_the_server_decides() {
    let server = server();
    let mut sent = config_map("a");
    sent["metadata"]["uid"] = json!("mine");
    sent["metadata"]["generation"] = json!(7);
    let (code, object) = call(&server, Method::POST, MAPS, sent).await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(object["metadata"]["name"], "a");
    assert_eq!(object["metadata"]["namespace"], "default");
    assert_eq!(object["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(object["metadata"]["creationTimestamp"].is_string());
    assert!(object["metadata"].get("generation").is_none());
    assert_eq!(revision(&object), 1);
    assert_eq!(object["data"], json!({"a": "1"}));
    let (code, read) = call(&server, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(read, object);
    let (code, status) = call(&server, Method::POST, MAPS, config_map("a")).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(status["reason"], "AlreadyExists");
    assert_eq!(status["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn names_are_generated_and_checked() {
    let server = server();
    let sent = json!({"metadata": {"generateName": "web-"}});
    let (code, object) = call(&server, Method::POST, MAPS, sent).await;
    assert_eq!(code, StatusCode::CREATED);
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let (code, status) = call(&server, Method::POST, MAPS, json!({"metadata": {}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    let mut elsewhere = config_map("x");
    elsewhere["metadata"]["namespace"] = json!("other");
    let (code, _) = call(&server, Method::POST, MAPS, elsewhere).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let mut labels = config_map("x");
    labels["metadata"]["labels"] = json!({"a b": "c"});
    let (code, status) = call(&server, Method::POST, MAPS, labels).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.labels");
}

#[tokio::test]
async fn updates_are_guarded_by_revision_and_uid() {
    let server = server();
    let (_, first) = call(&server, Method::POST, MAPS, config_map("a")).await;
    let path = format!("{MAPS}/a");
    let mut changed = first.clone();
    changed["data"]["a"] = json!("2");
    let (code, second) = call(&server, Method::PUT, &path, changed.clone()).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(second["data"]["a"], "2");
    assert!(revision(&second) > revision(&first));
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    // The same write again: stale.
    let (code, status) = call(&server, Method::PUT, &path, changed.clone()).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
    // No change, no write.
    let (_, same) = call(&server, Method::PUT, &path, second.clone()).await;
    assert_eq!(same, second);
    changed["metadata"]["resourceVersion"] = json!("");
    changed["metadata"]["uid"] = json!("other");
    let (code, status) = call(&server, Method::PUT, &path, changed).await;
    assert_eq!((code, &status["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    let (code, status) = call(&server, Method::PUT, &format!("{MAPS}/absent"), config_map("absent")).await;
    assert_eq!((code, &status["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    let (code, _) = call(&server, Method::PUT, &path, config_map("b")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": {"replicas": 9},
    })
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = server();
    let (code, created) = call(&server, Method::POST, DEPLOYMENTS, deployment()).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["metadata"]["generation"], 1);
    assert!(created["status"].get("replicas").is_none());
    let mut sent = created.clone();
    sent["status"] = json!({"replicas": 3});
    sent["spec"]["replicas"] = json!(5);
    let (_, by_status) = call(&server, Method::PUT, &format!("{DEPLOYMENTS}/d/status"), sent).await;
    assert_eq!(by_status["status"]["replicas"], 3);
    assert_eq!(by_status["spec"]["replicas"], 1);
    assert_eq!(by_status["metadata"]["generation"], 1);
    let mut sent = by_status.clone();
    sent["status"] = json!({"replicas": 8});
    sent["spec"]["replicas"] = json!(5);
    let (_, by_main) = call(&server, Method::PUT, &format!("{DEPLOYMENTS}/d"), sent).await;
    assert_eq!(by_main["status"]["replicas"], 3);
    assert_eq!(by_main["spec"]["replicas"], 5);
    assert_eq!(by_main["metadata"]["generation"], 2);
}

#[tokio::test]
async fn patches_apply_to_the_newest_state() {
    let server = server();
    call(&server, Method::POST, MAPS, config_map("a")).await;
    let path = format!("{MAPS}/a");
    let merge = json!({"data": {"a": null, "b": "2"}}).to_string();
    let (code, object) = call_typed(&server, Method::PATCH, &path, "application/merge-patch+json", merge).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(object["data"], json!({"b": "2"}));
    let patch =
        json!([{"op": "test", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/data/c", "value": "3"}]);
    let json_type = "application/json-patch+json";
    let (code, object) = call_typed(&server, Method::PATCH, &path, json_type, patch.to_string()).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(object["data"], json!({"b": "2", "c": "3"}));
    let patch = json!([{"op": "test", "path": "/data/b", "value": "x"}]).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &path, json_type, patch).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let (code, status) = call_typed(&server, Method::PATCH, &path, "text/plain", "x".to_owned()).await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(status["reason"], "UnsupportedMediaType");
    let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"z": "z"}}).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &path, "application/merge-patch+json", stale).await;
    assert_eq!(code, StatusCode::CONFLICT);
}

#[tokio::test]
async fn unknown_fields_are_reported_as_asked() {
    let server = server();
    let body = r#"{"metadata":{"name":"n"},"dat":{"x":"y"},"data":{"a":"1","a":"2"}}"#.to_owned();
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (code, status) = call_typed(&server, Method::POST, &strict, "application/json", body.clone()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(
        status["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         duplicate field \"data.a\", unknown field \"dat\""
    );
    let (code, object) = call_typed(&server, Method::POST, MAPS, "application/json", body).await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(object["data"], json!({"a": "2"}));
    assert!(object.get("dat").is_none());
    let (code, status) = call(&server, Method::POST, MAPS, json!({"metadata": {"name": 3}})).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::BAD_REQUEST, &json!("BadRequest"))
    );
    let (code, _) = call(
        &server,
        Method::POST,
        MAPS,
        json!({"kind": "Pod", "metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let yaml = "metadata:\n  name: y\ndata:\n  k: v\n".to_owned();
    let (code, _) = call_typed(&server, Method::POST, MAPS, "application/yaml", yaml).await;
    assert_eq!(code, StatusCode::CREATED);
}

#[tokio::test]
async fn dry_runs_store_nothing() {
    let server = server();
    let (code, object) = call(&server, Method::POST, &format!("{MAPS}?dryRun=All"), config_map("a")).await;
    assert_eq!(code, StatusCode::CREATED);
    assert!(object["metadata"].get("resourceVersion").is_none());
    let (code, _) = call(&server, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let (code, _) = call(&server, Method::POST, &format!("{MAPS}?dryRun=Some"), config_map("a")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn deletes_honour_preconditions_and_finalizers() {
    let server = server();
    let mut sent = config_map("a");
    sent["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let (_, created) = call(&server, Method::POST, MAPS, sent).await;
    let path = format!("{MAPS}/a");
    let wrong = json!({"preconditions": {"uid": "other"}});
    let (code, _) = call(&server, Method::DELETE, &path, wrong).await;
    assert_eq!(code, StatusCode::CONFLICT);
    let right = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    let (code, marked) = call(&server, Method::DELETE, &path, right).await;
    assert_eq!(code, StatusCode::OK);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let mut more = marked.clone();
    more["metadata"]["finalizers"] = json!(["example.com/hold", "example.com/more"]);
    let (code, status) = call(&server, Method::PUT, &path, more).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueForbidden");
    let mut done = marked.clone();
    done["metadata"]["finalizers"] = json!([]);
    let (code, _) = call(&server, Method::PUT, &path, done).await;
    assert_eq!(code, StatusCode::OK);
    let (code, _) = call(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn propagation_shows_in_finalizers() {
    let server = server();
    for (name, policy, finalizers) in [
        ("f", "Foreground", json!(["foregroundDeletion"])),
        ("o", "Orphan", json!(["orphan"])),
    ] {
        call(&server, Method::POST, MAPS, config_map(name)).await;
        let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
        let (code, object) = call(&server, Method::DELETE, &path, Value::Null).await;
        assert_eq!(code, StatusCode::OK, "{object}");
        assert_eq!(object["metadata"]["finalizers"], finalizers);
    }
    call(&server, Method::POST, MAPS, config_map("b")).await;
    let (code, status) = call(
        &server,
        Method::DELETE,
        &format!("{MAPS}/b?propagationPolicy=Background"),
        Value::Null,
    )
    .await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(status["details"]["name"], "b");
}

#[tokio::test]
async fn pods_are_given_their_grace() {
    let server = server();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: Value| {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pod["spec"]["nodeName"] = node;
        pod
    };
    call(&server, Method::POST, pods, pod("unscheduled", Value::Null)).await;
    let (code, gone) = call(&server, Method::DELETE, &format!("{pods}/unscheduled"), Value::Null).await;
    assert_eq!((code, &gone["kind"]), (StatusCode::OK, &json!("Pod")));
    let (code, _) = call(&server, Method::GET, &format!("{pods}/unscheduled"), Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);

    call(&server, Method::POST, pods, pod("running", json!("n1"))).await;
    let path = format!("{pods}/running");
    let (_, marked) = call(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    // Longer is not allowed, shorter is.
    let (_, same) = call(&server, Method::DELETE, &path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(
        same["metadata"]["resourceVersion"],
        marked["metadata"]["resourceVersion"]
    );
    let (_, shorter) = call(&server, Method::DELETE, &path, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let (code, _) = call(&server, Method::DELETE, &path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(code, StatusCode::OK);
    let (code, _) = call(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let server = server();
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut sent = config_map(name);
        sent["metadata"]["labels"] = json!({"l": label});
        call(&server, Method::POST, MAPS, sent).await;
    }
    let (code, list) = call(
        &server,
        Method::DELETE,
        &format!("{MAPS}?labelSelector=l%3Dx"),
        Value::Null,
    )
    .await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let (_, left) = call(&server, Method::GET, MAPS, Value::Null).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let server = server();
    call(&server, Method::POST, MAPS, config_map("a")).await;
    let path = format!("{MAPS}/a");
    let patches = (0..20).map(|i| {
        let patch = json!({"data": {format!("k{i}"): "v"}}).to_string();
        let (server, path) = (server.clone(), path.clone());
        async move {
            let patched = call_typed(&server, Method::PATCH, &path, "application/merge-patch+json", patch).await;
            assert_eq!(patched.0, StatusCode::OK);
        }
    });
    futures::future::join_all(patches).await;
    let (_, object) = call(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(object["data"].as_object().unwrap().len(), 21);
}
