//! Carries plans out.

use minato_api::k8s::apps::v1::DaemonSet;
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::api::PostParams;
use minato_api::kube::{self, Api};
use minato_runtime::{EventKind, Next, ObjectKey};

use super::model::Model;
use super::plan::{self, Plan};
use super::{DaemonSets, pod, status};
use crate::error::{Result, is_namespace_terminating, is_not_found};
use crate::ops;

type Sent = std::result::Result<(), kube::Error>;

impl DaemonSets {
    pub(super) async fn apply(
        &self,
        key: &ObjectKey,
        model: &Model<'_>,
        sets: &Api<DaemonSet>,
        api: &Api<Pod>,
        collisions: i32,
        settled: bool,
    ) -> Result<Next> {
        let mut plan = Plan::default();
        if settled {
            plan = plan::plan(model, &|node| self.backoff.left(key, node))?;
        }
        for node in &plan.failed {
            self.backoff.failed(key, node);
        }
        for (kind, reason, message) in &plan.notes {
            self.recorder.event(model.set, *kind, reason, message.clone());
        }
        for pod in &plan.delete {
            self.expectations.expect_deletion(key, ops::uid(&pod.metadata));
        }
        let created = self.create(key, model, api, &plan.create).await;
        let deleted = ops::all(plan.delete.iter().map(|pod| self.delete(key, model.set, api, pod))).await;
        self.write_status(model, sets, collisions, settled).await?;
        match created.and(deleted) {
            Err(error) if is_namespace_terminating(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(plan.wake.map_or(Next::Done, Next::After)),
        }
    }

    async fn create(&self, key: &ObjectKey, model: &Model<'_>, api: &Api<Pod>, nodes: &[String]) -> Sent {
        self.expectations.expect_creations(key, nodes.len());
        let one = |at: usize| async move {
            let Some(node) = nodes.get(at) else { return Ok(()) };
            self.create_one(key, model, api, node).await
        };
        let (tried, failure) = ops::slow_start(nodes.len(), one).await;
        for _ in tried..nodes.len() {
            self.expectations.created(key);
        }
        failure.map_or(Ok(()), Err)
    }

    async fn create_one(&self, key: &ObjectKey, model: &Model<'_>, api: &Api<Pod>, node: &str) -> Sent {
        let pod = pod::make(model.set, &model.spec.template, &model.pod_spec, node, &model.hash);
        match api.create(&PostParams::default(), &pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", ops::name(&created.metadata));
                self.recorder
                    .event(model.set, EventKind::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                self.expectations.created(key);
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", crate::describe(&error));
                    self.recorder
                        .event(model.set, EventKind::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    async fn delete(&self, key: &ObjectKey, set: &DaemonSet, api: &Api<Pod>, pod: &Pod) -> Sent {
        let deleted = ops::delete(api, &pod.metadata).await;
        let (name, uid) = (ops::name(&pod.metadata), ops::uid(&pod.metadata));
        match &deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {name}");
                self.recorder.event(set, EventKind::Normal, "SuccessfulDelete", message);
                // Gone before we asked: no event will come to tell it.
                if self
                    .pods
                    .get(&ObjectKey::of(pod))
                    .is_none_or(|now| now.metadata.uid != pod.metadata.uid)
                {
                    self.expectations.deleted(key, uid);
                }
            }
            Err(error) => {
                self.expectations.deleted(key, uid);
                let message = format!("Error deleting: {}", crate::describe(error));
                self.recorder.event(set, EventKind::Warning, "FailedDelete", message);
            }
        }
        deleted
    }

    async fn write_status(
        &self,
        model: &Model<'_>,
        sets: &Api<DaemonSet>,
        collisions: i32,
        settled: bool,
    ) -> Result<()> {
        let status = status::status(model, collisions, settled);
        if model.set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let next = DaemonSet {
            status: Some(status),
            ..model.set.clone()
        };
        match sets
            .replace_status(ops::name(&model.set.metadata), &PostParams::default(), &next)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
