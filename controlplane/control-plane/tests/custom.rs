//! Custom resources by the real kubectl, with all components running.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{kubectl, start, until_ok};
use serde_json::{Value, json};

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"kind": "CronTab", "plural": "crontabs", "singular": "crontab", "shortNames": ["ct"],
                "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["cronSpec"], "properties": {
                        "cronSpec": {"type": "string", "description": "When it runs."},
                        "replicas": {"type": "integer", "minimum": 1, "default": 1},
                        "tags": {"type": "array", "items": {"type": "string"}},
                    }},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [
                    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn tab(name: &str, spec: Value) -> String {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_custom_resources() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "serviceaccount", "default"]).await;
    let ok = async |input: &str, arguments: &[&str]| {
        let (success, text) = kubectl(&admin, input, arguments).await;
        assert!(success, "kubectl {arguments:?}: {text}");
        text
    };
    let fails = async |input: &str, arguments: &[&str], why: &str| {
        let (success, text) = kubectl(&admin, input, arguments).await;
        assert!(!success && text.contains(why), "kubectl {arguments:?}: {text}");
    };
    let create = ["create", "-f", "-"];
    let mut wrong = definition();
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tags"] =
        json!({"type": "array"});
    fails(&wrong.to_string(), &create, "items: Required value: must be specified").await;
    ok(&definition().to_string(), &create).await;
    ok(
        "",
        &[
            "wait",
            "--for=condition=Established",
            "crd/crontabs.stable.example.com",
            "--timeout=20s",
        ],
    )
    .await;
    let listed = ok("", &["api-resources", "--api-group=stable.example.com"]).await;
    assert!(
        listed.contains("crontabs") && listed.contains("ct") && listed.contains("CronTab"),
        "{listed}"
    );

    let explained = ok("", &["explain", "crontab.spec"]).await;
    assert!(
        explained.contains("cronSpec\t<string> -required-") && explained.contains("When it runs."),
        "{explained}"
    );
    ok(&tab("a", json!({"cronSpec": "* * *"})), &["apply", "-f", "-"]).await;
    let rows = ok("", &["get", "ct"]).await;
    let lines: Vec<Vec<&str>> = rows.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "SPEC", "REPLICAS", "AGE"]);
    assert_eq!(lines[1][..6], ["a", "*", "*", "*", "1", lines[1][5]]);
    assert!(ok("", &["get", "all"]).await.contains("crontab.stable.example.com/a"));
    fails(
        &tab("b", json!({"replicas": 0})),
        &create,
        "spec.cronSpec: Required value",
    )
    .await;
    fails(
        &tab("b", json!({"cronSpec": "*", "typo": 1})),
        &create,
        "unknown field \"spec.typo\"",
    )
    .await;
    assert!(
        ok(&tab("a", json!({"cronSpec": "5"})), &["apply", "-f", "-"])
            .await
            .contains("configured")
    );
    ok(
        &tab("a", json!({"cronSpec": "5", "tags": ["x"]})),
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
    )
    .await;
    ok(
        "",
        &["patch", "ct", "a", "--type=merge", "-p", r#"{"spec":{"tags":["y"]}}"#],
    )
    .await;
    ok(
        "",
        &[
            "patch",
            "ct",
            "a",
            "--type=json",
            "-p",
            r#"[{"op":"add","path":"/spec/tags/-","value":"z"}]"#,
        ],
    )
    .await;
    assert_eq!(
        ok("", &["get", "ct", "a", "-o", "jsonpath={.spec.tags}"]).await,
        r#"["y","z"]"#
    );
    ok("", &["scale", "ct", "a", "--replicas=3"]).await;
    assert_eq!(
        ok("", &["get", "ct", "a", "-o", "jsonpath={.spec.replicas}"]).await,
        "3"
    );
    ok("", &["label", "ct", "a", "x=y"]).await;
    assert!(ok("", &["describe", "ct", "a"]).await.contains("Cron Spec:"));
    ok("", &["auth", "can-i", "delete", "crontabs.stable.example.com"]).await;

    // Quotas count them, and a namespace that goes takes them along.
    ok("", &["create", "namespace", "team"]).await;
    ok(
        "",
        &[
            "create",
            "quota",
            "one",
            "-n",
            "team",
            "--hard=count/crontabs.stable.example.com=1",
        ],
    )
    .await;
    let hard = "--for=jsonpath={.status.hard.count/crontabs\\.stable\\.example\\.com}=1";
    ok("", &["wait", hard, "quota/one", "-n", "team", "--timeout=20s"]).await;
    let in_team = ["create", "-n", "team", "-f", "-"];
    ok(&tab("a", json!({"cronSpec": "*"})), &in_team).await;
    fails(&tab("b", json!({"cronSpec": "*"})), &in_team, "exceeded quota: one").await;
    ok("", &["delete", "namespace", "team", "--timeout=60s"]).await;
    assert_eq!(ok("", &["get", "ct", "-A", "-o", "name"]).await.lines().count(), 1);

    ok("", &["delete", "crd", "crontabs.stable.example.com", "--timeout=60s"]).await;
    fails(
        "",
        &["get", "crontabs.stable.example.com"],
        "the server doesn't have a resource type",
    )
    .await;
    plane.stop().await;
}
