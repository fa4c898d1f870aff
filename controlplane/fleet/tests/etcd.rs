//! Clusters in a real etcd with certificates and authentication.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use minato_fleet::{EtcdHosting, EtcdHostingConfig};
use minato_pki::{Authority, Serving};
use minato_storage::{EtcdOptions, EtcdStore, EtcdTls, Op, Store, Txn};
use minato_test_support::{Certificates, Etcd};

fn options(etcd: &Etcd, prefix: &str, tls: EtcdTls) -> EtcdOptions {
    let mut options = EtcdOptions::new(vec![etcd.endpoint()], prefix);
    options.tls = Some(tls);
    options
}

async fn names(root: &Client) -> (Vec<String>, Vec<String>) {
    let users = root.auth_client().user_list().await.unwrap();
    let roles = root.auth_client().role_list().await.unwrap();
    (users.users().to_vec(), roles.roles().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_gets_its_own_part_of_etcd_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::generate("etcd").unwrap();
    let serving = Serving {
        names: vec!["localhost".to_owned()],
        addresses: vec!["127.0.0.1".parse().unwrap()],
    };
    let issued = authority.issue_serving("etcd", &serving).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = file("ca.crt", authority.certificate());
    let etcd = Etcd::start_tls(Certificates {
        authority: ca.clone(),
        certificate: file("tls.crt", &issued.certificate),
        key: file("tls.key", &issued.key),
    });
    let hosting = EtcdHosting::new(EtcdHostingConfig {
        endpoints: vec![etcd.endpoint()],
        authority: ca,
        authority_key: file("ca.key", &authority.key_pem()),
    });
    let root = authority.issue_client("root", &[], Duration::from_secs(600)).unwrap();
    let root = EtcdTls {
        authority: authority.certificate().to_owned(),
        certificate: root.certificate,
        key: root.key,
    };
    let root = options(&etcd, "/", root).connect().await.unwrap();

    // Without authentication nobody is kept apart.
    let error = hosting.provision("a").await.map(drop).unwrap_err().to_string();
    assert!(error.contains("authentication is off"), "{error}");
    root.auth_client().user_add("root", "x", None).await.unwrap();
    root.auth_client().role_add("root").await.unwrap();
    root.auth_client().user_grant_role("root", "root").await.unwrap();
    root.auth_client().auth_enable().await.unwrap();

    // Again, as after a crash half-way: what is there is no hindrance.
    let a = hosting.provision("a").await.unwrap();
    let b = hosting.provision("b").await.unwrap();
    for (prefix, tls) in [("/minato/a", &a), ("/minato/b", &b)] {
        let store = EtcdStore::connect(options(&etcd, prefix, tls.clone())).await.unwrap();
        let put = Op::Put {
            key: "/registry/x/y".to_owned(),
            value: "1".into(),
            ttl: None,
        };
        let txn = Txn {
            compare: vec![],
            ops: vec![put],
        };
        store.commit(txn).await.unwrap();
    }
    assert!(
        EtcdStore::connect(options(&etcd, "/minato/b", a.clone()))
            .await
            .is_err()
    );

    hosting.remove("a").await.unwrap();
    hosting.remove("a").await.unwrap();
    assert!(EtcdStore::connect(options(&etcd, "/minato/a", a)).await.is_err());
    let (users, roles) = names(&root).await;
    assert_eq!(
        (users, roles),
        (
            vec!["minato-b".into(), "root".into()],
            vec!["minato-b".into(), "root".into()]
        )
    );
    let below = GetOptions::new().with_prefix().with_keys_only();
    let left = root.kv_client().get("/minato/", Some(below)).await.unwrap();
    assert!(!left.kvs().is_empty());
    assert!(
        left.kvs()
            .iter()
            .all(|kv| kv.key_str().unwrap().starts_with("/minato/b/"))
    );
}
