//! How a kubelet gets its certificates, by the real kubectl.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{kubeconfig_of, kubectl, start, until_ok};
use minato_pki::{AltName, PrivateKey, new_request};
use serde_json::{Value, json};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

fn request(name: &str, signer: &str, text: &str, usage: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(text), "signerName": signer, "expirationSeconds": 7200,
            "usages": ["digital signature", usage], "username": "system:admin", "groups": ["system:masters"]},
    })
}

async fn create(kubeconfig: &Path, object: &Value) -> (bool, String) {
    kubectl(kubeconfig, &object.to_string(), &["create", "-f", "-"]).await
}

/// Waits for a field of a request; returns it decoded.
async fn field(kubeconfig: &Path, name: &str, path: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    let output = format!("jsonpath={{{path}}}");
    loop {
        let (success, text) = kubectl(kubeconfig, "", &["get", "csr", name, "-o", &output]).await;
        if success && !text.is_empty() {
            return text;
        }
        assert!(Instant::now() < deadline, "no {path} in {name}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_token_becomes_a_node() {
    let directory = tempfile::tempdir().unwrap();
    let plane = start(directory.path()).await;
    let admin = plane.kubeconfig().to_owned();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
    });
    let (success, text) = create(&admin, &secret).await;
    assert!(success, "{text}");
    let token = kubeconfig_of(&plane, directory.path(), &json!({"token": "abcdef.0123456789abcdef"}));
    until_ok(&token, &["auth", "whoami"]).await;

    // The token asks for a client certificate, and gets it. Who it is, the server says.
    let key = PrivateKey::generate().unwrap();
    let asked = new_request(&key, "system:node:n1", &["system:nodes"], &[]).unwrap();
    let (success, text) = create(&token, &request("client", CLIENT, &asked, "client auth")).await;
    assert!(success, "{text}");
    assert_eq!(
        field(&admin, "client", ".spec.username").await,
        "system:bootstrap:abcdef"
    );
    let certificate = field(&token, "client", ".status.certificate").await;
    assert_eq!(
        field(&admin, "client", ".status.conditions[0].reason").await,
        "AutoApproved"
    );
    let user = json!({"client-certificate-data": certificate, "client-key-data": STANDARD.encode(key.to_pem())});
    let node = kubeconfig_of(&plane, directory.path(), &user);
    let whoami = until_ok(&node, &["auth", "whoami"]).await;
    assert!(
        whoami.contains("system:node:n1") && whoami.contains("system:nodes"),
        "{whoami}"
    );

    // As a node it registers, and renews its certificate; another node's it does not get.
    let (success, text) = create(
        &node,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
    )
    .await;
    assert!(success, "{text}");
    create(&node, &request("renewal", CLIENT, &asked, "client auth")).await;
    field(&node, "renewal", ".status.certificate").await;
    let other = new_request(&key, "system:node:n2", &["system:nodes"], &[]).unwrap();
    create(&node, &request("other", CLIENT, &other, "client auth")).await;

    // It serves as its addresses, once it has them.
    let addresses = [AltName::Dns("n1".to_owned()), AltName::Ip("192.0.2.7".parse().unwrap())];
    let asked = new_request(&key, "system:node:n1", &["system:nodes"], &addresses).unwrap();
    let (success, text) = create(&node, &request("serving", SERVING, &asked, "server auth")).await;
    assert!(success, "{text}");
    let stolen = [AltName::Dns("kubernetes.default.svc".to_owned())];
    let asked = new_request(&key, "system:node:n1", &["system:nodes"], &stolen).unwrap();
    create(&node, &request("stolen", SERVING, &asked, "server auth")).await;
    let (_, text) = kubectl(&admin, "", &["get", "csr", "serving", "-o", "jsonpath={.status}"]).await;
    assert!(!text.contains("certificate"), "{text}");
    let status = json!({"status": {"addresses": [
        {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "192.0.2.7"},
        {"type": "InternalDNS", "address": "kubernetes.default.svc"},
    ]}});
    until_ok(
        &admin,
        &[
            "patch",
            "node",
            "n1",
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ],
    )
    .await;
    field(&admin, "serving", ".status.certificate").await;

    // What an approver lets through the signer still checks.
    let odd = new_request(&key, "admin", &["system:nodes"], &[]).unwrap();
    create(&admin, &request("odd", CLIENT, &odd, "client auth")).await;
    until_ok(&admin, &["certificate", "approve", "odd"]).await;
    assert_eq!(field(&admin, "odd", ".status.conditions[1].type").await, "Failed");
    assert_eq!(
        field(&admin, "odd", ".status.conditions[1].message").await,
        "subject common name does not begin with system:node:"
    );
    // Whoever asks for what is not theirs still waits for a human, if admission let them ask.
    for name in ["other", "stolen"] {
        let (_, text) = kubectl(&admin, "", &["get", "csr", name, "-o", "jsonpath={.status}"]).await;
        assert!(text == "{}" || text.contains("NotFound"), "{name}: {text}");
    }
    plane.stop().await;
}
