//! Parts of objects with paths of their own, and reviews.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{call, call_typed, server};
use http::{Method, StatusCode};
use minato_apiserver::ApiServer;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(server: &Arc<ApiServer>, name: &str) -> Value {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let (code, pod) = call(server, Method::POST, PODS, pod).await;
    assert_eq!(code, StatusCode::CREATED, "{pod}");
    pod
}

async fn set_status(server: &Arc<ApiServer>, path: &str, status: Value) {
    let patch = json!({"status": status}).to_string();
    let path = format!("{path}/status");
    let (code, body) = call_typed(server, Method::PATCH, &path, "application/merge-patch+json", patch).await;
    assert_eq!(code, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = server();
    pod(&server, "p").await;
    let binding = |node: &str| json!({"metadata": {"name": "p", "annotations": {"x": "y"}}, "target": {"kind": "Node", "name": node}});
    let (code, status) = call(&server, Method::POST, &format!("{PODS}/p/binding"), binding("n1")).await;
    assert_eq!(
        (code, &status["status"]),
        (StatusCode::CREATED, &json!("Success")),
        "{status}"
    );
    let (_, bound) = call(&server, Method::GET, &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["metadata"]["annotations"], json!({"x": "y"}));
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
    let (code, status) = call(&server, Method::POST, &format!("{PODS}/p/binding"), binding("n2")).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("pod p is already assigned to node \"n1\"")
    );
    let (code, _) = call(&server, Method::POST, &format!("{PODS}/p/binding"), binding("")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    // The older path.
    let mut q = pod(&server, "q").await;
    q = json!({"metadata": {"name": q["metadata"]["name"], "uid": "other"}, "target": {"name": "n1"}});
    let bindings = "/api/v1/namespaces/default/bindings";
    let (code, _) = call(&server, Method::POST, bindings, q.clone()).await;
    assert_eq!(code, StatusCode::CONFLICT);
    q["metadata"]["uid"] = json!("");
    let (code, _) = call(&server, Method::POST, bindings, q).await;
    assert_eq!(code, StatusCode::CREATED);
}

#[tokio::test]
async fn scale_is_read_and_written() {
    let server = server();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    call(&server, Method::POST, path, deployment).await;
    let scale_path = format!("{path}/d/scale");
    let (code, mut scale) = call(&server, Method::GET, &scale_path, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(scale["spec"]["replicas"], 2);
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=b"}));
    scale["spec"]["replicas"] = json!(5);
    let (code, updated) = call(&server, Method::PUT, &scale_path, scale.clone()).await;
    assert_eq!((code, &updated["spec"]["replicas"]), (StatusCode::OK, &json!(5)));
    let (code, _) = call(&server, Method::PUT, &scale_path, scale.clone()).await;
    assert_eq!(code, StatusCode::CONFLICT, "a stale scale");
    let merge = "application/merge-patch+json";
    let patch = json!({"spec": {"replicas": 7}}).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &scale_path, merge, patch).await;
    assert_eq!(code, StatusCode::OK);
    let (_, deployment) = call(&server, Method::GET, &format!("{path}/d"), Value::Null).await;
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]),
        (&json!(7), &json!(3))
    );
    let negative = json!({"spec": {"replicas": -1}}).to_string();
    let (code, _) = call_typed(&server, Method::PATCH, &scale_path, merge, negative).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn budgets_refuse_evictions() {
    let server = server();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    call(&server, Method::POST, budgets, budget).await;
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for name in ["p", "q"] {
        pod(&server, name).await;
        set_status(&server, &format!("{PODS}/{name}"), running.clone()).await;
    }
    let evict = |name: &str| (format!("{PODS}/{name}/eviction"), json!({"metadata": {"name": name}}));
    // The controller has not looked at the budget yet.
    let (path, body) = evict("p");
    let (code, status) = call(&server, Method::POST, &path, body.clone()).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS, "{status}");
    assert_eq!(status["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert_eq!(status["details"]["retryAfterSeconds"], 10);
    let allowed = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2});
    set_status(&server, &format!("{budgets}/b"), allowed).await;
    let (code, status) = call(&server, Method::POST, &path, body).await;
    assert_eq!(
        (code, &status["status"]),
        (StatusCode::CREATED, &json!("Success")),
        "{status}"
    );
    let (code, _) = call(&server, Method::GET, &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let (_, budget) = call(&server, Method::GET, &format!("{budgets}/b"), Value::Null).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    assert_eq!(budget["status"]["conditions"][0]["status"], "False");
    let (path, body) = evict("q");
    let (code, status) = call(&server, Method::POST, &path, body.clone()).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("TooManyRequests"))
    );
    assert_eq!(
        status["message"],
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    // Two were healthy when it was counted, and one of them has gone since.
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "The disruption budget b does not allow evicting pods currently"
    );
    assert_eq!(status["details"].get("retryAfterSeconds"), None);

    // A dry run asks the budget and spends nothing.
    let allowed = json!({"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "disruptedPods": null});
    set_status(&server, &format!("{budgets}/b"), allowed).await;
    let (code, _) = call(&server, Method::POST, &format!("{path}?dryRun=All"), body.clone()).await;
    assert_eq!(code, StatusCode::CREATED);
    let (_, budget) = call(&server, Method::GET, &format!("{budgets}/b"), Value::Null).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
    assert_eq!(budget["status"].get("disruptedPods"), None);
    // Neither does an eviction of another pod of that name.
    let other = json!({"metadata": {"name": "q"}, "deleteOptions": {"preconditions": {"uid": "other"}}});
    let (code, status) = call(&server, Method::POST, &path, other).await;
    assert_eq!((code, &status["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    let (_, budget) = call(&server, Method::GET, &format!("{budgets}/b"), Value::Null).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
    let (code, _) = call(&server, Method::POST, &path, json!({"metadata": {"name": "p"}})).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);

    // Two budgets for one pod are one too many, but not for pods whose end disturbs nobody.
    let second = json!({"metadata": {"name": "c"}, "spec": {"minAvailable": 0, "selector": {}}});
    call(&server, Method::POST, budgets, second).await;
    let (code, status) = call(&server, Method::POST, &path, body.clone()).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        status["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    for phase in ["Pending", "Succeeded"] {
        pod(&server, "idle").await;
        set_status(&server, &format!("{PODS}/idle"), json!({"phase": phase})).await;
        let (path, body) = evict("idle");
        let (code, status) = call(&server, Method::POST, &path, body).await;
        assert_eq!(code, StatusCode::CREATED, "{phase} {status}");
        let (code, _) = call(&server, Method::GET, &format!("{PODS}/idle"), Value::Null).await;
        assert_eq!(code, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_goes_and_an_unready_one_is_free() {
    let server = server();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    call(&server, Method::POST, budgets, budget).await;
    pod(&server, "p").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    call(&server, Method::POST, &format!("{PODS}/p/binding"), binding).await;
    // Nobody has counted yet; a pod that is not ready goes all the same.
    set_status(&server, &format!("{PODS}/p"), json!({"phase": "Running"})).await;
    let body = json!({"metadata": {"name": "p"}});
    let (code, status) = call(&server, Method::POST, &format!("{PODS}/p/eviction"), body).await;
    assert_eq!(code, StatusCode::CREATED, "{status}");
    let (_, pod) = call(&server, Method::GET, &format!("{PODS}/p"), Value::Null).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let told = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(
        (&told["status"], &told["reason"], &told["message"]),
        (
            &json!("True"),
            &json!("EvictionByEvictionAPI"),
            &json!("Eviction API: evicting")
        )
    );
    let (_, budget) = call(&server, Method::GET, &format!("{budgets}/b"), Value::Null).await;
    assert_eq!(budget["status"].get("disruptedPods"), None);
}

#[tokio::test]
async fn tokens_are_issued_for_what_exists() {
    let server = server();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    call(&server, Method::POST, accounts, json!({"metadata": {"name": "sa"}})).await;
    let path = format!("{accounts}/sa/token");
    let (code, answer) = call(&server, Method::POST, &path, json!({"spec": {"audiences": ["vault"]}})).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert!(answer["status"]["token"].as_str().unwrap().contains("vault"));
    let (code, _) = call(&server, Method::POST, &path, json!({"spec": {"expirationSeconds": 5}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "absent"}}});
    let (code, _) = call(&server, Method::POST, &path, bound).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    pod(&server, "other").await;
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "other"}}});
    let (code, _) = call(&server, Method::POST, &path, bound).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "a pod of another account");
    let (code, _) = call(&server, Method::POST, &format!("{accounts}/absent/token"), json!({})).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn namespaces_go_when_finalized() {
    let server = server();
    let namespaces = "/api/v1/namespaces";
    let sent = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}});
    call(&server, Method::POST, namespaces, sent).await;
    let path = format!("{namespaces}/n");
    let (code, going) = call(&server, Method::DELETE, &path, Value::Null).await;
    assert_eq!(
        (code, &going["status"]["phase"]),
        (StatusCode::OK, &json!("Terminating"))
    );
    let mut finalized = going.clone();
    finalized["spec"]["finalizers"] = json!([]);
    finalized["metadata"]["labels"] = json!({"not": "taken"});
    let (code, _) = call(&server, Method::PUT, &format!("{path}/finalize"), finalized).await;
    assert_eq!(code, StatusCode::OK);
    let (code, _) = call(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn ephemeral_containers_are_all_that_their_path_takes() {
    let server = server();
    let mut pod = pod(&server, "p").await;
    pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox"}]);
    pod["spec"]["containers"][0]["image"] = json!("changed");
    let (code, after) = call(&server, Method::PUT, &format!("{PODS}/p/ephemeralcontainers"), pod).await;
    assert_eq!(code, StatusCode::OK, "{after}");
    assert_eq!(after["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!(after["spec"]["containers"][0]["image"], "i");
    let (code, _) = call(&server, Method::GET, &format!("{PODS}/p/nothing"), Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn reviews_answer_and_store_nothing() {
    let server = server();
    let authentication = "/apis/authentication.k8s.io/v1";
    let (code, me) = call(
        &server,
        Method::POST,
        &format!("{authentication}/selfsubjectreviews"),
        json!({}),
    )
    .await;
    assert_eq!(
        (code, &me["status"]["userInfo"]["username"]),
        (StatusCode::CREATED, &json!("admin")),
        "{me}"
    );
    let review = json!({"spec": {"token": "jane"}});
    let (_, answer) = call(&server, Method::POST, &format!("{authentication}/tokenreviews"), review).await;
    assert_eq!(
        (
            &answer["status"]["authenticated"],
            &answer["status"]["user"]["username"]
        ),
        (&json!(true), &json!("jane"))
    );
    let review = json!({"spec": {"token": "wrong"}});
    let (_, answer) = call(&server, Method::POST, &format!("{authentication}/tokenreviews"), review).await;
    assert_eq!(answer["status"]["error"], "the token is not valid");
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (user, allowed) in [("jane", true), ("nobody", false)] {
        let review = json!({"spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let (code, answer) = call(&server, Method::POST, path, review).await;
        assert_eq!(
            (code, &answer["status"]["allowed"]),
            (StatusCode::CREATED, &json!(allowed))
        );
    }
    let (code, _) = call(&server, Method::POST, path, json!({"spec": {"user": "x"}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let (code, _) = call(&server, Method::GET, path, Value::Null).await;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_nodes_serve_is_refused_in_the_usual_words() {
    let server = server();
    pod(&server, "p").await;
    for (path, code, message) in [
        ("exec", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("exec?stdout=1&container=x", 400, "container x is not valid for pod p"),
        ("exec?stdout=1", 400, "pod p does not have a host assigned"),
    ] {
        let (found, status) = call(&server, Method::POST, &format!("{PODS}/p/{path}"), Value::Null).await;
        assert_eq!((found.as_u16(), &status["message"]), (code, &json!(message)), "{path}");
    }
    let (code, _) = call(&server, Method::GET, "/tunnel/v1/connect", Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}
