//! What a job asks for, and what it already tells about itself.

use jiff::Timestamp;
use minato_api::k8s::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use minato_api::k8s::core::v1::Pod;
use minato_api::meta_v1::Time;

use crate::pods;

/// Who manages jobs that say so explicitly; others are not ours.
const OURS: &str = "kubernetes.io/job-controller";

/// Types of the conditions of jobs.
pub(crate) const COMPLETE: &str = "Complete";
pub(crate) const FAILED: &str = "Failed";
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
pub(super) const SUSPENDED: &str = "Suspended";

/// A job with its defaults.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) job: &'a Job,
    spec: Option<&'a JobSpec>,
}

impl<'a> Wanted<'a> {
    pub(super) fn of(job: &'a Job) -> Self {
        Self {
            job,
            spec: job.spec.as_ref(),
        }
    }

    pub(super) fn spec(&self) -> Option<&'a JobSpec> {
        self.spec
    }

    /// Whether this controller is to run the job.
    pub(super) fn is_ours(&self) -> bool {
        let manager = self.spec.and_then(|spec| spec.managed_by.as_deref());
        let mode = self.spec.and_then(|spec| spec.completion_mode.as_deref());
        manager.is_none_or(|manager| manager == OURS) && matches!(mode, None | Some("NonIndexed" | "Indexed"))
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.spec.and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.and_then(|spec| spec.suspend).unwrap_or(false)
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn parallelism(&self) -> i32 {
        self.spec.and_then(|spec| spec.parallelism).unwrap_or(1)
    }

    pub(super) fn completions(&self) -> Option<i32> {
        self.spec.and_then(|spec| spec.completions)
    }

    pub(super) fn backoff_limit(&self) -> i32 {
        self.spec.and_then(|spec| spec.backoff_limit).unwrap_or(6)
    }

    /// How often each index may be tried again, if that is counted by index.
    pub(super) fn limit_per_index(&self) -> Option<i32> {
        self.spec?.backoff_limit_per_index.filter(|_| self.is_indexed())
    }

    /// Whether a pod is only made anew when the one before has come to its end.
    pub(super) fn replaces_only_failed(&self) -> bool {
        self.spec.is_some_and(|spec| {
            spec.pod_failure_policy.is_some() || spec.pod_replacement_policy.as_deref() == Some("Failed")
        })
    }

    /// Whether containers are started again in place instead of failing their pods.
    pub(super) fn restarts_in_place(&self) -> bool {
        let template = self.spec.and_then(|spec| spec.template.spec.as_ref());
        template.and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure")
    }

    /// A pod that is being deleted counts as failed, unless the job waits to see how it ends.
    pub(super) fn has_failed(&self, pod: &Pod) -> bool {
        match pods::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => pods::is_terminating(pod) && !self.replaces_only_failed(),
        }
    }

    /// Whether the pod stands for one of the job's completions; without indexes all do.
    pub(super) fn has_place_for(&self, pod: &Pod) -> bool {
        !self.is_indexed() || self.index(pod).is_some()
    }

    /// The index of a pod, if it is one of the job's.
    pub(super) fn index(&self, pod: &Pod) -> Option<i32> {
        let index = super::pod::index(pod)?;
        (0..self.completions().unwrap_or(0)).contains(&index).then_some(index)
    }
}

/// The condition of this type that is true.
pub(super) fn holds<'a>(status: Option<&'a JobStatus>, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = status?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// The condition by which a job has ended, [`COMPLETE`] or [`FAILED`].
pub(crate) fn ended(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref();
    holds(status, COMPLETE).or_else(|| holds(status, FAILED))
}

pub(super) fn condition(type_: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}
