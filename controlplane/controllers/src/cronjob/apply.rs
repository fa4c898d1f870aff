//! Carries plans out.

use minato_api::k8s::batch::v1::{CronJob, CronJobStatus, Job};
use minato_api::k8s::core::v1::ObjectReference;
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_runtime::{EventKind, Next, ObjectKey};

use super::CronJobs;
use super::plan::{self, Plan, Start};
use crate::error::{Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::{job, ops, ownership};

impl CronJobs {
    pub(super) async fn apply(&self, key: &ObjectKey, cron: &CronJob, jobs: &Api<Job>, plan: Plan) -> Result<Next> {
        for (kind, reason, message) in plan.notes {
            self.recorder.event(cron, kind, reason, message);
        }
        for job in &plan.delete {
            ops::delete_background(jobs, &job.metadata).await?;
            self.told_deletion(cron, ops::name(&job.metadata));
        }
        let mut status = plan.status;
        if let Some(start) = plan.start {
            for reference in &start.replaced {
                self.replace(cron, jobs, reference).await?;
            }
            // The job before the status: should we end in between, its name tells that the run has begun.
            if let Some(job) = self.create(cron, jobs, &start).await? {
                let active = job::ended(&job).is_none().then(|| plan::reference(&job));
                plan::begun(&mut status, start.at, active);
            }
        }
        self.write_status(key, cron, status).await?;
        Ok(plan.wake.map_or(Next::Done, Next::After))
    }

    fn told_deletion(&self, cron: &CronJob, name: &str) {
        let message = format!("Deleted job {name}");
        self.recorder
            .event(cron, EventKind::Normal, "SuccessfulDelete", message);
    }

    async fn replace(&self, cron: &CronJob, jobs: &Api<Job>, active: &ObjectReference) -> Result<()> {
        let Some(name) = &active.name else { return Ok(()) };
        let job = jobs.get_opt(name).await?.filter(|job| job.metadata.uid == active.uid);
        if let Some(job) = job {
            ops::delete_background(jobs, &job.metadata).await?;
            self.told_deletion(cron, name);
        }
        Ok(())
    }

    /// The job of the run, made now or before. `None`: it is not to be.
    async fn create(&self, cron: &CronJob, jobs: &Api<Job>, start: &Start) -> Result<Option<Job>> {
        let name = ops::name(&start.job.metadata);
        match jobs.create(&PostParams::default(), &start.job).await {
            Ok(job) => {
                let message = format!("Created job {name}");
                self.recorder
                    .event(cron, EventKind::Normal, "SuccessfulCreate", message);
                Ok(Some(job))
            }
            Err(error) if is_already_exists(&error) => {
                let uid = ops::uid(&cron.metadata);
                let there = jobs.get_opt(name).await?;
                Ok(there.filter(|job| ownership::is_controlled_by(&job.metadata, uid)))
            }
            Err(error) if is_namespace_terminating(&error) => Ok(None),
            Err(error) => {
                let message = format!("Error creating job: {}", crate::describe(&error));
                self.recorder.event(cron, EventKind::Warning, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    async fn write_status(&self, key: &ObjectKey, cron: &CronJob, status: CronJobStatus) -> Result<()> {
        if cron.status.as_ref().unwrap_or(&CronJobStatus::default()) == &status {
            return Ok(());
        }
        let next = CronJob {
            status: Some(status),
            ..cron.clone()
        };
        let crons = ops::namespaced::<CronJob>(self.cx.client(), &key.namespace);
        match crons.replace_status(&key.name, &PostParams::default(), &next).await {
            Ok(written) => {
                self.written.note(key, &written.metadata);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
