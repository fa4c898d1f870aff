//! Carries plans out.

use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{Deployment, ReplicaSet};
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_runtime::{EventKind, Next};
use serde_json::json;

use super::Deployments;
use super::model::{Model, spec_replicas};
use super::plan::{Edit, Plan};
use super::status::{self, Did};
use crate::error::{Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::{ops, ownership, template};

impl Deployments {
    pub(super) async fn apply(
        &self,
        model: &Model,
        deployments: &Api<Deployment>,
        sets: &Api<ReplicaSet>,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Next> {
        let mut did = Did::default();
        let mut failure = None;
        if let Some(set) = plan.create {
            failure = self.create(model, sets, &set, &mut did).await.err();
        }
        let edits = plan.edits.iter().map(|edit| self.edit(model, sets, edit));
        let edited = ops::all(edits).await;
        ops::all(
            plan.delete
                .iter()
                .map(|set| ops::delete_background(sets, &set.metadata)),
        )
        .await?;
        edited?;
        let mut current = model.deployment.clone();
        if let Some(revision) = plan.revision.filter(|_| did.failed.is_none() && !did.collided) {
            let annotations = json!({"metadata": {"annotations": {crate::names::REVISION: revision}}});
            match ops::merge(deployments, &current.metadata, annotations).await {
                Ok(updated) => current = Arc::new(updated),
                Err(error) if is_not_found(&error) => return Ok(Next::Done),
                Err(error) => return Err(error.into()),
            }
        }
        let (next, wake) = status::status(model, &did, now);
        if current.status.as_ref() != Some(&next) {
            let updated = Deployment {
                status: Some(next),
                ..Deployment::clone(&current)
            };
            match deployments
                .replace_status(ops::name(&current.metadata), &PostParams::default(), &updated)
                .await
            {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(wake.map_or(Next::Done, Next::After)),
        }
    }

    async fn create(&self, model: &Model, sets: &Api<ReplicaSet>, set: &ReplicaSet, did: &mut Did) -> Result<()> {
        let name = ops::name(&set.metadata);
        match sets.create(&PostParams::default(), set).await {
            Ok(_) => {
                let replicas = spec_replicas(set);
                let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                self.recorder.event(
                    model.deployment.as_ref(),
                    EventKind::Normal,
                    "ScalingReplicaSet",
                    message,
                );
                did.created = Some(name.to_owned());
                Ok(())
            }
            Err(error) if is_already_exists(&error) => self.collision(model, sets, name, did).await,
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {}", crate::describe(&error));
                self.recorder.event(
                    model.deployment.as_ref(),
                    EventKind::Warning,
                    "ReplicaSetCreateError",
                    &message,
                );
                did.failed = Some(message);
                Err(error.into())
            }
        }
    }

    /// The name is taken: by our own set that the cache does not know yet, or by one of another template.
    async fn collision(&self, model: &Model, sets: &Api<ReplicaSet>, name: &str, did: &mut Did) -> Result<()> {
        let Some(existing) = sets.get_opt(name).await? else {
            return Ok(());
        };
        let ours = ownership::is_controlled_by(&existing.metadata, ops::uid(&model.deployment.metadata));
        let other = existing.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let same = other.is_some_and(|other| template::same(other, &model.spec.template));
        did.collided = !(ours && same);
        Ok(())
    }

    async fn edit(&self, model: &Model, sets: &Api<ReplicaSet>, edit: &Edit) -> Result<()> {
        let mut patch = json!({});
        if !edit.annotations.is_empty() {
            patch["metadata"] = json!({"annotations": edit.annotations});
        }
        if let Some(replicas) = edit.replicas {
            patch["spec"]["replicas"] = json!(replicas);
        }
        if let Some(seconds) = edit.min_ready_seconds {
            patch["spec"]["minReadySeconds"] = json!(seconds);
        }
        match ops::merge(sets, &edit.set.metadata, patch).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if let Some(replicas) = edit.replicas {
            let before = spec_replicas(&edit.set);
            let way = if replicas > before { "up" } else { "down" };
            let name = ops::name(&edit.set.metadata);
            let message = format!("Scaled {way} replica set {name} from {before} to {replicas}");
            self.recorder.event(
                model.deployment.as_ref(),
                EventKind::Normal,
                "ScalingReplicaSet",
                message,
            );
        }
        Ok(())
    }
}
