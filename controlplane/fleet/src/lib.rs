//! The management plane's controllers: `Cluster` objects into running control planes, `NodePool` objects into machines.
//!
//! ```text
//! Cluster  ─ cluster/ ─┬─ hosting/ (a process per control plane: own user, cgroup, directory)
//!                      ├─ Clouds (the way from the nodes' network to it)
//!                      └─ Secret <cluster>-kubeconfig
//! NodePool ─ pool/ ────┬─ the cloud provider's machines, each recorded before it is asked for
//!                      └─ the tenant's own API: join tokens, labels, draining
//! ```
//!
//! Both kinds are ordinary API objects (`kinds`), reconciled through a `kube::Client` like any other. May depend on:
//! machinery, admission (contract), pki, runtime, the store (to make and drop a tenant's prefix), and the provider interface; never on a provider or the API server.

mod cgroup;
mod clouds;
mod cluster;
mod error;
mod hosting;
mod kinds;
mod manager;
mod pool;
mod process;
mod tenants;

pub use cgroup::{Cgroup, Limits};
pub use clouds::Clouds;
pub use error::Error;
pub use hosting::{
    EndHandler, EtcdHosting, EtcdHostingConfig, Hosted, Hosting, HostingError, ProcessHosting, ProcessHostingConfig,
    Tenant,
};
pub use kinds::{DeletionProtection, resources};
pub use manager::Fleet;
pub use process::{Detached, Launch, ProcessError};
