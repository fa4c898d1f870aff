//! What admission makes of what tenants send, by the real kubectl.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{kubectl, start, until_ok};
use serde_json::{Value, json};

fn pod(name: &str, extra: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_accounts_tolerations_and_priorities() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "serviceaccount", "default"]).await;
    let create = |object: Value| {
        let admin = admin.clone();
        async move { kubectl(&admin, &object.to_string(), &["create", "-o", "json", "-f", "-"]).await }
    };

    let (success, text) = create(pod("plain", json!({}))).await;
    assert!(success, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(made["spec"]["volumes"][0]["name"], mount["name"]);
    let sources = made["spec"]["volumes"][0]["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0]["serviceAccountToken"]["expirationSeconds"], 3607);
    let tolerations: Vec<&str> = made["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        tolerations,
        ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    );
    assert_eq!(
        (&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );

    let (success, text) = create(pod(
        "important",
        json!({"priorityClassName": "system-cluster-critical"}),
    ))
    .await;
    assert!(success, "{text}");
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap()["spec"]["priority"],
        2_000_000_000
    );

    for (object, why) in [
        (
            pod("a", json!({"priorityClassName": "none"})),
            "no PriorityClass with name none was found",
        ),
        (pod("a", json!({"priority": 7})), "must not be provided in pod spec"),
        (
            pod("a", json!({"serviceAccountName": "none"})),
            "serviceaccount \"none\" not found",
        ),
    ] {
        let (success, text) = create(object).await;
        assert!(!success && text.contains("forbidden") && text.contains(why), "{text}");
    }
    let (success, text) = kubectl(&admin, "", &["create", "configmap", "x", "-n", "nowhere"]).await;
    assert!(!success && text.contains("namespaces \"nowhere\" not found"), "{text}");
    let (success, text) = kubectl(&admin, "", &["delete", "namespace", "kube-system"]).await;
    assert!(!success && text.contains("this namespace may not be deleted"), "{text}");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_ranges_fill_in_and_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "serviceaccount", "default"]).await;
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"},
        "spec": {"limits": [{
            "type": "Container",
            "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "50m"},
        }]},
    });
    let (success, text) = kubectl(&admin, &range.to_string(), &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    let with = |name: &str, resources: Value| {
        pod(
            name,
            json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}),
        )
    };
    // (given, what becomes of it)
    let cases = [
        (
            "none",
            json!({}),
            json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}),
        ),
        (
            "limit",
            json!({"limits": {"cpu": "800m"}}),
            json!({"limits": {"cpu": "800m"}, "requests": {"cpu": "800m"}}),
        ),
    ];
    for (name, given, expected) in cases {
        let arguments = ["create", "-o", "json", "-f", "-"];
        let (success, text) = kubectl(&admin, &with(name, given).to_string(), &arguments).await;
        assert!(success, "{text}");
        let made: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(made["spec"]["containers"][0]["resources"], expected);
    }
    let large = with("large", json!({"limits": {"cpu": "2"}}));
    let (success, text) = kubectl(&admin, &large.to_string(), &["create", "-f", "-"]).await;
    assert!(
        !success && text.contains("maximum cpu usage per Container is 1, but limit is 2"),
        "{text}"
    );
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_hold_while_they_are_recounted() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "serviceaccount", "default"]).await;
    let (success, text) = kubectl(
        &admin,
        "",
        &["create", "quota", "ten", "--hard=pods=10,count/secrets=1"],
    )
    .await;
    assert!(success, "{text}");
    let in_force = [
        "wait",
        "--for=jsonpath={.status.hard.pods}=10",
        "quota/ten",
        "--timeout=20s",
    ];
    until_ok(&admin, &in_force).await;

    // Twice: in the second round places have been given back.
    for round in 0..2 {
        let creates = (0..25).map(|i| {
            let server = plane.server().clone();
            let name = format!("p{round}-{i}");
            tokio::spawn(async move { common::create_pod(&server, &pod(&name, json!({}))).await })
        });
        let mut made = 0;
        for create in creates.collect::<Vec<_>>() {
            let (code, body) = create.await.unwrap();
            assert!(
                code == 201 || code == 403 && body.contains("exceeded quota: ten"),
                "{body}"
            );
            made += i32::from(code == 201);
        }
        assert_eq!(made, 10);
        let (success, text) = kubectl(&admin, "", &["delete", "pods", "--all", "--grace-period=0", "--force"]).await;
        assert!(success, "{text}");
        let given_back = [
            "wait",
            "--for=jsonpath={.status.used.pods}=0",
            "quota/ten",
            "--timeout=20s",
        ];
        until_ok(&admin, &given_back).await;
    }
    let (success, text) = kubectl(&admin, "", &["create", "secret", "generic", "a"]).await;
    assert!(success, "{text}");
    let (success, text) = kubectl(&admin, "", &["create", "secret", "generic", "b"]).await;
    let why = "secrets \"b\" is forbidden: exceeded quota: ten, requested: count/secrets=1, used: count/secrets=1, limited: \
               count/secrets=1";
    assert!(!success && text.contains(why), "{text}");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_of_pod_security_hold() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "serviceaccount", "default"]).await;
    let (success, text) = kubectl(&admin, &pod("plain", json!({})).to_string(), &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    let label = [
        "label",
        "namespace",
        "default",
        "pod-security.kubernetes.io/enforce=restricted",
    ];
    let (success, text) = kubectl(&admin, "", &label).await;
    assert!(
        success
            && text.contains(
                "Warning: existing pods in namespace \"default\" violate the new PodSecurity enforce level \
                 \"restricted:latest\""
            )
            && text.contains("Warning: plain: allowPrivilegeEscalation != false, unrestricted capabilities"),
        "{text}"
    );
    let (success, text) = kubectl(&admin, &pod("x", json!({})).to_string(), &["create", "-f", "-"]).await;
    assert!(
        !success
            && text.contains(
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false \
                 (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
            ),
        "{text}"
    );
    let (success, text) = kubectl(&admin, "", &["create", "deployment", "web", "--image=i"]).await;
    assert!(
        success && text.contains("Warning: would violate PodSecurity \"restricted:latest\""),
        "{text}"
    );
    let bad = [
        "label",
        "namespace",
        "default",
        "pod-security.kubernetes.io/warn=strict",
    ];
    let (success, text) = kubectl(&admin, "", &bad).await;
    assert!(
        !success && text.contains("must be one of privileged, baseline, restricted"),
        "{text}"
    );
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_and_finalizers_are_given() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    until_ok(&admin, &["get", "namespace", "default"]).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let (success, text) = kubectl(&admin, &class.to_string(), &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let (success, text) = kubectl(&admin, &claim.to_string(), &["create", "-o", "json", "-f", "-"]).await;
    assert!(success, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let grow = [
        "patch",
        "pvc",
        "c",
        "-p",
        r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#,
    ];
    let (success, text) = kubectl(&admin, "", &grow).await;
    assert!(!success && text.contains("orbidden"), "{text}");
    plane.stop().await;
}
