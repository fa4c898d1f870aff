//! What every component of a control plane (and the agents on nodes) is made of: shared informers, work queues, the
//! reconciling harness, leader election, events, task supervision, metrics and health endpoints.
//!
//! ```text
//!  API server --watch--> Informer<K> --Change<K>--> Controller --key--> WorkQueue --> reconcile(key)
//!                         (one per kind and process)        ^                              |
//!                                                           +------ retry with back-off ---+
//! ```
//!
//! Nothing here is global: a [`Runtime`] is a value that a component gets, and any number of them live in one process.
//! May depend on: `minato-api`, tokio, hyper. Knows no kind in particular but Lease and Event.

mod controller;
mod expectations;
mod health;
mod informer;
mod key;
mod leader;
mod limiter;
mod metrics;
mod node_client;
mod queue;
mod recorder;
mod store;
mod tasks;

pub use controller::{Controller, Next};
pub use expectations::Expectations;
pub use health::{Check, Health, serve_health};
pub use informer::{Change, Informer, Informers, Object, WatchScope, refuses_streaming};
pub use key::ObjectKey;
pub use leader::{LeaderConfig, LeaderElector, LeaderError};
pub use limiter::{Bucket, Exponential};
pub use metrics::Metrics;
pub use node_client::{NodeClient, NodeClientError};
pub use queue::WorkQueue;
pub use recorder::{EventKind, Recorder, RecorderHub};
pub use store::Index;
pub use tasks::Tasks;

use minato_api::kube::Client;

/// What one component, or several that share a process, run on. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The way to the API server.
    pub client: Client,
    /// The caches; one watch per kind, however many controllers read it.
    pub informers: Informers,
    /// Sends events.
    pub events: RecorderHub,
    /// The component's tasks and its stop signal.
    pub tasks: Tasks,
    /// Work queue and other metrics.
    pub metrics: Metrics,
}

impl Runtime {
    /// A runtime whose tasks belong to `tasks`. Must be called within a tokio runtime.
    pub fn new(client: Client, tasks: Tasks, metrics: Metrics) -> Self {
        Self {
            informers: Informers::new(client.clone(), tasks.clone()),
            events: RecorderHub::start(client.clone(), &tasks),
            client,
            tasks,
            metrics,
        }
    }

    /// The same caches, client and metrics under another stop signal, for a component that is stopped on its own.
    pub fn with_tasks(&self, tasks: Tasks) -> Self {
        Self { tasks, ..self.clone() }
    }

    /// Sends events as `component`, such as `deployment-controller`.
    pub fn recorder(&self, component: &'static str) -> Recorder {
        self.events.recorder(component)
    }
}
