//! Other forms of objects: tables and metadata alone, of one, of many, and of what changes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{call, server_with, user};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use minato_apiserver::{ApiServer, Body};
use minato_storage::cache::CacheOptions;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const ONE: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                   application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const MANY: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

async fn open(server: &Arc<ApiServer>, path: &str, accept: &str) -> (StatusCode, Body) {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
    (response.status(), response.into_body())
}

async fn get(server: &Arc<ApiServer>, path: &str, accept: &str) -> (StatusCode, Value) {
    let (code, body) = open(server, path, accept).await;
    let bytes = body.collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

async fn with_maps(names: &[&str]) -> Arc<ApiServer> {
    let server = server_with(Arc::new(common::MemoryStore::default()), CacheOptions::default());
    for name in names {
        let map = json!({"metadata": {"name": name, "labels": {"l": "1"}}, "data": {"k": "v"}});
        assert_eq!(call(&server, Method::POST, MAPS, map).await.0, StatusCode::CREATED);
    }
    server
}

fn pick<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn tables_of_one_and_of_many() {
    let server = with_maps(&["a", "b", "c"]).await;
    let (code, table) = get(&server, &format!("{MAPS}?limit=2"), TABLE).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(pick(&table, "/kind"), "Table");
    assert_eq!(pick(&table, "/apiVersion"), "meta.k8s.io/v1");
    assert_eq!(pick(&table, "/metadata/remainingItemCount"), 1);
    assert!(pick(&table, "/metadata/continue").is_string());
    assert_eq!(pick(&table, "/rows").as_array().unwrap().len(), 2);
    let columns = pick(&table, "/columnDefinitions").as_array().unwrap();
    assert_eq!(pick(&table, "/rows/0/cells").as_array().unwrap().len(), columns.len());
    assert_eq!(pick(&table, "/rows/1/cells/0"), "b");
    assert_eq!(pick(&table, "/rows/1/object/kind"), "PartialObjectMetadata");
    assert_eq!(pick(&table, "/rows/1/object/metadata/labels/l"), "1");
    assert!(pick(&table, "/rows/1/object/data").is_null());

    let (_, table) = get(&server, &format!("{MAPS}/a?includeObject=Object"), TABLE).await;
    assert_eq!(pick(&table, "/rows/0/object/data/k"), "v");
    assert_eq!(
        pick(&table, "/metadata/resourceVersion"),
        pick(&table, "/rows/0/object/metadata/resourceVersion")
    );
    let (_, table) = get(&server, &format!("{MAPS}?includeObject=None"), TABLE).await;
    assert!(pick(&table, "/rows/2/cells/0") == "c" && pick(&table, "/rows/2/object").is_null());
    let (code, status) = get(&server, &format!("{MAPS}?includeObject=All"), TABLE).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let message = pick(&status, "/message").as_str().unwrap();
    assert!(message.contains(r#"includeObject: Invalid value: "All""#), "{message}");
    let (code, _) = get(&server, &format!("{MAPS}/absent"), TABLE).await;
    assert_eq!(code, StatusCode::NOT_FOUND);

    let older = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let (_, table) = get(&server, MAPS, older).await;
    assert_eq!(pick(&table, "/apiVersion"), "meta.k8s.io/v1beta1");
    let (code, _) = get(&server, MAPS, "application/json;as=Chart;v=v1;g=meta.k8s.io").await;
    assert_eq!(code, StatusCode::NOT_ACCEPTABLE);
    let (_, body) = open(&server, MAPS, "application/yaml;as=Table;v=v1;g=meta.k8s.io").await;
    let yaml = body.collect().await.unwrap().to_bytes();
    let table: Value = serde_yaml_ng::from_slice(&yaml).unwrap();
    assert!(pick(&table, "/kind") == "Table" && pick(&table, "/rows/0/cells/0") == "a");
}

#[tokio::test]
async fn metadata_alone() {
    let server = with_maps(&["a", "b"]).await;
    let (_, list) = get(&server, MAPS, MANY).await;
    assert_eq!(pick(&list, "/kind"), "PartialObjectMetadataList");
    assert_eq!(pick(&list, "/apiVersion"), "meta.k8s.io/v1");
    let (_, one) = get(&server, &format!("{MAPS}/b"), ONE).await;
    assert_eq!(pick(&list, "/items/1"), &one);
    assert_eq!(pick(&one, "/kind"), "PartialObjectMetadata");
    assert_eq!(pick(&one, "/metadata/name"), "b");
    assert!(pick(&one, "/data").is_null());
    // A list has no metadata of one object.
    let only_one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(get(&server, MAPS, only_one).await.0, StatusCode::NOT_ACCEPTABLE);
}

struct Events(Body, Vec<u8>);

impl Events {
    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.1.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.0.frame()).await;
            let data = frame.unwrap().unwrap().unwrap().into_data().unwrap();
            self.1.extend_from_slice(&data);
        }
    }
}

#[tokio::test]
async fn watches_of_rows_say_the_columns_once() {
    let server = with_maps(&["a", "b"]).await;
    let list = format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    let (_, body) = open(&server, &list, TABLE).await;
    let mut tables = Events(body, Vec::new());
    let (_, body) = open(&server, &list, ONE).await;
    let mut metadata = Events(body, Vec::new());
    let first = tables.next().await;
    assert_eq!(pick(&first, "/type"), "ADDED");
    assert!(!pick(&first, "/object/columnDefinitions").as_array().unwrap().is_empty());
    let second = tables.next().await;
    assert_eq!(pick(&second, "/object/rows/0/cells/0"), "b");
    assert_eq!(pick(&second, "/object/columnDefinitions"), &json!([]));
    assert_eq!(pick(&tables.next().await, "/object/kind"), "Table", "a bookmark");
    for name in ["a", "b", ""] {
        let event = metadata.next().await;
        assert_eq!(pick(&event, "/object/kind"), "PartialObjectMetadata");
        assert_eq!(pick(&event, "/object/metadata/name").as_str().unwrap_or_default(), name);
    }
    assert_eq!(
        call(&server, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await.0,
        StatusCode::OK
    );
    let gone = tables.next().await;
    assert_eq!(pick(&gone, "/type"), "DELETED");
    assert_eq!(pick(&gone, "/object/rows/0/object/metadata/name"), "a");
    let gone = metadata.next().await;
    assert_eq!(pick(&gone, "/type"), "DELETED");
    assert!(pick(&gone, "/object/data").is_null() && pick(&gone, "/object/metadata/name") == "a");
}
