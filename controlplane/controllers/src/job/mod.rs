//! Jobs: pods that run to their end, until enough of them have.
//!
//! ```text
//!  spec.rs, policy.rs   what a job asks for
//!  view.rs              its pods by what they do, and how far it is
//!  plan.rs, backoff.rs  which pods to make or to delete, and whether it has come to its end
//!  count.rs             each pod counted once, whatever crashes in between
//!  apply.rs             carries the plan out
//!  orphans.rs           lets pods go whose job is gone
//! ```
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.

mod apply;
mod backoff;
mod count;
mod indexes;
mod orphans;
mod plan;
mod pod;
mod policy;
mod spec;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::batch::v1::Job;
use minato_api::k8s::core::v1::Pod;
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, Expectations, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;

use crate::Context;
use crate::error::Result;
use crate::names::JOB_TRACKING;
use crate::written::Written;
use crate::{ops, ownership};
use backoff::Backoff;
use spec::Wanted;
pub(crate) use spec::{COMPLETE, FAILED, ended};

struct Jobs {
    cx: Context,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    expectations: Expectations,
    recorder: Recorder,
    written: Written,
    memory: Mutex<Memory>,
}

/// What only makes things better or earlier: all of it can be lost.
#[derive(Default)]
struct Memory {
    /// Pods whose finalizer was taken off, until the cache shows it: the cache alone would have them counted twice.
    untracked: HashSet<String>,
    backoffs: HashMap<ObjectKey, (String, Backoff)>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Jobs {
        cx: cx.clone(),
        jobs: cx.informer(),
        pods: cx.informer(),
        expectations: Expectations::new(),
        recorder: cx.runtime.recorder("job-controller"),
        written: Written::default(),
        memory: Mutex::default(),
    });
    ownership::add_indexes(&this.pods);
    let (on_job, on_pod) = (this.clone(), this.clone());
    Controller::new("job", &cx.runtime)
        .workers(5)
        .watch(&this.jobs, move |change, add| {
            let key = ObjectKey::of(change.object().as_ref());
            if matches!(change, Change::Deleted(_)) {
                on_job.forget(&key);
            }
            add(key);
        })
        .watch(&this.pods, move |change, add| on_pod.pod_changed(change, add))
        .resync({
            let jobs = this.jobs.clone();
            move || jobs.keys()
        })
        .run({
            let this = this.clone();
            move |key| {
                let this = this.clone();
                async move { this.reconcile(key).await }
            }
        });
    orphans::start(this);
}

fn job_key(pod: &Pod) -> Option<ObjectKey> {
    let owner = ownership::controller(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    Some(ObjectKey::new(ops::namespace(&pod.metadata), &owner.name))
}

fn selector(job: &Job) -> Result<LabelSelector> {
    let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Ok(LabelSelector::from_typed(selector)?)
}

impl Jobs {
    fn forget(&self, key: &ObjectKey) {
        self.expectations.forget(key);
        self.written.forget(key);
        self.memory.lock().backoffs.remove(key);
    }

    fn pod_changed(&self, change: &Change<Pod>, add: &mut dyn FnMut(ObjectKey)) {
        let pod = change.object();
        let uid = ops::uid(&pod.metadata);
        let gone = matches!(change, Change::Deleted(_));
        if gone || !ops::has_finalizer(&pod.metadata, JOB_TRACKING) {
            self.memory.lock().untracked.remove(uid);
        }
        let current = job_key(pod);
        if let Some(key) = &current {
            if matches!(change, Change::Added(_)) {
                self.expectations.created(key);
            }
            if gone || pod.metadata.deletion_timestamp.is_some() {
                self.expectations.deleted(key, uid);
            }
            add(key.clone());
        } else if !gone && ownership::controller(&pod.metadata).is_none() {
            self.matching(pod).for_each(|job| add(ObjectKey::of(job.as_ref())));
        }
        if let Some(former) = change.old().and_then(|old| job_key(old))
            && current.as_ref() != Some(&former)
        {
            add(former);
        }
    }

    /// The jobs whose selector a pod matches.
    fn matching(&self, pod: &Pod) -> impl Iterator<Item = Arc<Job>> {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let jobs = self.jobs.list_in(ops::namespace(&pod.metadata)).into_iter();
        jobs.filter(move |job| selector(job).is_ok_and(|selector| selector.matches_map(&labels)))
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(job) = self.jobs.get(&key) else {
            self.forget(&key);
            return Ok(Next::Done);
        };
        if !Wanted::of(&job).is_ours() || self.written.is_behind(&key, &job.metadata) {
            return Ok(Next::Done);
        }
        let api = ops::namespaced::<Pod>(self.cx.client(), &key.namespace);
        if ended(&job).is_some() {
            self.forget(&key);
            return self.let_go(&job, &api).await;
        }
        let jobs = ops::namespaced::<Job>(self.cx.client(), &key.namespace);
        let selector = selector(&job)?;
        let settled = self.expectations.satisfied(&key);
        let held = Some(JOB_TRACKING);
        let pods = ownership::claim_with(job.as_ref(), &jobs, &selector, &self.pods, &api, |_| true, held).await?;
        let (untracked, past) = self.recall(&key, &job, &pods);
        let plan = plan::plan(
            &job,
            &pods,
            &|uid| untracked.contains(uid),
            past,
            settled,
            Timestamp::now(),
        );
        self.apply(&key, &job, &jobs, &api, plan).await
    }

    fn recall(&self, key: &ObjectKey, job: &Job, pods: &[Arc<Pod>]) -> (HashSet<String>, Option<Backoff>) {
        let memory = self.memory.lock();
        let uids = pods.iter().map(|pod| ops::uid(&pod.metadata));
        let untracked = uids
            .filter(|uid| memory.untracked.contains(*uid))
            .map(str::to_owned)
            .collect();
        let past = memory
            .backoffs
            .get(key)
            .filter(|(uid, _)| uid == ops::uid(&job.metadata));
        (untracked, past.map(|(_, backoff)| *backoff))
    }
}
