//! Carries plans out.

use minato_api::k8s::core::v1::Pod;
use minato_api::kube::api::PostParams;
use minato_api::kube::{self, Api};
use minato_runtime::{EventKind, ObjectKey};

use super::Replicas;
use super::kind::ReplicaKind;
use super::plan::Step;
use crate::error::{Result, is_not_found};
use crate::{ops, ownership, pods};

impl<K: ReplicaKind> Replicas<K> {
    /// Returns the first failure, with the reason that the condition `ReplicaFailure` gives.
    pub(super) async fn apply(
        &self,
        set: &K,
        key: &ObjectKey,
        api: &Api<Pod>,
        step: Step,
    ) -> Option<(&'static str, kube::Error)> {
        match step {
            Step::Nothing => None,
            Step::Create(count) => {
                let failure = self.create(set, key, api, count).await;
                failure.map(|error| ("FailedCreate", error))
            }
            Step::Delete(pods) => {
                for pod in &pods {
                    self.expectations.expect_deletion(key, ops::uid(&pod.metadata));
                }
                let jobs = pods.iter().map(|pod| self.delete(set, key, api, pod));
                ops::all(jobs).await.err().map(|error| ("FailedDelete", error))
            }
        }
    }

    async fn create(&self, set: &K, key: &ObjectKey, api: &Api<Pod>, count: usize) -> Option<kube::Error> {
        let template = set.template()?;
        let pod = pods::from_template(template, &key.namespace, &key.name, ownership::reference(set));
        self.expectations.expect_creations(key, count);
        let (tried, failure) = ops::slow_start(count, |_| self.create_one(set, key, api, &pod)).await;
        for _ in tried..count {
            self.expectations.created(key);
        }
        failure
    }

    async fn create_one(
        &self,
        set: &K,
        key: &ObjectKey,
        api: &Api<Pod>,
        pod: &Pod,
    ) -> std::result::Result<(), kube::Error> {
        match api.create(&PostParams::default(), pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", ops::name(&created.metadata));
                self.recorder.event(set, EventKind::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                self.expectations.created(key);
                if !crate::error::is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", crate::describe(&error));
                    self.recorder.event(set, EventKind::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        set: &K,
        key: &ObjectKey,
        api: &Api<Pod>,
        pod: &Pod,
    ) -> std::result::Result<(), kube::Error> {
        let deleted = ops::delete(api, &pod.metadata).await;
        let name = ops::name(&pod.metadata);
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
                    self.expectations.deleted(key, ops::uid(&pod.metadata));
                }
            }
            Err(error) => {
                self.expectations.deleted(key, ops::uid(&pod.metadata));
                let message = format!("Error deleting: {}", crate::describe(error));
                self.recorder.event(set, EventKind::Warning, "FailedDelete", message);
            }
        }
        deleted
    }

    pub(super) async fn write_status(&self, api: &Api<K>, set: &K, next: Option<K>) -> Result<()> {
        let Some(next) = next else { return Ok(()) };
        match api
            .replace_status(ops::name(set.meta()), &PostParams::default(), &next)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
