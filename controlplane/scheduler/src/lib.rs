//! The scheduler: picks a node for every pod that names this scheduler and has none.
//!
//! ```text
//! informers ── pods without a node ──> queue (active, back-off, unschedulable)
//!     │                                   │ one pod at a time
//!     └── nodes, pods with a node ──> cache ──> framework: PreFilter, Filter, PreScore, Score, (PostFilter)
//!                                        ▲              │
//!                                        └── assume ────┴──> Reserve, Permit, PreBind, Bind (concurrent)
//! ```
//!
//! Decisions are made one after the other on a cache that counts a pod from the moment it is decided; the requests that
//! carry them out run side by side. Sees the cluster through a `kube::Client` alone. May depend on: machinery,
//! `minato-runtime`. Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>.

mod bind;
mod cache;
mod config;
mod cycle;
mod framework;
mod owners;
mod plugins;
mod pod;
mod preemption;
mod queue;
mod resources;
mod scheduler;

pub use config::{Configuration, ConfigurationError};
pub use scheduler::{Scheduler, SchedulerConfig, SchedulerHandle};
