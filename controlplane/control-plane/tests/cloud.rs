//! A cluster in a simulated cloud, with its cloud controllers under their own roles, by the real kubectl.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{kubectl, until_ok};
use minato_control_plane::{Config, ControlPlane, Role, Workloads};
use minato_pki::{AltName, PrivateKey, new_request};
use minato_provider_interface::{CloudProvider, ClusterId, MachineSpec, OwnerTags};
use minato_provider_mock::{CloudConfig, MockCloud, MockProvider};

async fn until(kubeconfig: &Path, arguments: &[&str], reached: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, text) = kubectl(kubeconfig, "", arguments).await;
        if reached(&text) {
            return;
        }
        assert!(Instant::now() < deadline, "kubectl {arguments:?}: {text}");
    }
}

fn serving_request(name: &str, address: &str) -> String {
    let key = PrivateKey::generate().unwrap();
    let names = [AltName::Ip(address.parse().unwrap())];
    let request = new_request(&key, "system:node:n1", &["system:nodes"], &names).unwrap();
    serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(request), "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"]},
    })
    .to_string()
}

fn patch(patch: &str) -> [&str; 7] {
    [
        "patch",
        "node",
        "n1",
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_routes_and_load_balancers_follow_the_cloud() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = MockCloud::open(CloudConfig {
        network: "172.30.0.0/20".parse().unwrap(),
        zones: vec!["zone-a".to_owned()],
        region: "region-1".to_owned(),
        state_file: None,
        local: false,
    })
    .unwrap();
    let cluster = ClusterId("c1".to_owned());
    let provider = Arc::new(MockProvider::new(Arc::new(cloud.clone()), cluster.clone()));
    let mut config = Config::new("c1", directory.path().join("c1"));
    config.role = Role::Workloads(Workloads {
        cloud: Some(provider.clone()),
        ..Workloads::default()
    });
    let plane = ControlPlane::start(config).await.unwrap();
    let admin = plane.kubeconfig().to_owned();

    let spec = MachineSpec {
        owner: OwnerTags {
            cluster,
            owner_kind: "NodePool".to_owned(),
            owner_name: "pool".to_owned(),
            owner_uid: "pool".to_owned(),
        },
        name: "n1".to_owned(),
        client_token: "n1".to_owned(),
        instance_type: "m1.small".to_owned(),
        image: String::new(),
        zone: String::new(),
        user_data: String::new(),
        tags: BTreeMap::new(),
    };
    let machine = provider.machines().unwrap().create(&spec).await.unwrap();
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": [
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]}}"#;
    let (success, text) = kubectl(&admin, node, &["create", "-f", "-"]).await;
    assert!(success, "{text}");
    let ready = r#"{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
    until_ok(&admin, &patch(ready)).await;
    // It has its id, its addresses, a pod range and a route to it, and nothing keeps pods out.
    let id = machine.provider_id.to_string();
    until(&admin, &["get", "node", "n1", "-o", "jsonpath={.spec}"], |spec| {
        spec.contains(&id) && spec.contains("10.244.0.0/24") && !spec.contains("taints")
    })
    .await;
    until(&admin, &["get", "node", "n1", "-o", "jsonpath={.status}"], |status| {
        status.contains("InternalIP") && status.contains("RouteCreated")
    })
    .await;
    assert_eq!(cloud.snapshot().routes.len(), 1);

    // It may serve as what the cloud knows of it, and not as what it says of itself.
    let ip = cloud.snapshot().instances.values().next().unwrap().ip.to_string();
    let both = ["192.0.2.66", ip.as_str()].map(|ip| serde_json::json!({"type": "InternalIP", "address": ip}));
    let both = serde_json::json!({"status": {"addresses": both}}).to_string();
    until_ok(&admin, &patch(&both)).await;
    for (name, address) in [("forged", "192.0.2.66"), ("true", ip.as_str())] {
        let as_node = [
            "--as=system:node:n1",
            "--as-group=system:nodes",
            "--as-group=system:authenticated",
        ];
        let arguments: Vec<&str> = ["create", "-f", "-"].into_iter().chain(as_node).collect();
        let (success, text) = kubectl(&admin, &serving_request(name, address), &arguments).await;
        assert!(success, "{text}");
    }
    until(&admin, &["get", "csr", "true", "-o", "jsonpath={.status}"], |status| {
        status.contains("certificate")
    })
    .await;
    let (_, status) = kubectl(&admin, "", &["get", "csr", "forged", "-o", "jsonpath={.status}"]).await;
    assert_eq!(status, "{}");

    until_ok(&admin, &["create", "service", "loadbalancer", "web", "--tcp=80:8080"]).await;
    let address = [
        "get",
        "service",
        "web",
        "-o",
        "jsonpath={.status.loadBalancer.ingress[0].ip}",
    ];
    until(&admin, &address, |ip| ip.starts_with("172.30.")).await;
    let members = |cloud: &MockCloud| {
        cloud
            .snapshot()
            .load_balancers
            .values()
            .map(|lb| lb.spec.nodes.len())
            .sum::<usize>()
    };
    assert_eq!(members(&cloud), 1);
    until_ok(&admin, &["delete", "service", "web", "--timeout=20s"]).await;
    assert!(cloud.snapshot().load_balancers.is_empty());

    // The machine ends, and with it the node and its route.
    provider
        .machines()
        .unwrap()
        .terminate(&machine.provider_id)
        .await
        .unwrap();
    until_ok(
        &admin,
        &patch(r#"{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}"#),
    )
    .await;
    // It is young: the cloud is asked again before it goes.
    let deadline = Instant::now() + Duration::from_secs(60);
    while kubectl(&admin, "", &["get", "node", "n1"]).await.0 {
        assert!(Instant::now() < deadline, "the node is still there");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while !cloud.snapshot().routes.is_empty() {
        assert!(Instant::now() < deadline, "the route is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    plane.stop().await;
}
