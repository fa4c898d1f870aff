//! What is etcd's own: certificates, users and roles.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{commit, connect, put};
use etcd_client::{Permission, PermissionType};
use minato_pki::{Authority, Issued, Serving};
use minato_storage::{EtcdOptions, EtcdStore, EtcdTls, Store, StoreError};
use minato_test_support::{Certificates, Etcd};

fn options(etcd: &Etcd, authority: &Authority, user: &str, prefix: &str) -> EtcdOptions {
    let issued = authority.issue_client(user, &[], Duration::from_secs(3_600)).unwrap();
    let mut options = EtcdOptions::new(vec![etcd.endpoint()], prefix);
    options.tls = Some(EtcdTls {
        authority: authority.certificate().to_owned(),
        certificate: issued.certificate,
        key: issued.key,
    });
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_reaches_its_own_prefix_only() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::generate("etcd").unwrap();
    let serving = Serving {
        names: vec!["localhost".to_owned()],
        addresses: vec!["127.0.0.1".parse().unwrap()],
    };
    let Issued { certificate, key, .. } = authority.issue_serving("etcd", &serving).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let etcd = Etcd::start_tls(Certificates {
        authority: file("ca.crt", authority.certificate()),
        certificate: file("tls.crt", &certificate),
        key: file("tls.key", &key),
    });
    // Before authentication is on, everybody may do everything, with a certificate.
    connect(options(&etcd, &authority, "root", "/minato/a")).await;
    let mut root = options(&etcd, &authority, "root", "/").connect().await.unwrap();
    root.user_add("root", "x", None).await.unwrap();
    root.role_add("root").await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    for name in ["a", "b"] {
        let (from, to) = (format!("/minato/{name}/"), format!("/minato/{name}0"));
        root.user_add(name, "x", None).await.unwrap();
        root.role_add(name).await.unwrap();
        let all = Permission::new(PermissionType::Readwrite, from).with_range_end(to);
        root.role_grant_permission(name, all).await.unwrap();
        root.user_grant_role(name, name).await.unwrap();
    }
    root.auth_enable().await.unwrap();
    let a = connect(options(&etcd, &authority, "a", "/minato/a")).await;
    let made = commit(&a, vec![put("/registry/a/x", "1")]).await;
    assert_eq!(a.get("/registry/a/x").await.unwrap().kv.unwrap().mod_revision, made);
    assert_eq!(a.last_change("/registry/a/").await.unwrap().changed, made);
    let refused = EtcdStore::connect(options(&etcd, &authority, "b", "/minato/a")).await;
    let Err(StoreError::Unavailable(text)) = refused.map(drop) else {
        panic!("another cluster's prefix is open")
    };
    assert!(text.contains("permission denied"), "{text}");
    let mut plain = options(&etcd, &authority, "a", "/minato/a");
    plain.tls = None;
    plain.timeout = Duration::from_millis(500);
    assert!(EtcdStore::connect(plain).await.is_err());
}
