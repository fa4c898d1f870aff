//! Custom resource definitions: served while they are there, by the rules of their schemas.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{call, call_typed, embedded};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABS: &str = "/apis/example.com/v1/namespaces/default/crontabs";

fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["cron"],
                "properties": {
                    "cron": {"type": "string", "pattern": "^[0-9* ]+$"},
                    "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
                    "port": {"x-kubernetes-int-or-string": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "items": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "value": {"type": "string"}}},
                    },
                },
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
        },
    });
    json!({
        "metadata": {"name": "crontabs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "CronTab", "plural": "crontabs", "shortNames": ["ct"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                    "additionalPrinterColumns": [{"name": "Cron", "type": "string", "jsonPath": ".spec.cron"}],
                    "selectableFields": [{"jsonPath": ".spec.cron"}],
                },
                {
                    "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                },
            ],
        },
    })
}

async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "it never came");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn define(server: &Arc<ApiServer>, definition: Value) {
    let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
    let (code, body) = call(server, Method::POST, DEFINITIONS, definition).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    until(|| async {
        let (_, found) = call(server, Method::GET, &format!("{DEFINITIONS}/{name}"), Value::Null).await;
        found["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.len() == 2 && all.iter().all(|c| c["status"] == "True"))
    })
    .await;
}

fn tab(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec})
}

async fn started() -> (Arc<ApiServer>, tempfile::TempDir) {
    let (server, _store, directory) = embedded();
    server.start().await;
    (server, directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_keep_to_the_schema() {
    let (server, _directory) = started().await;
    let (code, _) = call(&server, Method::GET, TABS, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    define(&server, definition()).await;

    // Unknown fields go, defaults come, free parts stay.
    let spec = json!({"cron": "* *", "unknown": 1, "port": "http", "free": {"x": {"y": 1}}});
    let (code, made) = call(&server, Method::POST, TABS, tab("a", spec)).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(
        made["spec"],
        json!({"cron": "* *", "replicas": 2, "port": "http", "free": {"x": {"y": 1}}})
    );
    assert_eq!(made["metadata"]["generation"], 1);

    let (code, refused) = call(
        &server,
        Method::POST,
        TABS,
        tab("b", json!({"replicas": "x", "port": 1.5})),
    )
    .await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = refused["message"].as_str().unwrap();
    for part in [
        "CronTab.example.com \"b\" is invalid: ",
        "spec.cron: Required value",
        "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let (code, strict) = call(
        &server,
        Method::POST,
        &format!("{TABS}?fieldValidation=Strict"),
        tab("b", json!({"cron": "*", "unknown": 1})),
    )
    .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        strict["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.unknown\""),
        "{strict}"
    );

    // A status of its own, and the generation that follows the rest.
    let path = format!("{TABS}/a");
    let merge = "application/merge-patch+json";
    let change = json!({"spec": {"cron": "5 *"}, "status": {"replicas": 7}}).to_string();
    let (_, changed) = call_typed(&server, Method::PATCH, &path, merge, change).await;
    assert_eq!(
        (&changed["metadata"]["generation"], &changed["status"]),
        (&json!(2), &Value::Null)
    );
    let change = json!({"spec": {"cron": "6 *"}, "status": {"replicas": 7, "selector": "a=b"}}).to_string();
    let (code, changed) = call_typed(&server, Method::PATCH, &format!("{path}/status"), merge, change).await;
    assert_eq!(code, StatusCode::OK, "{changed}");
    assert_eq!(
        (&changed["spec"]["cron"], &changed["status"]["replicas"]),
        (&json!("5 *"), &json!(7))
    );
    assert_eq!(changed["metadata"]["generation"], 2);

    let (_, scale) = call(&server, Method::GET, &format!("{path}/scale"), Value::Null).await;
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 7, "selector": "a=b"}))
    );
    let change = json!({"spec": {"replicas": 4}}).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &format!("{path}/scale"), merge, change).await;
    assert_eq!(code, StatusCode::OK);
    let (_, found) = call(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(found["spec"]["replicas"], 4);
    let change = json!({"spec": {"replicas": 40}}).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &format!("{path}/scale"), merge, change).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);

    let (code, refused) = call(&server, Method::PUT, &path, tab("a", json!({"cron": "*"}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("metadata.resourceVersion"),
        "{refused}"
    );
    let strategic = "application/strategic-merge-patch+json";
    let (code, _) = call_typed(&server, Method::PATCH, &path, strategic, "{}".to_owned()).await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test(flavor = "multi_thread")]
async fn appliers_own_items_by_their_keys_and_versions_are_one() {
    let (server, _directory) = started().await;
    define(&server, definition()).await;
    let apply = async |manager: &str, items: Value| {
        let path = format!("{TABS}/a?fieldManager={manager}");
        let body = tab("a", json!({"cron": "*", "items": items})).to_string();
        let (code, made) = call_typed(&server, Method::PATCH, &path, "application/apply-patch+yaml", body).await;
        assert!(code.is_success(), "{made}");
        made["spec"]["items"].clone()
    };
    apply("one", json!([{"name": "x", "value": "1"}])).await;
    let both = apply("two", json!([{"name": "y", "value": "2"}])).await;
    assert_eq!(both, json!([{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]));
    assert_eq!(apply("one", json!([])).await, json!([{"name": "y", "value": "2"}]));

    let old = "/apis/example.com/v1beta1/namespaces/default/crontabs";
    let (_, found) = call(&server, Method::GET, &format!("{old}/a"), Value::Null).await;
    assert_eq!(
        (&found["apiVersion"], &found["spec"]["cron"]),
        (&json!("example.com/v1beta1"), &json!("*"))
    );
    let (_, list) = call(&server, Method::GET, old, Value::Null).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
    let (_, few) = call(
        &server,
        Method::GET,
        &format!("{TABS}?fieldSelector=spec.cron%3D*"),
        Value::Null,
    )
    .await;
    assert_eq!(few["items"].as_array().unwrap().len(), 1);
    let (_, none) = call(
        &server,
        Method::GET,
        &format!("{TABS}?fieldSelector=spec.cron%3Dx"),
        Value::Null,
    )
    .await;
    assert_eq!(none["items"], json!([]));
    let (code, _) = call(
        &server,
        Method::GET,
        &format!("{TABS}?fieldSelector=spec.replicas%3D1"),
        Value::Null,
    )
    .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);

    // The other version becomes the stored one: what is stored is shown as of it.
    let (_, mut stored) = call(
        &server,
        Method::GET,
        &format!("{DEFINITIONS}/crontabs.example.com"),
        Value::Null,
    )
    .await;
    stored["spec"]["versions"][0]["storage"] = json!(false);
    stored["spec"]["versions"][1]["storage"] = json!(true);
    let (code, changed) = call(
        &server,
        Method::PUT,
        &format!("{DEFINITIONS}/crontabs.example.com"),
        stored,
    )
    .await;
    assert_eq!(code, StatusCode::OK, "{changed}");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    until(|| async {
        let (_, list) = call(&server, Method::GET, old, Value::Null).await;
        let (_, found) = call(&server, Method::GET, TABS, Value::Null).await;
        assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
        found["items"][0]["apiVersion"] == "example.com/v1"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi_follow_and_deletion_takes_all() {
    let (server, _directory) = started().await;
    define(&server, definition()).await;
    let (_, list) = call(&server, Method::GET, "/apis/example.com/v1", Value::Null).await;
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "widgets",
            "widgets/status",
            "crontabs",
            "crontabs/status",
            "crontabs/scale"
        ]
    );
    let tabs = &list["resources"][2];
    assert_eq!(
        (&tabs["shortNames"], &tabs["singularName"]),
        (&json!(["ct"]), &json!("crontab"))
    );
    let (_, group) = call(&server, Method::GET, "/apis/example.com", Value::Null).await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let (_, document) = call(&server, Method::GET, "/openapi/v3/apis/example.com/v1", Value::Null).await;
    let schema = &document["components"]["schemas"]["com.example.v1.CronTab"];
    assert_eq!(schema["properties"]["spec"]["properties"]["replicas"]["maximum"], 9);
    assert_eq!(schema["properties"]["kind"]["type"], "string");

    // Two objects, one of which has something to wait for.
    for (name, finalizers) in [("free", json!([])), ("held", json!(["example.com/wait"]))] {
        let mut object = tab(name, json!({"cron": "*"}));
        object["metadata"]["finalizers"] = finalizers;
        let (code, body) = call(&server, Method::POST, TABS, object).await;
        assert_eq!(code, StatusCode::CREATED, "{body}");
    }
    let path = format!("{DEFINITIONS}/crontabs.example.com");
    let (code, going) = call(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        going["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    until(|| async {
        let (_, list) = call(&server, Method::GET, TABS, Value::Null).await;
        list["items"].as_array().is_some_and(|items| items.len() == 1)
    })
    .await;
    until(|| async {
        let (code, _) = call(&server, Method::POST, TABS, tab("new", json!({"cron": "*"}))).await;
        code == StatusCode::METHOD_NOT_ALLOWED
    })
    .await;
    let release = json!({"metadata": {"finalizers": null}}).to_string();
    let (code, _) = call_typed(
        &server,
        Method::PATCH,
        &format!("{TABS}/held"),
        "application/merge-patch+json",
        release,
    )
    .await;
    assert_eq!(code, StatusCode::OK);
    until(|| async { call(&server, Method::GET, &path, Value::Null).await.0 == StatusCode::NOT_FOUND }).await;
    until(|| async { call(&server, Method::GET, TABS, Value::Null).await.0 == StatusCode::NOT_FOUND }).await;

    // The same again finds nothing of before.
    define(&server, definition()).await;
    let (_, list) = call(&server, Method::GET, TABS, Value::Null).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_given_once_and_survive_a_restart() {
    let (server, store, _directory) = embedded();
    server.start().await;
    define(&server, definition()).await;
    let mut second = definition();
    second["metadata"]["name"] = json!("others.example.com");
    second["spec"]["names"] = json!({"kind": "Other", "plural": "others", "shortNames": ["ct"]});
    let (code, body) = call(&server, Method::POST, DEFINITIONS, second).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    let condition = async |server: &Arc<ApiServer>| {
        let (_, found) = call(
            server,
            Method::GET,
            &format!("{DEFINITIONS}/others.example.com"),
            Value::Null,
        )
        .await;
        found["status"]["conditions"][0].clone()
    };
    until(|| async { condition(&server).await["reason"] == "ShortNamesConflict" }).await;
    assert_eq!(condition(&server).await["message"], "\"ct\" is already in use");
    let others = "/apis/example.com/v1/namespaces/default/others";
    assert_eq!(
        call(&server, Method::GET, others, Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
    let (code, body) = call(&server, Method::POST, TABS, tab("a", json!({"cron": "*"}))).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    server.stop();

    let again = common::server_on(Arc::new(store));
    again.start().await;
    let (_, found) = call(&again, Method::GET, &format!("{TABS}/a"), Value::Null).await;
    assert_eq!(found["spec"]["cron"], "*");
    let (code, _) = call(
        &again,
        Method::DELETE,
        &format!("{DEFINITIONS}/crontabs.example.com"),
        Value::Null,
    )
    .await;
    assert_eq!(code, StatusCode::OK);
    until(|| async { condition(&again).await["reason"] == "NoConflicts" }).await;
    until(|| async { call(&again, Method::GET, others, Value::Null).await.0 == StatusCode::OK }).await;
}
