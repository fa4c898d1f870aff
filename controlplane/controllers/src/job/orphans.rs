//! Pods that a job's finalizer holds and whose job is gone, or that no job owns: nobody counts them any more.

use std::sync::Arc;

use minato_api::k8s::batch::v1::Job;
use minato_api::k8s::core::v1::Pod;
use minato_runtime::{Change, Controller, Next, ObjectKey};

use super::{Jobs, job_key};
use crate::error::Result;
use crate::names::JOB_TRACKING;
use crate::{ops, ownership};

pub(super) fn start(jobs: Arc<Jobs>) {
    let (on_pod, on_job) = (jobs.clone(), jobs.clone());
    Controller::new("job-orphan-pod", &jobs.cx.runtime)
        .workers(2)
        .watch(&jobs.pods, move |change, add| {
            let pod = change.object();
            if !matches!(change, Change::Deleted(_)) && on_pod.seems_orphaned(pod) {
                add(ObjectKey::of(pod.as_ref()));
            }
        })
        .watch(&jobs.jobs, move |change, add| {
            if let Change::Deleted(job) = change {
                let left = on_job.pods.controlled_by(ops::uid(&job.metadata));
                let orphans = ownership::orphans(&on_job.pods, ops::namespace(&job.metadata));
                for pod in left.iter().chain(&orphans) {
                    if on_job.seems_orphaned(pod) {
                        add(ObjectKey::of(pod.as_ref()));
                    }
                }
            }
        })
        .run(move |key| {
            let jobs = jobs.clone();
            async move { jobs.free(key).await }
        });
}

impl Jobs {
    /// Whether the cache knows no job for a pod that a job's finalizer holds.
    fn seems_orphaned(&self, pod: &Pod) -> bool {
        if !ops::has_finalizer(&pod.metadata, JOB_TRACKING) {
            return false;
        }
        let Some(owner) = ownership::controller(&pod.metadata) else {
            // A job that goes adopts nothing any more.
            return self.matching(pod).all(|job| job.metadata.deletion_timestamp.is_some());
        };
        let job = job_key(pod).and_then(|key| self.jobs.get(&key));
        job.is_none_or(|job| ops::uid(&job.metadata) != owner.uid)
    }

    async fn free(&self, key: ObjectKey) -> Result<Next> {
        let Some(pod) = self.pods.get(&key).filter(|pod| self.seems_orphaned(pod)) else {
            return Ok(Next::Done);
        };
        // The cache of jobs may be behind that of pods: ask.
        if let (Some(job), Some(owner)) = (job_key(&pod), ownership::controller(&pod.metadata)) {
            let jobs = ops::namespaced::<Job>(self.cx.client(), &job.namespace);
            let there = jobs.get_opt(&job.name).await?;
            if there.is_some_and(|there| ops::uid(&there.metadata) == owner.uid) {
                return Ok(Next::Done);
            }
        }
        let pods = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        ops::remove_finalizer(&pods, &pod.metadata, JOB_TRACKING).await?;
        Ok(Next::Done)
    }
}
