//! Control planes whose objects are in an etcd.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::kubectl_of;
use minato_control_plane::{Config, ControlPlane, EtcdOptions, Storage};
use minato_test_support::Etcd;

async fn start(etcd: &Etcd, directory: &Path, prefix: &str) -> ControlPlane {
    let mut config = Config::new("c1", directory);
    config.storage = Storage::Etcd(EtcdOptions::new(vec![etcd.endpoint()], prefix));
    ControlPlane::start(config).await.unwrap()
}

/// A second API server of the same cluster has the same keys.
fn copy_of_the_keys(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let status = std::process::Command::new("cp")
        .arg("-r")
        .arg(from.join("pki"))
        .arg(to)
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_of_one_cluster_are_one_and_another_cluster_is_apart() {
    let directory = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let first = start(&etcd, &one, "/minato/c1").await;
    copy_of_the_keys(&one, &two);
    let second = start(&etcd, &two, "/minato/c1").await;
    let other = start(&etcd, &directory.path().join("other"), "/minato/c2").await;
    let (a, b) = (kubectl_of(&first), kubectl_of(&second));

    // What one was told the other shows at once, also when another cluster has moved the store on.
    for n in 0..5 {
        a.ok("", &["create", "configmap", &format!("m{n}"), "--from-literal=k=v"])
            .await;
        kubectl_of(&other)
            .ok("", &["create", "configmap", &format!("theirs{n}")])
            .await;
        b.ok("", &["get", "configmap", &format!("m{n}")]).await;
        assert!(
            b.ok("", &["get", "configmaps", "-o", "name"])
                .await
                .contains(&format!("configmap/m{n}\n"))
        );
    }
    assert!(
        !kubectl_of(&other)
            .ok("", &["get", "configmaps", "-o", "name"])
            .await
            .contains("/m0")
    );

    // Addresses are given once, whoever gives them.
    let create = |n: usize| {
        let kubectl = if n.is_multiple_of(2) { a.clone() } else { b.clone() };
        async move {
            let address = "jsonpath={.spec.clusterIP}";
            let name = format!("s{n}");
            kubectl
                .ok(
                    "",
                    &["create", "service", "clusterip", &name, "--tcp=80", "-o", address],
                )
                .await
        }
    };
    let given = futures::future::join_all((0..12).map(create)).await;
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 12, "{given:?}");

    // Controllers of either do the work.
    b.ok("", &["create", "deployment", "web", "--image=x", "--replicas=2"])
        .await;
    let made = [
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.replicas}=2",
        "--timeout=20s",
    ];
    a.ok("", &made).await;
    assert_eq!(a.ok("", &["get", "pods", "-o", "name"]).await.lines().count(), 2);
    first.stop().await;
    b.ok("", &["scale", "deployment", "web", "--replicas=3"]).await;
    b.ok(
        "",
        &[
            "wait",
            "deployment/web",
            "--for=jsonpath={.status.replicas}=3",
            "--timeout=20s",
        ],
    )
    .await;
    second.stop().await;
    other.stop().await;
}
