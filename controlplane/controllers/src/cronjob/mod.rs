//! CronJobs: jobs that begin by the clock.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>.

mod apply;
mod due;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::batch::v1::{CronJob, Job};
use minato_api::kube::Api;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey, Recorder};

use crate::Context;
use crate::error::Result;
use crate::written::Written;
use crate::{ops, ownership};

struct CronJobs {
    cx: Context,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
    recorder: Recorder,
    written: Written,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(CronJobs {
        cx: cx.clone(),
        crons: cx.informer(),
        jobs: cx.informer(),
        recorder: cx.runtime.recorder("cronjob-controller"),
        written: Written::default(),
    });
    this.jobs.index_by_controller();
    let on_cron = this.clone();
    Controller::new("cronjob", &cx.runtime)
        .watch(&this.crons, move |change, add| {
            let key = ObjectKey::of(change.object().as_ref());
            if matches!(change, Change::Deleted(_)) {
                on_cron.written.forget(&key);
            }
            add(key);
        })
        .watch(&this.jobs, |change, add| {
            let owner = ownership::controller(&change.object().metadata).filter(|owner| owner.kind == "CronJob");
            if let Some(owner) = owner {
                add(ObjectKey::new(ops::namespace(&change.object().metadata), &owner.name));
            }
        })
        .resync({
            let crons = this.crons.clone();
            move || crons.keys()
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl CronJobs {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(cron) = self.crons.get(&key) else {
            return Ok(Next::Done);
        };
        if self.written.is_behind(&key, &cron.metadata) {
            return Ok(Next::Done);
        }
        let api = ops::namespaced::<Job>(self.cx.client(), &key.namespace);
        let jobs = self.jobs.controlled_by(ops::uid(&cron.metadata));
        let missing = missing(&cron, &jobs, &api).await?;
        let plan = plan::plan(&cron, &jobs, &missing, Timestamp::now());
        self.apply(&key, &cron, &api, plan).await
    }
}

/// The active jobs that do not exist. Those that only the cache does not know yet do.
async fn missing(cron: &CronJob, jobs: &[Arc<Job>], api: &Api<Job>) -> Result<HashSet<String>> {
    let mut missing = HashSet::new();
    let active = cron.status.iter().flat_map(|status| status.active.iter().flatten());
    for reference in active {
        let (Some(name), Some(uid)) = (&reference.name, &reference.uid) else {
            continue;
        };
        if jobs.iter().any(|job| ops::uid(&job.metadata) == uid) {
            continue;
        }
        let there = api.get_opt(name).await?;
        if there.is_none_or(|there| ops::uid(&there.metadata) != uid) {
            missing.insert(uid.clone());
        }
    }
    Ok(missing)
}
