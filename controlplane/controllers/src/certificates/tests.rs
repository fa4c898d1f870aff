use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::certificates::v1::CertificateSigningRequest;
use minato_api::k8s::core::v1::Node;
use minato_pki::{AltName, CertificateRequest, PrivateKey, new_request};
use serde_json::json;

use super::approve::{Kind, Reserved, may_serve, recognize, unknown_to_cloud};
use super::clean::goes_at;
use super::signer::life;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

fn asked(common_name: &str, names: &[AltName]) -> CertificateRequest {
    let key = PrivateKey::generate().unwrap();
    CertificateRequest::parse(&new_request(&key, common_name, &["system:nodes"], names).unwrap()).unwrap()
}

fn request(signer: &str, user: &str, group: &str, usage: &str) -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"request": "", "signerName": signer, "username": user, "groups": [group],
            "usages": ["digital signature", usage]},
    }))
    .unwrap()
}

fn node(name: &str, addresses: &[(&str, &str)]) -> Arc<Node> {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|(t, a)| json!({"type": t, "address": a}))
        .collect();
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap())
}

fn dns(name: &str) -> AltName {
    AltName::Dns(name.to_owned())
}

fn ip(text: &str) -> AltName {
    AltName::Ip(text.parse().unwrap())
}

#[test]
fn knows_what_kubelets_ask_for() {
    let n1 = asked("system:node:n1", &[]);
    let of = |user: &str| recognize(&request(CLIENT, user, "system:bootstrappers", "client auth").spec, &n1);
    assert_eq!(of("system:bootstrap:abcdef"), Some(Kind::Client));
    assert_eq!(of("system:node:n1"), Some(Kind::SelfClient));
    // Of another signer, with a wrong usage or with names, it is not a kubelet's client certificate.
    let other = request(
        "kubernetes.io/kube-apiserver-client",
        "system:node:n1",
        "system:nodes",
        "client auth",
    );
    assert_eq!(recognize(&other.spec, &n1), None);
    assert_eq!(recognize(&request(CLIENT, "x", "g", "server auth").spec, &n1), None);
    let named = asked("system:node:n1", &[dns("n1")]);
    assert_eq!(recognize(&request(CLIENT, "x", "g", "client auth").spec, &named), None);

    let serving = |user: &str, group: &str| recognize(&request(SERVING, user, group, "server auth").spec, &named);
    assert_eq!(
        serving("system:node:n1", "system:nodes"),
        Some(Kind::Serving("n1".to_owned()))
    );
    assert_eq!(serving("system:node:n2", "system:nodes"), None);
    assert_eq!(serving("system:node:n1", "system:authenticated"), None);
}

#[test]
fn a_node_serves_as_its_own_addresses_and_nobody_elses() {
    let n1 = node(
        "n1",
        &[
            ("Hostname", "n1"),
            ("InternalIP", "10.0.0.1"),
            ("InternalDNS", "kubernetes.default"),
            ("ExternalIP", "10.96.0.1"),
        ],
    );
    let n2 = node("n2", &[("InternalIP", "10.0.0.2"), ("Hostname", "both")]);
    let n3 = node(
        "n3",
        &[
            ("Hostname", "both"),
            ("InternalIP", "10.0.0.3"),
            ("InternalIP", "127.0.0.1"),
        ],
    );
    let all = [n1.clone(), n2, n3.clone()];
    let services = ["10.96.0.0/16".parse().unwrap()];
    let names = ["api.example.com".to_owned()];
    let addresses = ["10.0.0.3".parse().unwrap()];
    let reserved = Reserved {
        services: &services,
        names: &names,
        addresses: &addresses,
    };
    let may = |node: &Node, names: &[AltName]| may_serve(&asked("system:node:n", names), node, &all, &reserved);
    assert_eq!(may(&n1, &[dns("N1"), ip("10.0.0.1")]), Ok(()));
    assert_eq!(
        may(&n1, &[dns("n1"), ip("10.0.0.2")]).unwrap_err(),
        "10.0.0.2 is not an address of the node"
    );
    assert_eq!(
        may(&n1, &[dns("10.0.0.1")]).unwrap_err(),
        "10.0.0.1 is not an address of the node"
    );
    assert_eq!(
        may(&n3, &[dns("both")]).unwrap_err(),
        "both is also an address of another node"
    );
    // Names and addresses of the API server are never a node's, whatever it claims.
    for (node, name) in [
        (&n1, dns("kubernetes.default")),
        (&n1, ip("10.96.0.1")),
        (&n3, ip("10.0.0.3")),
        (&n3, ip("127.0.0.1")),
        (&n1, dns("api.example.com")),
        (&n1, dns("*.example.com")),
    ] {
        assert!(may(node, &[name]).unwrap_err().ends_with("is not a node's"));
    }
}

#[test]
fn lives_as_long_as_asked_for_within_bounds() {
    let hours = |n: u64| Duration::from_secs(3600 * n);
    assert_eq!(life(None, hours(24)), hours(24));
    assert_eq!(life(Some(7200), hours(24)), hours(2));
    assert_eq!(life(Some(60), hours(24)), Duration::from_secs(600));
    assert_eq!(life(Some(i32::MAX), hours(24)), hours(24));
    assert_eq!(life(Some(-5), hours(24)), hours(24));
}

#[test]
fn answered_requests_go_after_an_hour_and_others_after_a_day() {
    let mut sent = request(CLIENT, "u", "g", "client auth");
    let at = |text: &str| Some(text.parse().unwrap());
    assert_eq!(goes_at(&sent), at("2026-01-02T00:00:00Z"));
    let mut status =
        json!({"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T05:00:00Z"}]});
    sent.status = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(goes_at(&sent), None);
    status["certificate"] = json!("YQ==");
    sent.status = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(goes_at(&sent), at("2026-01-01T06:00:00Z"));
    let denied =
        json!({"conditions": [{"type": "Denied", "status": "True", "lastUpdateTime": "2026-01-01T07:00:00Z"}]});
    sent.status = serde_json::from_value(denied).unwrap();
    assert_eq!(goes_at(&sent), at("2026-01-01T08:00:00Z"));
}

#[test]
fn the_cloud_has_the_last_word_on_addresses() {
    let request = asked("system:node:n1", &[dns("N1"), ip("10.0.0.1"), ip("fd00::1")]);
    let known = ["n1", "10.0.0.1", "fd00:0::1"].map(str::to_owned);
    assert_eq!(unknown_to_cloud(&request, &known), None);
    assert_eq!(unknown_to_cloud(&request, &known[1..]), Some("N1".to_owned()));
    assert_eq!(unknown_to_cloud(&request, &known[..2]), Some("fd00::1".to_owned()));
}
