//! Carries plans out.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use minato_api::k8s::batch::v1::{Job, JobStatus};
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::api::PostParams;
use minato_api::kube::{self, Api};
use minato_runtime::{EventKind, Next, ObjectKey};

use super::plan::{Plan, Step};
use super::pod::NewPod;
use super::spec::COMPLETE;
use super::{Jobs, count, pod};
use crate::error::{Result, is_namespace_terminating, is_not_found};
use crate::names::JOB_TRACKING;
use crate::ops;

/// What became of a step.
#[derive(Default)]
struct Done {
    /// By how much there are more active pods.
    active: i32,
    failure: Option<kube::Error>,
}

impl Jobs {
    pub(super) async fn apply(
        &self,
        key: &ObjectKey,
        job: &Arc<Job>,
        jobs: &Api<Job>,
        api: &Api<Pod>,
        plan: Plan,
    ) -> Result<Next> {
        let done = self.step(job, key, api, plan.step).await;
        let mut status = plan.status;
        status.active = count::some(status.active.unwrap_or(0).saturating_add(done.active));
        // First the status, then the finalizers: the other way round, a crash in between would lose pods.
        let Some(mut current) = self.write(key, job, jobs, &status).await? else {
            return Ok(Next::Done);
        };
        let uid = ops::uid(&job.metadata).to_owned();
        self.memory.lock().backoffs.insert(key.clone(), (uid, plan.backoff));
        for (kind, reason, message) in plan.notes {
            self.recorder.event(job.as_ref(), kind, &reason, message);
        }
        let (released, failure) = self.release(api, &plan.release).await;
        let counted = count::settle(&mut status, |uid| released.iter().any(|released| released == uid));
        let end = plan.end.filter(|_| counted && failure.is_none());
        if let Some(end) = &end {
            if end.type_ == COMPLETE {
                status.completion_time.clone_from(&end.last_transition_time);
            }
            status.conditions.get_or_insert_default().push(end.clone());
        }
        match self.write(key, &current, jobs, &status).await? {
            Some(written) => current = written,
            None => return Ok(Next::Done),
        }
        if let Some(end) = end {
            let (kind, reason, message) = match end.type_.as_str() {
                COMPLETE => (EventKind::Normal, "Completed".to_owned(), "Job completed".to_owned()),
                _ => (
                    EventKind::Warning,
                    end.reason.unwrap_or_default(),
                    end.message.unwrap_or_default(),
                ),
            };
            self.recorder.event(current.as_ref(), kind, &reason, message);
        }
        match failure.or(done.failure) {
            Some(error) if is_namespace_terminating(&error) => Ok(Next::Done),
            Some(error) => Err(error.into()),
            None => Ok(plan.wake.map_or(Next::Done, Next::After)),
        }
    }

    async fn step(&self, job: &Job, key: &ObjectKey, api: &Api<Pod>, step: Step) -> Done {
        match step {
            Step::Nothing => Done::default(),
            Step::Create(new) => self.create(job, key, api, new).await,
            Step::Delete { pods, count } => self.delete(job, key, api, &pods, count).await,
        }
    }

    async fn create(&self, job: &Job, key: &ObjectKey, api: &Api<Pod>, new: Vec<NewPod>) -> Done {
        let Some(spec) = &job.spec else { return Done::default() };
        let pods: Vec<Pod> = new.into_iter().map(|new| pod::make(job, &spec.template, new)).collect();
        self.expectations.expect_creations(key, pods.len());
        let made = std::sync::atomic::AtomicI32::new(0);
        let (tried, failure) = ops::slow_start(pods.len(), |at| {
            let (pod, made) = (pods.get(at), &made);
            async move {
                let Some(pod) = pod else { return Ok(()) };
                let created = self.create_one(job, key, api, pod).await;
                if created.is_ok() {
                    made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                created
            }
        })
        .await;
        for _ in tried..pods.len() {
            self.expectations.created(key);
        }
        Done {
            active: made.into_inner(),
            failure,
        }
    }

    async fn create_one(
        &self,
        job: &Job,
        key: &ObjectKey,
        api: &Api<Pod>,
        pod: &Pod,
    ) -> std::result::Result<(), kube::Error> {
        match api.create(&PostParams::default(), pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", ops::name(&created.metadata));
                self.recorder.event(job, EventKind::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                self.expectations.created(key);
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", crate::describe(&error));
                    self.recorder.event(job, EventKind::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    async fn delete(&self, job: &Job, key: &ObjectKey, api: &Api<Pod>, pods: &[Arc<Pod>], count: bool) -> Done {
        for pod in pods {
            self.expectations.expect_deletion(key, ops::uid(&pod.metadata));
        }
        let mut running: FuturesUnordered<_> = pods
            .iter()
            .map(|pod| self.delete_one(job, key, api, pod, count))
            .collect();
        let mut done = Done::default();
        while let Some(outcome) = running.next().await {
            match outcome {
                Ok(()) => done.active -= 1,
                Err(error) => done.failure = done.failure.or(Some(error)),
            }
        }
        done
    }

    async fn delete_one(
        &self,
        job: &Job,
        key: &ObjectKey,
        api: &Api<Pod>,
        pod: &Pod,
        count: bool,
    ) -> std::result::Result<(), kube::Error> {
        let deleted = async {
            // Without the finalizer it never counts as failed.
            if !count {
                self.release_one(api, pod).await?;
            }
            ops::delete(api, &pod.metadata).await
        };
        let deleted = deleted.await;
        let (name, uid) = (ops::name(&pod.metadata), ops::uid(&pod.metadata));
        match &deleted {
            Ok(()) => {
                let message = format!("Deleted pod: {name}");
                self.recorder.event(job, EventKind::Normal, "SuccessfulDelete", message);
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
                self.recorder.event(job, EventKind::Warning, "FailedDelete", message);
            }
        }
        deleted
    }

    /// Takes finalizers off. Returns the uids that have none any more, and the first failure.
    async fn release(&self, api: &Api<Pod>, pods: &[Arc<Pod>]) -> (Vec<String>, Option<kube::Error>) {
        let release = |pod: &Arc<Pod>| {
            let pod = pod.clone();
            async move {
                self.release_one(api, &pod)
                    .await
                    .map(|()| ops::uid(&pod.metadata).to_owned())
            }
        };
        let mut running: FuturesUnordered<_> = pods.iter().map(release).collect();
        let (mut released, mut failure) = (Vec::new(), None);
        while let Some(outcome) = running.next().await {
            match outcome {
                Ok(uid) => released.push(uid),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (released, failure)
    }

    async fn release_one(&self, api: &Api<Pod>, pod: &Pod) -> std::result::Result<(), kube::Error> {
        if !ops::has_finalizer(&pod.metadata, JOB_TRACKING) {
            return Ok(());
        }
        let uid = ops::uid(&pod.metadata);
        self.memory.lock().untracked.insert(uid.to_owned());
        let removed = ops::remove_finalizer(api, &pod.metadata, JOB_TRACKING).await;
        let shown = || {
            let cached = self.pods.get(&ObjectKey::of(pod));
            let cached = cached.filter(|cached| cached.metadata.uid == pod.metadata.uid);
            cached.is_none_or(|cached| !ops::has_finalizer(&cached.metadata, JOB_TRACKING))
        };
        // The event that would make us forget may have come before we remembered.
        if removed.is_err() || shown() {
            self.memory.lock().untracked.remove(uid);
        }
        removed
    }

    /// Lets pods go that a job which has ended still holds.
    pub(super) async fn let_go(&self, job: &Job, api: &Api<Pod>) -> Result<Next> {
        let pods = self.pods.controlled_by(ops::uid(&job.metadata));
        match self.release(api, &pods).await.1 {
            Some(error) => Err(error.into()),
            None => Ok(Next::Done),
        }
    }

    /// Writes the status if it differs. `None`: the job is gone.
    async fn write(
        &self,
        key: &ObjectKey,
        job: &Arc<Job>,
        jobs: &Api<Job>,
        status: &JobStatus,
    ) -> Result<Option<Arc<Job>>> {
        if job.status.as_ref() == Some(status) {
            return Ok(Some(job.clone()));
        }
        let next = Job {
            status: Some(status.clone()),
            ..Job::clone(job)
        };
        match jobs.replace_status(&key.name, &PostParams::default(), &next).await {
            Ok(written) => {
                self.written.note(key, &written.metadata);
                Ok(Some(Arc::new(written)))
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
