//! Deletes Nodes whose instances are gone, and marks those whose instances are off.
//!
//! Ready nodes are never asked about: their kubelets prove that they are there. Others are, together, every few seconds
//! as long as there are any. See `plan` for what it takes to delete one.

mod plan;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, Preconditions};
use minato_provider_interface::{CloudError, Existence};
use minato_runtime::{Controller, EventKind, Informer, Next, Recorder};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::error::{Result, is_conflict, is_not_found};
use crate::{Context, ops};
use plan::{Doubt, Rules};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct All;

impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nodes")
    }
}

struct Lifecycle {
    cx: Context,
    nodes: Informer<Node>,
    recorder: Recorder,
    /// Since when the cloud has been saying, without a break, that a node's instance is not there; by uid.
    missing: Mutex<HashMap<String, Instant>>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) -> bool {
    if cx.provider.instances().is_none() {
        return false;
    }
    let this = Arc::new(Lifecycle {
        cx: cx.clone(),
        nodes: cx.informer(),
        recorder: cx.runtime.recorder("cloud-node-lifecycle-controller"),
        missing: Mutex::default(),
    });
    Controller::new("cloud-node-lifecycle", &cx.runtime)
        .workers(1)
        .watch(&this.nodes, |change, add| {
            let node = change.object();
            let was = change.old().map(|old| ops::is_ready(old));
            if was != Some(ops::is_ready(node)) || (ops::is_ready(node) && is_marked(node)) {
                add(All);
            }
        })
        .run(move |_| {
            let this = this.clone();
            async move { this.pass().await }
        });
    true
}

fn is_marked(node: &Node) -> bool {
    ops::taints(node).any(|taint| taint.key == SHUTDOWN)
}

impl Lifecycle {
    fn api(&self) -> Api<Node> {
        Api::all(self.cx.client().clone())
    }

    async fn pass(&self) -> Result<Next> {
        let all = self.nodes.list();
        let (ready, suspects): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|node| ops::is_ready(node));
        let marked = ready.iter().filter(|node| is_marked(node));
        let unmarked = ops::gather(marked.map(|node| self.mark(node, false))).await;
        unmarked.into_iter().collect::<Result<()>>()?;
        let suspects: Vec<_> = suspects
            .into_iter()
            .filter(|node| !ops::is_deleting(&node.metadata))
            .collect();
        if suspects.is_empty() {
            self.missing.lock().clear();
            return Ok(Next::Done);
        }
        let period = ops::jittered(self.cx.config.node_monitor_period);
        match self.judge(&suspects, all.len()).await {
            Ok(()) => Ok(Next::After(period)),
            Err(error) => {
                tracing::warn!(kind = ?error.kind(), %error, "instances could not be looked up; nodes are left alone");
                Ok(Next::After(period.max(error.retry_after().unwrap_or_default())))
            }
        }
    }

    /// # Errors
    /// The cloud could not be asked; nothing was deleted for want of an answer.
    async fn judge(&self, suspects: &[Arc<Node>], total: usize) -> std::result::Result<(), CloudError> {
        let Some(instances) = self.cx.provider.instances() else {
            return Ok(());
        };
        let mut answers = Vec::with_capacity(suspects.len());
        for chunk in suspects.chunks(ops::PER_CALL) {
            let refs: Vec<_> = chunk.iter().map(|node| ops::node_ref(node)).collect();
            answers.extend(ops::within(self.cx.config.call_timeout, instances.existence(&refs)).await?);
        }
        let now = Instant::now();
        let mut doubtful = Vec::new();
        let mut there = Vec::new();
        {
            let mut missing = self.missing.lock();
            let mut still = HashMap::new();
            for (node, answer) in suspects.iter().zip(&answers) {
                let uid = ops::uid(&node.metadata);
                match answer {
                    Ok(Existence::Exists) => there.push(node),
                    Ok(existence) => {
                        let since = missing.get(uid).copied().unwrap_or(now);
                        still.insert(uid.to_owned(), since);
                        doubtful.push((
                            node,
                            Doubt {
                                certain: *existence == Existence::Gone,
                                age: age(node),
                                missing_for: now - since,
                            },
                        ));
                    }
                    Err(error) => {
                        tracing::debug!(node = ops::name(&node.metadata), kind = ?error.kind(), %error, "not looked up");
                    }
                }
            }
            *missing = still;
        }
        let rules = Rules::of(&self.cx.config);
        let doubts: Vec<Doubt> = doubtful.iter().map(|(_, doubt)| *doubt).collect();
        let verdict = plan::verdict(&doubts, total, &rules);
        if verdict.braked {
            self.warn_of_brake(&doubtful, total);
        }
        let goes = doubtful.iter().zip(&verdict.goes).filter(|(_, goes)| **goes);
        ops::gather(goes.map(|((node, _), _)| self.delete(node))).await;
        ops::gather(
            there
                .into_iter()
                .filter(|node| !is_marked(node))
                .map(|node| self.check_power(node)),
        )
        .await;
        Ok(())
    }

    fn warn_of_brake(&self, doubtful: &[(&Arc<Node>, Doubt)], total: usize) {
        let seconds = self.cx.config.mass_deletion_wait.as_secs();
        let count = doubtful.len();
        tracing::warn!(
            count,
            total,
            "many nodes seem to be gone at once; waiting before deleting any"
        );
        for (node, doubt) in doubtful {
            // Once per node.
            if doubt.missing_for.is_zero() {
                let text = format!(
                    "{count} of {total} nodes seem to be gone at once; they are deleted if that is still so in {seconds} s"
                );
                self.recorder
                    .event(node.as_ref(), EventKind::Warning, "MassDeletionPaused", text);
            }
        }
    }

    async fn delete(&self, node: &Node) {
        let name = ops::name(&node.metadata);
        tracing::info!(node = name, "the instance is gone; deleting the node");
        let text = format!("Deleting node {name} because it does not exist in the cloud provider");
        self.recorder.event(node, EventKind::Normal, "DeletingNode", text);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: node.metadata.uid.clone(),
            resource_version: None,
        });
        match self.api().delete(name, &params).await {
            Ok(_) => {}
            // Gone, or another of the same name is there.
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            Err(error) => {
                tracing::warn!(node = name, %error, "node not deleted");
                let text = format!("Error deleting node {name}: {error}");
                self.recorder
                    .event(node, EventKind::Warning, "DeletingNodeFailed", text);
            }
        }
    }

    async fn check_power(&self, node: &Node) {
        let Some(instances) = self.cx.provider.instances() else {
            return;
        };
        let name = ops::name(&node.metadata);
        let node_ref = ops::node_ref(node);
        match ops::within(self.cx.config.call_timeout, instances.is_shutdown(&node_ref)).await {
            Ok(false) => {}
            Ok(true) => {
                if let Err(error) = self.mark(node, true).await {
                    tracing::warn!(node = name, %error, "not marked as shut down");
                }
            }
            Err(error) => {
                tracing::debug!(node = name, kind = ?error.kind(), %error, "not known whether it is shut down")
            }
        }
    }

    /// Puts the mark on or takes it off. A conflict is left to the next pass.
    async fn mark(&self, node: &Node, on: bool) -> Result<()> {
        let mut taints: Vec<_> = ops::taints(node)
            .filter(|taint| taint.key != SHUTDOWN)
            .map(|taint| json!(taint))
            .collect();
        if on {
            taints.push(json!({"key": SHUTDOWN, "effect": "NoSchedule"}));
        }
        match ops::merge(&self.api(), &node.metadata, json!({"spec": {"taints": taints}})).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn age(node: &Node) -> Duration {
    let created = node.metadata.creation_timestamp.as_ref();
    let age = created.map(|created| created.0.duration_until(Timestamp::now()));
    age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}
