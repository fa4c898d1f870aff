//! Carries plans out.

use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::StatefulSet;
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod};
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_runtime::{EventKind, Next};
use serde_json::json;

use super::StatefulSets;
use super::model::Model;
use super::plan::{self, Plan, Step};
use super::{claims, identity, status};
use crate::error::{Error, Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::ops;

impl StatefulSets {
    pub(super) async fn apply(
        &self,
        model: &Model,
        sets: &Api<StatefulSet>,
        pods: &Api<Pod>,
        collisions: i32,
        now: Timestamp,
    ) -> Result<Next> {
        let (mut done, mut next) = (Ok(()), Next::Done);
        if model.set.metadata.deletion_timestamp.is_none() {
            let plan = plan::plan(model, now)?;
            next = plan.wake.map_or(Next::Done, Next::After);
            done = self.carry_out(model, pods, &plan).await;
        }
        self.write_status(model, sets, collisions, now).await?;
        match done {
            Err(Error::Api(error)) if is_namespace_terminating(&error) => Ok(Next::Done),
            Err(error) => Err(error),
            Ok(()) => Ok(next),
        }
    }

    async fn carry_out(&self, model: &Model, pods: &Api<Pod>, plan: &Plan) -> Result<()> {
        let claims = ops::namespaced::<PersistentVolumeClaim>(self.cx.client(), ops::namespace(&model.set.metadata));
        let keep = |index: usize| self.step(model, pods, &claims, plan.keep.get(index));
        if let (_, Some(error)) = ops::slow_start(plan.keep.len(), keep).await {
            return Err(error);
        }
        if !plan.scale_down.is_empty() {
            for (ordinal, pod) in &model.condemned {
                self.settle_owners(model, &claims, *ordinal, pod, true).await?;
            }
        }
        ops::all(plan.scale_down.iter().map(|pod| self.delete(model, pods, pod))).await?;
        ops::all(plan.update.iter().map(|pod| self.delete(model, pods, pod))).await
    }

    async fn step(
        &self,
        model: &Model,
        pods: &Api<Pod>,
        claims: &Api<PersistentVolumeClaim>,
        step: Option<&Step>,
    ) -> Result<()> {
        match step {
            None => Ok(()),
            Some(Step::Create(ordinal)) => self.create(model, pods, claims, *ordinal).await,
            Some(Step::Recreate(pod)) => {
                let (namespace, name) = (ops::namespace(&pod.metadata), ops::name(&pod.metadata));
                let set = ops::name(&model.set.metadata);
                let (reason, word) = if crate::pods::phase(pod) == "Failed" {
                    ("RecreatingFailedPod", "failed")
                } else {
                    ("RecreatingTerminatedPod", "terminated")
                };
                let message = format!("StatefulSet {namespace}/{set} is recreating {word} Pod {name}");
                self.recorder
                    .event(model.set.as_ref(), EventKind::Warning, reason, message);
                self.delete(model, pods, pod).await
            }
            Some(Step::Mend(ordinal, pod)) => self.mend(model, pods, claims, *ordinal, pod).await,
        }
    }

    async fn create(
        &self,
        model: &Model,
        pods: &Api<Pod>,
        claims: &Api<PersistentVolumeClaim>,
        ordinal: i64,
    ) -> Result<()> {
        let (set, namespace) = (model.set.as_ref(), ops::namespace(&model.set.metadata));
        let pod = identity::pod(set, &model.spec, model.revision_for(ordinal), ordinal);
        let name = ops::name(&pod.metadata);
        for claim in claims::names(set, &model.spec, ordinal) {
            let known = self.claims.get_in(namespace, &claim);
            if known.is_some_and(|claim| claims::is_stale(&claim, name)) {
                // The claim's deletion will wake us.
                tracing::debug!(pod = name, claim, "waiting for a claim of the former pod to go");
                return Ok(());
            }
        }
        let made = match self.create_claims(model, claims, ordinal, name).await {
            Ok(()) => pods.create(&PostParams::default(), &pod).await.map_err(Error::from),
            Err(error) => Err(error),
        };
        let set_name = ops::name(&set.metadata);
        match made {
            Ok(_) => {
                let message = format!("create Pod {name} in StatefulSet {set_name} successful");
                self.recorder.event(set, EventKind::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                let known = match &error {
                    Error::Api(error) => is_already_exists(error) || is_namespace_terminating(error),
                    _ => false,
                };
                if !known {
                    let why = describe(&error);
                    let message = format!("create Pod {name} in StatefulSet {set_name} failed error: {why}");
                    self.recorder.event(set, EventKind::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    async fn create_claims(
        &self,
        model: &Model,
        claims: &Api<PersistentVolumeClaim>,
        ordinal: i64,
        pod: &str,
    ) -> Result<()> {
        let set = model.set.as_ref();
        for claim in claims::wanted(set, &model.spec, ordinal) {
            let name = ops::name(&claim.metadata);
            if let Some(known) = self.claims.get_in(ops::namespace(&set.metadata), name) {
                if known.metadata.deletion_timestamp.is_some() {
                    return Err(Error::Invalid(format!("pvc {name} is being deleted")));
                }
                continue;
            }
            let what = format!(
                "create Claim {name} Pod {pod} in StatefulSet {}",
                ops::name(&set.metadata)
            );
            match claims.create(&PostParams::default(), &claim).await {
                Ok(_) => {
                    let message = format!("{what} success");
                    self.recorder.event(set, EventKind::Normal, "SuccessfulCreate", message);
                }
                Err(error) if is_already_exists(&error) => {}
                Err(error) => {
                    if !is_namespace_terminating(&error) {
                        let message = format!("{what} failed error: {}", crate::describe(&error));
                        self.recorder.event(set, EventKind::Warning, "FailedCreate", message);
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Gives a pod the labels it lacks, and its claims if some are absent or owned otherwise than the set asks for.
    async fn mend(
        &self,
        model: &Model,
        pods: &Api<Pod>,
        claims: &Api<PersistentVolumeClaim>,
        ordinal: i64,
        pod: &Arc<Pod>,
    ) -> Result<()> {
        if crate::pods::is_terminating(pod) {
            return Ok(());
        }
        self.create_claims(model, claims, ordinal, ops::name(&pod.metadata))
            .await?;
        self.settle_owners(model, claims, ordinal, pod, false).await?;
        let missing = identity::missing_labels(pod, ordinal);
        if missing.is_empty() {
            return Ok(());
        }
        let mut labels = json!({});
        for (key, value) in missing {
            labels[key] = json!(value);
        }
        match ops::merge(pods, &pod.metadata, json!({"metadata": {"labels": labels}})).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn settle_owners(
        &self,
        model: &Model,
        api: &Api<PersistentVolumeClaim>,
        ordinal: i64,
        pod: &Pod,
        condemned: bool,
    ) -> Result<()> {
        let set = model.set.as_ref();
        for name in claims::names(set, &model.spec, ordinal) {
            let Some(claim) = self.claims.get_in(ops::namespace(&set.metadata), &name) else {
                continue;
            };
            let Some(owners) = claims::owners(&claim, set, &model.spec, pod, condemned) else {
                continue;
            };
            let patch = json!({"metadata": {"ownerReferences": owners}});
            match ops::merge(api, &claim.metadata, patch).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn delete(&self, model: &Model, pods: &Api<Pod>, pod: &Pod) -> Result<()> {
        let (set, name) = (ops::name(&model.set.metadata), ops::name(&pod.metadata));
        let deleted = ops::delete(pods, &pod.metadata).await;
        let (kind, reason, message) = match &deleted {
            Ok(()) => (
                EventKind::Normal,
                "SuccessfulDelete",
                format!("delete Pod {name} in StatefulSet {set} successful"),
            ),
            Err(error) => (
                EventKind::Warning,
                "FailedDelete",
                format!(
                    "delete Pod {name} in StatefulSet {set} failed error: {}",
                    crate::describe(error)
                ),
            ),
        };
        self.recorder.event(model.set.as_ref(), kind, reason, message);
        Ok(deleted?)
    }

    async fn write_status(
        &self,
        model: &Model,
        sets: &Api<StatefulSet>,
        collisions: i32,
        now: Timestamp,
    ) -> Result<()> {
        let next = status::status(model, collisions, now);
        if model
            .set
            .status
            .as_ref()
            .is_some_and(|current| status::same(current, &next))
        {
            return Ok(());
        }
        let updated = StatefulSet {
            status: Some(next),
            ..StatefulSet::clone(&model.set)
        };
        let (name, params) = (ops::name(&model.set.metadata), PostParams::default());
        match sets.replace_status(name, &params, &updated).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Api(error) => crate::describe(error),
        other => other.to_string(),
    }
}
