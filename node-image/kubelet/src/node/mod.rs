//! The Node object: registered, kept true, and its lease renewed.

mod facts;
mod lease;
mod object;

use std::sync::Arc;
use std::time::{Duration, Instant};

use minato_api::k8s::core::v1::{Node, NodeStatus};
use minato_api::kube::api::{Patch, PatchParams, PostParams};
use minato_api::kube::{Api, Client};
use minato_pki::AltName;
use minato_runtime::{EventKind, Informer, Recorder, Tasks, WatchScope};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::api_code;
use crate::cni;
use crate::settings::Settings;
use minato_cri::Cri;

pub(crate) use facts::{Capacity, Facts};
use object::RuntimeState;

/// A runtime that says nothing for so long is down; less is a restart. Upstream's figure.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause after a failed registration.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the node's object true.
pub(crate) struct NodeAgent {
    pub(crate) settings: Arc<Settings>,
    pub(crate) client: Client,
    pub(crate) cri: Cri,
    pub(crate) facts: Arc<Facts>,
    pub(crate) events: Recorder,
    /// Names of the serving certificate, told as the addresses become known.
    pub(crate) names: watch::Sender<Vec<AltName>>,
}

impl NodeAgent {
    fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Registers the node; returns when it is there. Then starts the lease, the watch of the node, and the status loop.
    pub(crate) async fn start(self, tasks: &Tasks) -> Informer<Node> {
        let node = loop {
            match self.register().await {
                Ok(node) => break node,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "registering the node failed; trying again"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        let scope = WatchScope {
            fields: Some(format!("metadata.name={}", self.settings.node_name)),
            labels: None,
        };
        let informer = Informer::start(self.api(), scope, tasks);
        tasks.spawn(
            "node-lease",
            lease::keep(self.client.clone(), self.settings.clone(), node),
        );
        tasks.spawn("node-status", self.run(informer.clone()));
        informer
    }

    async fn register(&self) -> Result<Node, minato_api::kube::Error> {
        let state = RuntimeState::read(&self.cri).await;
        let node = object::new_node(&self.settings, &self.facts, &state);
        match self.api().create(&PostParams::default(), &node).await {
            Ok(created) => {
                tracing::info!(node = self.settings.node_name, "registered");
                self.events
                    .event(&created, EventKind::Normal, "Starting", "Starting kubelet.");
                Ok(created)
            }
            Err(error) if api_code(&error) == Some(409) => self.take_over(&node).await,
            Err(error) => Err(error),
        }
    }

    /// The node is there from an earlier run: its labels and identity are brought up to date, its taints left alone.
    async fn take_over(&self, node: &Node) -> Result<Node, minato_api::kube::Error> {
        let existing = self.api().get(&self.settings.node_name).await?;
        let mut patch = json!({"metadata": {"labels": node.metadata.labels}});
        let known = existing.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        if known.is_none_or(str::is_empty)
            && let Some(id) = &self.settings.provider_id
        {
            patch["spec"] = json!({"providerID": id});
        }
        let patch = Patch::Merge(&patch);
        let node = self
            .api()
            .patch(&self.settings.node_name, &PatchParams::default(), &patch)
            .await?;
        tracing::info!(node = self.settings.node_name, "took over the registered node");
        self.events
            .event(&node, EventKind::Normal, "Starting", "Starting kubelet.");
        Ok(node)
    }

    /// Computes the status often, and sends it when it changed or long was not sent. While the node is not ready it looks
    /// more often, so that a new node becomes ready as soon as it is.
    async fn run(self, informer: Informer<Node>) {
        informer.synced().await;
        let (changed, mut changes) = watch::channel(());
        informer.on_change(move |_| {
            changed.send_replace(());
        });
        let mut sent_at: Option<Instant> = None;
        let mut good: Option<(RuntimeState, Instant)> = None;
        loop {
            changes.borrow_and_update();
            let Some(node) = informer.get_cluster(&self.settings.node_name) else {
                // Deleted, by hand or by the cloud's controller: the node is still here, so it comes back.
                if let Err(error) = self.register().await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "registering the node again failed"
                    );
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    () = tokio::time::sleep(self.settings.status_update) => {}
                }
                continue;
            };
            self.follow(&node).await;
            let mut state = RuntimeState::read(&self.cri).await;
            match &good {
                Some((last, at)) if state.is_silent() && at.elapsed() < SILENCE => state = last.clone(),
                _ if state.not_ready().is_none() => good = Some((state.clone(), Instant::now())),
                _ => {}
            }
            let old = node.status.clone().unwrap_or_default();
            let new = object::status(&self.settings, &self.facts, &state, &node);
            let due = sent_at.is_none_or(|at| at.elapsed() >= self.settings.status_report);
            if due || object::differs(&old, &new) {
                match self.send(&node, &old, &new).await {
                    Ok(()) => sent_at = Some(Instant::now()),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "sending the node's status failed"
                        );
                    }
                }
            }
            let ready = state.not_ready().is_none();
            let pause = if ready {
                self.settings.status_update
            } else {
                Duration::from_millis(200)
            };
            tokio::select! {
                _ = changes.changed(), if ready => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what follows from the node's object: the pod network's configuration, the serving certificate's names.
    async fn follow(&self, node: &Node) {
        if let Some(directory) = &self.settings.cni_conf_dir {
            let ranges = cni::pod_ranges(node);
            if let Err(error) = cni::write(directory, &ranges) {
                tracing::warn!(%error, "writing the CNI configuration failed");
            }
        }
        let names = object::serving_names(node);
        self.names.send_if_modified(|old| {
            let differs = *old != names;
            *old = names;
            differs
        });
    }

    async fn send(&self, node: &Node, old: &NodeStatus, new: &NodeStatus) -> Result<(), minato_api::kube::Error> {
        let status = status_patch(old, new);
        let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": status});
        let patch = Patch::Strategic(&patch);
        let name = &self.settings.node_name;
        self.api()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }
}

/// The fields of the status that are the kubelet's and differ; conditions of others are not touched.
fn status_patch(old: &NodeStatus, new: &NodeStatus) -> Value {
    let old = serde_json::to_value(old).unwrap_or_default();
    let mut new = serde_json::to_value(new).unwrap_or_default();
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|name, value| name == "conditions" || old.get(name) != Some(value));
        // Addresses are merged by type, of which there may be several: the whole list replaces the old one.
        if let Some(addresses) = fields.get_mut("addresses").and_then(Value::as_array_mut) {
            addresses.push(json!({"$patch": "replace"}));
        }
    }
    new
}
