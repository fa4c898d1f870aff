//! The garbage collector: deletes what has lost all its owners, and waits, orphans or cascades as a deletion asks.
//!
//! ```text
//!  one metadata watch per resource --> Graph (who depends on whom, by uid) --> work queue --> live look, then act
//! ```
//!
//! The graph only says where to look: every decision is taken on objects read from the server. It holds objects that
//! own or are owned, not all: an owner that is not in it is asked for when its first dependent appears.

mod apply;
mod graph;
mod plan;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minato_api::kube::api::{Api, DynamicObject};
use minato_runtime::{Controller, Recorder, WorkQueue};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::sync::watch;

use crate::Context;
use crate::discovery::Served;
use graph::{Effects, Graph};

/// What the queue holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// See whether the object of this uid is to go.
    Collect(String),
    /// Take the references of its dependents away.
    Orphan(String),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collect(uid) => write!(f, "collect {uid}"),
            Self::Orphan(uid) => write!(f, "orphan {uid}"),
        }
    }
}

/// A resource, by group and plural name.
type ResourceId = (String, String);

struct Collector {
    cx: Context,
    graph: Mutex<Graph>,
    /// The resources that are served, in the version used for them.
    resources: RwLock<HashMap<ResourceId, Arc<Served>>>,
    queue: WorkQueue<Work>,
    recorder: Recorder,
    /// A definition of custom resources changed: ask what is served.
    rediscover: Notify,
    /// The first lists of all resources have been seen.
    settled: watch::Sender<bool>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let controller: Controller<Work> = Controller::new("garbage_collector", &cx.runtime).workers(20);
    let this = Arc::new(Collector {
        cx: cx.clone(),
        graph: Mutex::default(),
        resources: RwLock::default(),
        queue: controller.queue(),
        recorder: cx.runtime.recorder("garbage-collector-controller"),
        rediscover: Notify::new(),
        settled: watch::Sender::new(false),
    });
    cx.runtime
        .tasks
        .spawn("garbage collector watches", watches::run(this.clone()));
    let settled = this.clone();
    controller
        .after(async move {
            // The sender lives in `settled` itself: the wait cannot fail.
            let _ = settled.settled.subscribe().wait_for(|settled| *settled).await;
        })
        .run(move |work| {
            let this = this.clone();
            async move { this.reconcile(work).await }
        });
}

impl Collector {
    fn queue(&self, effects: Effects) {
        for uid in effects.collect {
            self.queue.add(Work::Collect(uid));
        }
        for uid in effects.orphan {
            self.queue.add(Work::Orphan(uid));
        }
    }

    fn served(&self, id: &ResourceId) -> Option<Arc<Served>> {
        self.resources.read().get(id).cloned()
    }

    /// The resource of a kind, as owner references name it.
    fn served_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Served>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let resources = self.resources.read();
        let mut found = resources
            .values()
            .filter(|served| served.resource.group == group && served.resource.kind == kind);
        found.next().cloned()
    }

    fn api(&self, served: &Served, namespace: &str) -> Api<DynamicObject> {
        let client = self.cx.client().clone();
        if served.namespaced {
            Api::namespaced_with(client, namespace, &served.resource)
        } else {
            Api::all_with(client, &served.resource)
        }
    }
}
