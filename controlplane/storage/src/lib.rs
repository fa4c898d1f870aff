//! The [`Store`] trait with its embedded and etcd back ends, and the watch cache that serves reads from one of them.
//!
//! Nothing above this crate knows which database is below it. Only the API server and the fleet (to create and drop a
//! tenant's prefix) may link it. May depend on: machinery crates, tokio, the database clients.

pub mod cache;
mod embedded;
mod etcd;
mod hub;
pub mod key;
pub mod object;
mod store;

pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use etcd::{EtcdOptions, EtcdStore, EtcdTls};
pub use store::{
    Commit, CommitError, Compare, Event, EventKind, Expect, KeyValue, LastChange, ListPage, ListRequest, Op, Read,
    Store, StoreError, Txn, WatchItem, WatchStream,
};
