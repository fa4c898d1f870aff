//! Tokens, roles and strangers, by the real kubectl.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{kubeconfig_of, kubectl, start, until_ok};

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_roles_decide() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    let token = until_ok(&admin, &["create", "token", "default"]).await;
    let user = serde_json::json!({"token": token.trim()});
    let account = kubeconfig_of(&plane, directory.path(), &user);
    let (_, text) = kubectl(&account, "", &["auth", "whoami"]).await;
    assert!(text.contains("system:serviceaccount:default:default"), "{text}");
    let (success, text) = kubectl(&account, "", &["get", "pods"]).await;
    assert!(!success);
    assert!(
        text.contains(
            r#"User "system:serviceaccount:default:default" cannot list resource "pods" in API group "" in the namespace "default""#
        ),
        "{text}"
    );
    until_ok(
        &admin,
        &[
            "create",
            "rolebinding",
            "v",
            "--clusterrole=view",
            "--serviceaccount=default:default",
        ],
    )
    .await;
    until_ok(&account, &["get", "pods"]).await;
    let (allowed, _) = kubectl(&account, "", &["auth", "can-i", "list", "pods"]).await;
    let (secrets, _) = kubectl(&account, "", &["auth", "can-i", "get", "secrets"]).await;
    let (elsewhere, _) = kubectl(&account, "", &["auth", "can-i", "list", "pods", "-n", "kube-system"]).await;
    assert!(allowed && !secrets && !elsewhere);
    let (_, rules) = kubectl(&account, "", &["auth", "can-i", "--list"]).await;
    assert!(rules.contains("endpointslices.discovery.k8s.io"), "{rules}");
    // Who holds a token may learn how to verify it.
    let (_, document) = kubectl(&account, "", &["get", "--raw", "/.well-known/openid-configuration"]).await;
    assert!(
        document.contains(r#""id_token_signing_alg_values_supported":["ES256"]"#),
        "{document}"
    );
    let (_, keys) = kubectl(&account, "", &["get", "--raw", "/openid/v1/jwks"]).await;
    assert!(keys.contains(r#""crv":"P-256""#), "{keys}");
    // Impersonation goes through the same roles.
    let (success, text) = kubectl(
        &account,
        "",
        &["get", "pods", "--as", "root", "--as-group", "system:masters"],
    )
    .await;
    assert!(!success && text.contains("cannot impersonate"), "{text}");
    // With the account goes its token.
    until_ok(&admin, &["delete", "serviceaccount", "default"]).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (success, text) = kubectl(&account, "", &["get", "pods"]).await;
        if !success {
            assert!(text.contains("Unauthorized") || text.contains("logged in"), "{text}");
            break;
        }
        assert!(Instant::now() < deadline);
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gives_what_they_do_not_have() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    let token = until_ok(&admin, &["create", "token", "default"]).await;
    let account = kubeconfig_of(&plane, directory.path(), &serde_json::json!({"token": token.trim()}));
    // The admin of a namespace may write roles and bindings there, within what it holds itself.
    let binding = [
        "create",
        "rolebinding",
        "a",
        "--clusterrole=admin",
        "--serviceaccount=default:default",
    ];
    until_ok(&admin, &binding).await;
    until_ok(&account, &["create", "role", "fine", "--verb=get", "--resource=pods"]).await;
    until_ok(&account, &["create", "rolebinding", "fine", "--role=fine", "--user=u"]).await;
    let refused = "is attempting to grant RBAC permissions not currently held";
    let everything = |kind: &str, name: &str| {
        format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"{kind}","metadata":{{"name":"{name}"}},
                "rules":[{{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]}}"#
        )
    };
    // By a new role, by an old one through each way of writing, and by binding to a greater one.
    for (input, arguments) in [
        (everything("Role", "new"), vec!["create", "-f", "-"]),
        (everything("Role", "fine"), vec!["replace", "-f", "-"]),
        (
            everything("Role", "fine"),
            vec!["apply", "--server-side", "--force-conflicts", "-f", "-"],
        ),
        (
            String::new(),
            vec![
                "patch",
                "role",
                "fine",
                "--type=json",
                "-p",
                r#"[{"op":"replace","path":"/rules/0/verbs","value":["*"]},{"op":"replace","path":"/rules/0/resources","value":["*"]},{"op":"replace","path":"/rules/0/apiGroups","value":["*"]}]"#,
            ],
        ),
        (
            String::new(),
            vec![
                "create",
                "rolebinding",
                "up",
                "--clusterrole=cluster-admin",
                "--serviceaccount=default:default",
            ],
        ),
    ] {
        let (success, text) = kubectl(&account, &input, &arguments).await;
        assert!(!success && text.contains(refused), "kubectl {arguments:?}: {text}");
    }
    let (secrets, _) = kubectl(&account, "", &["auth", "can-i", "*", "*"]).await;
    assert!(!secrets);
    // Who holds everything may give it.
    let (success, text) = kubectl(&admin, &everything("Role", "all"), &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_tokens_open_the_door_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
    });
    let (success, text) = kubectl(&admin, &secret.to_string(), &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    let user = serde_json::json!({"token": "abcdef.0123456789abcdef"});
    let node = kubeconfig_of(&plane, directory.path(), &user);
    let text = until_ok(&node, &["auth", "whoami"]).await;
    assert!(
        text.contains("system:bootstrap:abcdef") && text.contains("system:bootstrappers"),
        "{text}"
    );
    let (success, _) = kubectl(
        &node,
        "",
        &[
            "auth",
            "can-i",
            "create",
            "certificatesigningrequests.certificates.k8s.io",
        ],
    )
    .await;
    assert!(success);
    let (success, _) = kubectl(&node, "", &["get", "nodes"]).await;
    assert!(!success);
    let guess = serde_json::json!({"token": "abcdef.fedcba9876543210"});
    let guess = kubeconfig_of(&plane, directory.path(), &guess);
    let (success, text) = kubectl(&guess, "", &["get", "--raw", "/version"]).await;
    assert!(
        !success && (text.contains("Unauthorized") || text.contains("logged in")),
        "{text}"
    );
    // Strangers see health and version.
    let authority = directory.path().join("c1/pki/ca.crt");
    for (path, expected) in [
        ("/version", "200"),
        ("/healthz", "200"),
        ("/api", "403"),
        ("/apis", "403"),
        ("/metrics", "403"),
        ("/api/v1/namespaces/default/pods", "403"),
    ] {
        let url = format!("https://{}{path}", plane.address());
        let authority = authority.clone();
        let output = tokio::task::spawn_blocking(move || {
            let mut command = Command::new("curl");
            command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]);
            command.arg(authority).arg(url).output().expect("curl is installed")
        });
        let code = String::from_utf8(output.await.unwrap().stdout).unwrap();
        assert_eq!(code, expected, "{path}");
    }
    plane.stop().await;
}
