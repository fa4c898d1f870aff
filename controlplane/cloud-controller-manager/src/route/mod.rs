//! Routes every node's pod range to it, and says so in the condition `NetworkUnavailable`.
//!
//! One pass over all nodes, woken by what it depends on and not by time, so that an idle cluster costs the cloud
//! nothing; a slow resync notices what changed behind our back. What belongs where is read from the cloud each time.

mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_api::kube::api::{Patch, PatchParams};
use minato_provider_interface::{CloudError, CloudErrorKind, Route};
use minato_runtime::{Change, Controller, EventKind, Exponential, Informer, Next, Recorder};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::time::Instant;

use crate::error::{Result, is_conflict, is_not_found};
use crate::{Context, ops};

/// Locked resources are free again soon.
const LOCKED: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct All;

impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("routes")
    }
}

struct Progress {
    last: Option<Instant>,
    delays: Exponential<()>,
}

struct Routing {
    cx: Context,
    nodes: Informer<Node>,
    recorder: Recorder,
    progress: Mutex<Progress>,
    passes: Counter,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) -> bool {
    if cx.provider.routes().is_none() || cx.config.cluster_cidrs.is_empty() {
        return false;
    }
    let this = Arc::new(Routing {
        cx: cx.clone(),
        nodes: cx.informer(),
        recorder: cx.runtime.recorder("route_controller"),
        progress: Mutex::new(Progress {
            last: None,
            delays: Exponential::new(cx.config.first_retry, cx.config.last_retry),
        }),
        passes: Counter::default(),
    });
    cx.runtime.metrics.register(
        "route_controller_route_sync",
        "Passes over the routes",
        this.passes.clone(),
    );
    let controller = Controller::new("node-route", &cx.runtime).workers(1);
    // Also without any node: there may be routes of nodes that went while nobody looked.
    controller.queue().add(All);
    controller
        .watch(&this.nodes, |change, add| {
            let same = match change {
                Change::Updated { old, new } => plan::view(old) == plan::view(new),
                Change::Added(_) | Change::Deleted(_) => false,
            };
            if !same {
                add(All);
            }
        })
        .run(move |_| {
            let this = this.clone();
            async move { this.turn().await }
        });
    true
}

impl Routing {
    /// A pass, unless the last one was just now.
    async fn turn(&self) -> Result<Next> {
        {
            let mut progress = self.progress.lock();
            let due = progress.last.map_or(Duration::ZERO, |last| {
                (last + self.cx.config.route_period).saturating_duration_since(Instant::now())
            });
            if !due.is_zero() {
                return Ok(Next::After(due));
            }
            progress.last = Some(Instant::now());
        }
        self.passes.inc();
        let wait = match self.pass().await? {
            None => {
                self.progress.lock().delays.forget(&());
                ops::jittered(self.cx.config.resync / 2)
            }
            Some(error) => {
                tracing::warn!(kind = ?error.kind(), %error, "routes are not all as they should be");
                let delay = match error.kind() {
                    CloudErrorKind::Conflict => LOCKED,
                    _ => self.progress.lock().delays.next(&()),
                };
                delay.max(error.retry_after().unwrap_or_default())
            }
        };
        Ok(Next::After(wait))
    }

    /// Returns the first of the cloud's failures.
    async fn pass(&self) -> Result<Option<CloudError>> {
        let Some(routes) = self.cx.provider.routes() else {
            return Ok(None);
        };
        let present = match ops::within(self.cx.config.call_timeout, routes.list()).await {
            Ok(present) => present,
            // Nothing is known, so nothing is said.
            Err(error) => return Ok(Some(error)),
        };
        let nodes = self.nodes.list();
        let plan = plan::plan(&present, &nodes, &self.cx.config.cluster_cidrs);
        let mut failures: BTreeMap<String, CloudError> = plan.impossible;
        let mut first = None;
        if !plan.create.is_empty() || !plan.delete.is_empty() {
            tracing::info!(
                create = plan.create.len(),
                delete = plan.delete.len(),
                "changing routes"
            );
            let change = routes.change(&plan.create, &plan.delete);
            match ops::within(self.cx.config.call_timeout, change).await {
                Ok(results) => {
                    for (route, result) in plan.create.iter().zip(results) {
                        if let Err(error) = result {
                            self.tell_failure(&nodes, route, &error);
                            first.get_or_insert(error.clone());
                            failures.insert(route.node_name.clone(), error);
                        }
                    }
                }
                Err(error) => {
                    for route in &plan.create {
                        failures.insert(route.node_name.clone(), error.clone());
                    }
                    first = Some(error);
                }
            }
        }
        let told = nodes.iter().filter(|node| {
            let view = plan::view(node);
            !view.deleting && !view.cidrs.is_empty()
        });
        let written = ops::gather(told.map(|node| {
            let failed = failures.contains_key(ops::name(&node.metadata));
            self.write_condition(node, !failed)
        }))
        .await;
        written.into_iter().collect::<Result<()>>()?;
        Ok(first)
    }

    fn tell_failure(&self, nodes: &[Arc<Node>], route: &Route, error: &CloudError) {
        let mut nodes = nodes.iter();
        if let Some(node) = nodes.find(|node| ops::name(&node.metadata) == route.node_name) {
            let text = format!(
                "Could not create a route for node {}, {}: {error}",
                route.node_name, route.destination
            );
            self.recorder
                .event(node.as_ref(), EventKind::Warning, "FailedToCreateRoute", text);
        }
    }

    async fn write_condition(&self, node: &Node, routed: bool) -> Result<()> {
        let (status, reason, message) = match routed {
            true => ("False", "RouteCreated", "RouteController created a route"),
            false => ("True", "NoRouteCreated", "RouteController failed to create a route"),
        };
        let current = ops::condition(node, "NetworkUnavailable");
        if current.is_some_and(|current| current.status == status && current.reason.as_deref() == Some(reason)) {
            return Ok(());
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // Conditions have their type as key, so the kubelet's are not touched.
        let patch = json!({
            "metadata": {"uid": node.metadata.uid},
            "status": {"conditions": [{
                "type": "NetworkUnavailable", "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }]},
        });
        let api: Api<Node> = Api::all(self.cx.client().clone());
        let name = ops::name(&node.metadata);
        match api
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
