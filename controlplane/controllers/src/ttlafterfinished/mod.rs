//! Deletes jobs some time after they ended, if they say so.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::batch::v1::Job;
use minato_api::kube::api::{DeleteParams, PropagationPolicy};
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};

use crate::error::Result;
use crate::{Context, job, ops};

struct Finished {
    cx: Context,
    jobs: Informer<Job>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Finished {
        cx: cx.clone(),
        jobs: cx.informer(),
    });
    let jobs = this.jobs.clone();
    Controller::new("ttl-jobs-to-delete", &cx.runtime)
        .watch(&this.jobs, |change, add| {
            let job = change.object();
            if !matches!(change, Change::Deleted(_)) && left(job, Timestamp::UNIX_EPOCH).is_some() {
                add(ObjectKey::of(job.as_ref()));
            }
        })
        .resync(move || jobs.keys())
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// How long a job is still kept. `None`: until someone deletes it, or until it ends.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let ended = job::ended(job)?.last_transition_time.as_ref()?.0;
    let left = SignedDuration::from_secs(i64::from(seconds)).saturating_sub(now.duration_since(ended));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

impl Finished {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let cached = self.jobs.get(&key);
        match cached.and_then(|job| left(&job, Timestamp::now())) {
            None => return Ok(Next::Done),
            Some(left) if !left.is_zero() => return Ok(Next::After(left)),
            Some(_) => {}
        }
        // It may have been given more time meanwhile.
        let jobs = ops::namespaced::<Job>(self.cx.client(), &key.namespace);
        let Some(fresh) = jobs.get_opt(&key.name).await? else {
            return Ok(Next::Done);
        };
        match left(&fresh, Timestamp::now()) {
            None => Ok(Next::Done),
            Some(left) if !left.is_zero() => Ok(Next::After(left)),
            Some(_) => {
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Foreground),
                    ..DeleteParams::default()
                };
                ops::delete_with(&jobs, &fresh.metadata, params).await?;
                Ok(Next::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(ttl: Option<i32>, condition: &str) -> Job {
        let condition = json!({"type": condition, "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"});
        serde_json::from_value(json!({
            "spec": {"ttlSecondsAfterFinished": ttl, "template": {}}, "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn the_time_counts_from_the_end() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(left(&job(Some(30), "Complete"), at(110)), Some(seconds(20)));
        assert_eq!(left(&job(Some(30), "Failed"), at(200)), Some(seconds(0)));
        assert_eq!(left(&job(Some(0), "Failed"), at(100)), Some(seconds(0)));
        assert_eq!(left(&job(None, "Complete"), at(200)), None);
        assert_eq!(left(&job(Some(30), "FailureTarget"), at(200)), None);
        let mut deleted = job(Some(30), "Complete");
        deleted.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(at(1)));
        assert_eq!(left(&deleted, at(200)), None);
    }
}
