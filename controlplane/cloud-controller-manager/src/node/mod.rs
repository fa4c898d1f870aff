//! Makes new Nodes known to the scheduler when the cloud has told what they are, and keeps their addresses true.
//!
//! Two passes, each over all nodes that concern it, so that one cloud call asks for many: *new* for nodes with the taint
//! `node.cloudprovider.kubernetes.io/uninitialized` (woken by changes) and *refresh* for all others (by time).
//! Addresses are written before the taint goes: no pod gets to a node without one.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_provider_interface::{CloudError, CloudErrorKind, InstanceMetadata, Instances};
use minato_runtime::{Change, Controller, EventKind, Exponential, Informer, Next, Recorder};
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::json;
use tokio::time::Instant;

use crate::error::{Error, Result, describe, is_conflict, is_not_found};
use crate::{Context, ops};

/// How often the last step is tried against concurrent writes.
const CONFLICTS: u32 = 20;
/// First and longest pause after a failure of one node. Most are instances that cannot be looked up yet.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// How far the cache may be behind our own writes.
const CACHE_LAG: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pass {
    New,
    Refresh,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new nodes",
            Self::Refresh => "refresh",
        })
    }
}

struct Backoff {
    delays: Exponential<String>,
    /// When a node is next due, by uid.
    due: HashMap<String, Instant>,
}

struct Nodes {
    cx: Context,
    nodes: Informer<Node>,
    recorder: Recorder,
    backoff: Mutex<Backoff>,
    untainted: Histogram,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) -> bool {
    if cx.provider.instances().is_none() {
        return false;
    }
    let this = Arc::new(Nodes {
        cx: cx.clone(),
        nodes: cx.informer(),
        recorder: cx.runtime.recorder("cloud-node-controller"),
        backoff: Mutex::new(Backoff {
            delays: Exponential::new(RETRY.0, RETRY.1),
            due: HashMap::new(),
        }),
        untainted: Histogram::new([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]),
    });
    cx.runtime.metrics.register(
        "node_controller_cloud_provider_taint_removal_delay_seconds",
        "Seconds from the creation of a node to its initialization",
        this.untainted.clone(),
    );
    let controller = Controller::new("cloud-node", &cx.runtime).workers(2);
    controller
        .queue()
        .add_after(Pass::Refresh, ops::jittered(cx.config.address_refresh));
    let on_node = this.clone();
    controller
        .watch(&this.nodes, move |change, add| {
            let node = change.object();
            if matches!(change, Change::Deleted(_)) {
                on_node.forget(ops::uid(&node.metadata));
            } else if plan::is_new(node) || !plan::missing_labels(node).is_empty() {
                add(Pass::New);
            }
        })
        .run(move |pass| {
            let this = this.clone();
            async move {
                match pass {
                    Pass::New => this.new_nodes().await,
                    Pass::Refresh => this.refresh().await,
                }
            }
        });
    true
}

impl Nodes {
    fn api(&self) -> Api<Node> {
        Api::all(self.cx.client().clone())
    }

    fn forget(&self, uid: &str) {
        let mut backoff = self.backoff.lock();
        backoff.due.remove(uid);
        backoff.delays.forget(&uid.to_owned());
    }

    /// Puts a node off; returns for how long.
    fn put_off(&self, uid: &str, at_least: Duration) -> Duration {
        let mut backoff = self.backoff.lock();
        let delay = backoff.delays.next(&uid.to_owned()).max(at_least);
        backoff.due.insert(uid.to_owned(), Instant::now() + delay);
        delay
    }

    fn left(&self, uid: &str) -> Duration {
        let backoff = self.backoff.lock();
        let due = backoff.due.get(uid);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Asks the cloud about many nodes; one answer each. A call that fails as a whole is every node's failure.
    async fn metadata(
        &self,
        nodes: Vec<Arc<Node>>,
    ) -> Vec<(Arc<Node>, std::result::Result<Option<InstanceMetadata>, CloudError>)> {
        let Some(instances) = self.cx.provider.instances() else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(nodes.len());
        for chunk in nodes.chunks(ops::PER_CALL) {
            all.extend(ask(instances, chunk, self.cx.config.call_timeout).await);
        }
        all
    }

    async fn new_nodes(&self) -> Result<Next> {
        let mut wait: Option<Duration> = None;
        let mut sooner = |delay: Duration| wait = Some(wait.map_or(delay, |wait| wait.min(delay)));
        let mut due = Vec::new();
        let mut unlabelled = Vec::new();
        for node in self.nodes.list() {
            if !plan::is_new(&node) {
                if !plan::missing_labels(&node).is_empty() {
                    unlabelled.push(node);
                }
                continue;
            }
            let left = self.left(ops::uid(&node.metadata));
            if left.is_zero() {
                due.push(node);
            } else {
                sooner(left);
            }
        }
        let repaired = ops::gather(unlabelled.iter().map(|node| self.repair_labels(node))).await;
        let answers = self.metadata(due).await;
        let done = ops::gather(answers.iter().map(|(node, answer)| self.initialize(node, answer))).await;
        done.into_iter().flatten().for_each(&mut sooner);
        repaired.into_iter().collect::<Result<()>>()?;
        Ok(wait.map_or(Next::Done, Next::After))
    }

    /// Initializes a node; returns when to look at it again, if it is not done.
    async fn initialize(
        &self,
        node: &Node,
        answer: &std::result::Result<Option<InstanceMetadata>, CloudError>,
    ) -> Option<Duration> {
        let uid = ops::uid(&node.metadata);
        let metadata = match answer {
            Ok(Some(metadata)) => metadata,
            // Somebody else's: nothing to say, and no need to ask soon.
            Ok(None) => return Some(self.put_off(uid, self.cx.config.address_refresh)),
            Err(error) => return Some(self.failed(node, error)),
        };
        match self.write(node, metadata).await {
            Ok(()) => {
                let mut backoff = self.backoff.lock();
                backoff.delays.forget(&uid.to_owned());
                // Until the cache shows it, there is no need to ask again.
                backoff.due.insert(uid.to_owned(), Instant::now() + CACHE_LAG);
                None
            }
            Err(Failure::Cluster(error)) => {
                tracing::debug!(
                    node = ops::name(&node.metadata),
                    error = describe(&error),
                    "not initialized"
                );
                Some(self.put_off(uid, Duration::ZERO))
            }
            Err(Failure::Cloud(error)) => Some(self.failed(node, &error)),
        }
    }

    fn failed(&self, node: &Node, error: &CloudError) -> Duration {
        let name = ops::name(&node.metadata);
        tracing::info!(node = name, kind = ?error.kind(), %error, "not initialized yet");
        // What passes by itself is no news; that a machine cannot be looked up yet is the rule.
        let passes = [
            CloudErrorKind::NotFound,
            CloudErrorKind::Transient,
            CloudErrorKind::Throttled,
            CloudErrorKind::Conflict,
        ];
        if !passes.contains(&error.kind()) {
            let text = format!("Node {name} could not be initialized: {error}");
            self.recorder
                .event(node, EventKind::Warning, "FailedToInitialize", text);
        }
        self.put_off(ops::uid(&node.metadata), error.retry_after().unwrap_or_default())
    }

    async fn write(&self, node: &Node, metadata: &InstanceMetadata) -> std::result::Result<(), Failure> {
        let addresses = plan::addresses(node, metadata).map_err(Failure::Cloud)?;
        if ops::provider_id(node).is_none() && metadata.provider_id.as_str().is_empty() {
            // Without its id it would be missing from load balancers and routes for ever.
            let why = "the cloud gave no provider id";
            return Err(Failure::Cloud(CloudError::new(CloudErrorKind::Invalid, why)));
        }
        let api = self.api();
        if !addresses.is_empty() && plan::differ(node, &addresses) {
            let patch = json!({"status": {"addresses": addresses}});
            match ops::merge_status(&api, &node.metadata, patch).await {
                Ok(_) => {}
                // Gone, or replaced by another of its name.
                Err(error) if is_not_found(&error) || is_conflict(&error) => return Ok(()),
                Err(error) => return Err(Failure::Cluster(error.into())),
            }
        }
        for _ in 0..CONFLICTS {
            let fresh = api
                .get_opt(ops::name(&node.metadata))
                .await
                .map_err(|e| Failure::Cluster(e.into()))?;
            let Some(fresh) = fresh.filter(|fresh| fresh.metadata.uid == node.metadata.uid && plan::is_new(fresh))
            else {
                return Ok(());
            };
            match ops::merge(&api, &fresh.metadata, plan::initialized(&fresh, metadata)).await {
                Ok(done) => {
                    self.tell(&done);
                    return Ok(());
                }
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) if is_conflict(&error) => {
                    tokio::time::sleep(Duration::from_millis(50).mul_f64(rand::random_range(1.0..2.0))).await;
                }
                Err(error) => return Err(Failure::Cluster(error.into())),
            }
        }
        let why = "others kept changing the node";
        Err(Failure::Cloud(CloudError::new(CloudErrorKind::Conflict, why)))
    }

    fn tell(&self, node: &Node) {
        self.recorder
            .event(node, EventKind::Normal, "Synced", "Node synced successfully");
        let created = node.metadata.creation_timestamp.as_ref();
        if let Some(created) = created {
            self.untainted
                .observe(created.0.duration_until(Timestamp::now()).as_secs_f64());
        }
    }

    async fn repair_labels(&self, node: &Node) -> Result<()> {
        let labels = plan::missing_labels(node);
        match ops::merge(&self.api(), &node.metadata, json!({"metadata": {"labels": labels}})).await {
            Ok(_) => Ok(()),
            // The cache will show what is newer, and wake us.
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn refresh(&self) -> Result<Next> {
        let known: Vec<_> = self
            .nodes
            .list()
            .into_iter()
            .filter(|node| !plan::is_new(node))
            .collect();
        let answers = self.metadata(known).await;
        ops::gather(answers.iter().map(|(node, answer)| self.refresh_one(node, answer))).await;
        Ok(Next::After(ops::jittered(self.cx.config.address_refresh)))
    }

    async fn refresh_one(&self, node: &Node, answer: &std::result::Result<Option<InstanceMetadata>, CloudError>) {
        let name = ops::name(&node.metadata);
        let addresses = match answer {
            Ok(Some(metadata)) => plan::addresses(node, metadata),
            Ok(None) => return,
            Err(error) => Err(error.clone()),
        };
        let addresses = match addresses {
            Ok(addresses) => plan::keep_hostname(node, addresses),
            Err(error) => {
                tracing::warn!(node = name, %error, "addresses not refreshed");
                return;
            }
        };
        if addresses.is_empty() || !plan::differ(node, &addresses) {
            return;
        }
        let patch = json!({"status": {"addresses": addresses}});
        if let Err(error) = ops::merge_status(&self.api(), &node.metadata, patch).await {
            tracing::warn!(node = name, %error, "addresses not written");
        }
    }
}

enum Failure {
    Cluster(Error),
    Cloud(CloudError),
}

async fn ask(
    instances: &dyn Instances,
    nodes: &[Arc<Node>],
    limit: Duration,
) -> Vec<(Arc<Node>, std::result::Result<Option<InstanceMetadata>, CloudError>)> {
    let refs: Vec<_> = nodes.iter().map(|node| ops::node_ref(node)).collect();
    let answers = match ops::within(limit, instances.metadata(&refs)).await {
        Ok(answers) => answers,
        Err(error) => refs.iter().map(|_| Err(error.clone())).collect(),
    };
    nodes.iter().cloned().zip(answers).collect()
}
