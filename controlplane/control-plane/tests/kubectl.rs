//! The real kubectl against a control plane, and several control planes in one process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::kubectl_of;
use minato_control_plane::{Config, ControlPlane};

async fn start(directory: &Path, name: &str) -> ControlPlane {
    ControlPlane::start(Config::new(name, directory.join(name)))
        .await
        .unwrap()
}

async fn kubectl(plane: &ControlPlane, input: &str, arguments: &[&str]) -> (bool, String) {
    kubectl_of(plane).said(input, arguments).await
}

async fn ok(plane: &ControlPlane, input: &str, arguments: &[&str]) -> String {
    kubectl_of(plane).ok(input, arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_reads_patches_and_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path(), "c1").await;
    assert_eq!(ok(&plane, "", &["get", "--raw", "/readyz"]).await, "ok");
    assert!(ok(&plane, "", &["api-resources"]).await.contains("deployments"));
    assert!(
        ok(&plane, "", &["get", "namespaces", "-o", "name"])
            .await
            .contains("namespace/kube-system")
    );
    ok(&plane, "", &["create", "configmap", "a", "--from-literal=k=1"]).await;
    let value = ["get", "configmap", "a", "-o", "jsonpath={.data.k}"];
    assert_eq!(ok(&plane, "", &value).await, "1");
    ok(
        &plane,
        "",
        &["patch", "cm", "a", "--type=merge", "-p", r#"{"data":{"k":"2"}}"#],
    )
    .await;
    assert_eq!(ok(&plane, "", &value).await, "2");
    let manifest = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"x":"y"}}"#;
    let applied = ok(
        &plane,
        manifest,
        &["apply", "--server-side", "--validate=false", "-f", "-"],
    )
    .await;
    assert!(applied.contains("serverside-applied"), "{applied}");
    let service = ok(
        &plane,
        "",
        &[
            "create",
            "service",
            "clusterip",
            "s",
            "--tcp=80:80",
            "-o",
            "jsonpath={.spec.clusterIP}",
        ],
    )
    .await;
    assert!(service.starts_with("10.96."), "{service}");
    assert!(
        ok(&plane, "", &["explain", "pod.spec.containers.image"])
            .await
            .contains("FIELD: image <string>")
    );
    ok(
        &plane,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"x":"y"}}"#,
        &["apply", "-f", "-"],
    )
    .await;
    let unknown = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"dat":{"x":"y"}}"#;
    let (fine, text) = kubectl(&plane, unknown, &["apply", "-f", "-"]).await;
    assert!(!fine && text.contains("unknown field \"dat\""), "{text}");
    let (found, text) = kubectl(&plane, "", &["get", "configmap", "missing"]).await;
    assert!(
        !found && text.contains(r#"Error from server (NotFound): configmaps "missing" not found"#),
        "{text}"
    );
    // Controllers: a namespace gets its service account and goes away with its content; a Deployment makes pods.
    ok(&plane, "", &["create", "namespace", "team"]).await;
    ok(
        &plane,
        "",
        &[
            "wait",
            "serviceaccount/default",
            "-n",
            "team",
            "--for=create",
            "--timeout=10s",
        ],
    )
    .await;
    ok(
        &plane,
        "",
        &["create", "deployment", "web", "-n", "team", "--image=x", "--replicas=2"],
    )
    .await;
    let replicas = "--for=jsonpath={.status.replicas}=2";
    ok(
        &plane,
        "",
        &["wait", "deployment/web", "-n", "team", replicas, "--timeout=10s"],
    )
    .await;
    ok(&plane, "", &["delete", "namespace", "team", "--timeout=20s"]).await;
    // `delete` waits for the deletion to be seen, which takes a watch.
    ok(&plane, "", &["delete", "configmap", "a", "--timeout=10s"]).await;
    let (found, _) = kubectl(&plane, "", &value).await;
    assert!(!found);
    plane.stop().await;
}

/// Events of a raw watch: type, name, value of `data.k`.
fn events(stream: &str) -> Vec<(String, String, String)> {
    let field = |v: &serde_json::Value, pointer: &str| {
        v.pointer(pointer)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    stream
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is one event"))
        .map(|v: serde_json::Value| {
            (
                field(&v, "/type"),
                field(&v, "/object/metadata/name"),
                field(&v, "/object/data/k"),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_stream_the_list_and_show_selector_edges() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path(), "c1").await;
    let make = |name: &str, k: &str, label: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}},"data":{{"k":"{k}"}}}}"#
        )
    };
    let apply = ["apply", "--server-side", "--validate=false", "-f", "-"];
    ok(&plane, &make("a", "1", "in"), &apply).await;
    ok(&plane, &make("b", "1", "out"), &apply).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&labelSelector=l%3Din";
    let list = format!(
        "{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    );
    let text = ok(&plane, "", &["get", "--raw", &list]).await;
    let event = |t: &str, n: &str, k: &str| (t.to_owned(), n.to_owned(), k.to_owned());
    // The bookmark that ends the list, and perhaps the one that comes before the end of a watch.
    let mut all = events(&text);
    all.dedup();
    assert_eq!(all, [event("ADDED", "a", "1"), event("BOOKMARK", "", "")]);
    assert!(text.contains(r#""k8s.io/initial-events-end":"true""#), "{text}");
    // What follows the bookmark's revision: b enters the selection, a leaves it, with its last state inside.
    let bookmark: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let revision = bookmark
        .pointer("/object/metadata/resourceVersion")
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned();
    ok(&plane, &make("b", "2", "in"), &apply).await;
    ok(&plane, &make("a", "2", "out"), &apply).await;
    ok(&plane, &make("b", "3", "in"), &apply).await;
    let live = format!("{path}&resourceVersion={revision}&timeoutSeconds=1");
    let text = ok(&plane, "", &["get", "--raw", &live]).await;
    assert_eq!(
        events(&text),
        [
            event("ADDED", "b", "2"),
            event("DELETED", "a", "1"),
            event("MODIFIED", "b", "3")
        ]
    );
    let (fine, text) = kubectl(&plane, "", &["get", "--raw", &format!("{path}&sendInitialEvents=true")]).await;
    assert!(!fine && text.contains("resourceVersionMatch"), "{text}");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_control_planes_live_in_one_process_and_five_may_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut planes = Vec::new();
    for n in 0..10 {
        planes.push(start(directory.path(), &format!("c{n}")).await);
    }
    for (n, plane) in planes.iter().enumerate() {
        ok(plane, "", &["create", "configmap", &format!("of-{n}")]).await;
    }
    let rest = planes.split_off(5);
    for plane in planes {
        plane.stop().await;
    }
    for (n, plane) in rest.iter().enumerate() {
        let names = ok(plane, "", &["get", "configmaps", "-o", "name"]).await;
        let made: Vec<&str> = names.lines().filter(|l| l.contains("/of-")).collect();
        assert_eq!(
            made,
            [format!("configmap/of-{}", n + 5)],
            "each sees its own objects only"
        );
        ok(plane, "", &["create", "configmap", "after"]).await;
    }
    // Another cluster's credential is worth nothing here: its certificate is of another authority.
    let stolen = std::fs::read_to_string(rest[0].kubeconfig()).unwrap();
    let moved = stolen.replace(&rest[0].address().to_string(), &rest[1].address().to_string());
    let file = directory.path().join("stolen");
    std::fs::write(&file, moved).unwrap();
    let thief = kubectl_of(&rest[1]).with_kubeconfig(&file);
    let (success, _) = thief
        .said("", &["--insecure-skip-tls-verify", "get", "configmaps"])
        .await;
    assert!(!success);
    for plane in rest {
        plane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path(), "c1").await;
    ok(&plane, "", &["create", "namespace", "team"]).await;
    plane.stop().await;
    // The file is free once the last connection's task has ended.
    let plane = loop {
        let config = Config::new("c1", directory.path().join("c1"));
        match ControlPlane::start(config).await {
            Ok(plane) => break plane,
            Err(minato_control_plane::StartError::Store(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(
        ok(&plane, "", &["get", "namespace", "team", "-o", "name"])
            .await
            .contains("namespace/team")
    );
    plane.stop().await;
}
