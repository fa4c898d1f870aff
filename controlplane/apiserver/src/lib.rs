//! The Kubernetes API server: filters, endpoints, registry, discovery, OpenAPI.
//!
//! An [`ApiServer`] is a value: it is made from a configuration, a store and the embedder's choice of authenticators,
//! authorizers and admission plug-ins, and holds all its state. Any number of them live in one process.
//!
//! ```text
//! connection ─ server/listen ─┐
//!                             ├─ filters/chain (one ordered list) ─ endpoints/dispatch ─ endpoints/{get,create,…}
//! in-process client ──────────┘                                                       └─ subresources, reviews
//! ```
//!
//! Handlers are written once, over [`minato_rules::ResourceInfo`]. May depend on: machinery crates, storage, auth,
//! admission, streams.

mod allocators;
mod bootstrap;
mod cluster_cache;
mod config;
mod crd;
mod discovery;
mod endpoints;
mod filters;
mod health;
mod list_body;
mod metrics;
mod negotiate;
mod openapi;
mod quota;
mod registry;
mod request;
mod request_info;
mod response;
mod reviews;
mod server;
mod subresources;

pub use config::{ApiServerConfig, Deps, ServiceConfig};
pub use registry::{CustomKind, Registry};
pub use request::{ApiRequest, Query, Warnings};
pub use request_info::RequestInfo;
pub use response::{Body, BoxError, Response};
pub use server::{ApiServer, ApiService, ConnectionInfo, ServeHandle, ServerTls, TlsError};
pub use subresources::KubeletAccess;
