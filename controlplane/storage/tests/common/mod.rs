//! Both stores, for tests of what they have in common.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::time::Duration;

use bytes::Bytes;
use minato_meta::Revision;
use minato_storage::{
    Compare, EmbeddedOptions, EmbeddedStore, EtcdOptions, EtcdStore, Expect, ListRequest, Op, Store, StoreError, Txn,
};
use minato_test_support::Etcd;

/// A place where stores are made, each of them empty.
pub(crate) trait Backend {
    type Store: Store + Clone;
    async fn open(&mut self) -> Self::Store;
}

/// Files in a directory.
pub(crate) struct Embedded {
    directory: tempfile::TempDir,
    opened: u32,
}

impl Embedded {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            opened: 0,
        }
    }
}

impl Backend for Embedded {
    type Store = EmbeddedStore;

    async fn open(&mut self) -> EmbeddedStore {
        self.opened += 1;
        let path = self.directory.path().join(format!("{}.redb", self.opened));
        EmbeddedStore::open(&path, EmbeddedOptions::default()).unwrap()
    }
}

/// Prefixes of one etcd.
pub(crate) struct InEtcd {
    pub(crate) etcd: Etcd,
    opened: u32,
}

impl InEtcd {
    pub(crate) fn new() -> Self {
        Self {
            etcd: Etcd::start(),
            opened: 0,
        }
    }

    /// Another handle of a prefix.
    pub(crate) async fn at(&self, prefix: &str) -> EtcdStore {
        connect(EtcdOptions::new(vec![self.etcd.endpoint()], prefix)).await
    }
}

impl Backend for InEtcd {
    type Store = EtcdStore;

    async fn open(&mut self) -> EtcdStore {
        self.opened += 1;
        self.at(&format!("/minato/{}", self.opened)).await
    }
}

/// A member that has just been started may not have its leader yet.
pub(crate) async fn connect(options: EtcdOptions) -> EtcdStore {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match EtcdStore::connect(options.clone()).await {
            Ok(store) => return store,
            Err(StoreError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

pub(crate) fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

/// A put under a condition.
pub(crate) fn put_if(key: &str, value: &str, expect: Expect) -> Txn {
    let compare = Compare {
        key: key.into(),
        expect,
    };
    Txn {
        compare: vec![compare],
        ops: vec![put(key, value)],
    }
}

pub(crate) async fn commit(store: &impl Store, ops: Vec<Op>) -> Revision {
    store.commit(Txn { compare: vec![], ops }).await.unwrap().revision
}

pub(crate) fn under(prefix: &str, revision: Option<Revision>) -> ListRequest {
    ListRequest {
        prefix: prefix.into(),
        revision,
        ..ListRequest::default()
    }
}

/// The same tests for each store: `both!(runtime flavour; name, ...)`.
#[macro_export]
macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::common::Embedded::new()).await;
            })+
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::common::InEtcd::new()).await;
            })+
        }
    };
}
