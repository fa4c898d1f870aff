//! What a Deployment tells about its rollout.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet};
use minato_api::kube::ResourceExt;
use minato_api::meta_v1::Time;

use super::model::{Model, available};

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
/// Upstream's way to say "no deadline".
const NO_DEADLINE: i32 = i32::MAX;

/// Sums over the ReplicaSets, in a status that is otherwise the present one.
pub(super) fn counts(model: &Model) -> DeploymentStatus {
    let sum = |of: &dyn Fn(&ReplicaSet) -> i32| model.all().map(|set| of(set)).sum::<i32>();
    let replicas = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let wanted = sum(&super::model::spec_replicas);
    let ready = sum(&|set| {
        set.status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or(0)
    });
    let terminating = sum(&|set| {
        set.status
            .as_ref()
            .and_then(|status| status.terminating_replicas)
            .unwrap_or(0)
    });
    let have = sum(&|set| available(set));
    let current = model.deployment.status.clone().unwrap_or_default();
    DeploymentStatus {
        observed_generation: model.deployment.metadata.generation,
        replicas: Some(sum(&replicas)),
        updated_replicas: Some(model.new.as_ref().map_or(0, |set| replicas(set))),
        ready_replicas: Some(ready),
        available_replicas: Some(have),
        unavailable_replicas: Some((wanted - have).max(0)),
        terminating_replicas: Some(terminating),
        ..current
    }
}

/// Whether all pods are of the current template and available, and no others are left.
pub(super) fn is_complete(model: &Model, status: &DeploymentStatus) -> bool {
    let is = |count: Option<i32>| count.unwrap_or(0) == model.replicas;
    is(status.updated_replicas) && is(status.replicas) && is(status.available_replicas)
}

/// What a reconciliation did that conditions tell.
#[derive(Debug, Default)]
pub(super) struct Did {
    /// A ReplicaSet was created, of this name.
    pub(super) created: Option<String>,
    /// Creating one failed, and why.
    pub(super) failed: Option<String>,
    /// The name of a new ReplicaSet was taken by a different one.
    pub(super) collided: bool,
}

/// The status after a reconciliation, and when time alone will change it.
pub(super) fn status(model: &Model, did: &Did, now: Timestamp) -> (DeploymentStatus, Option<Duration>) {
    let before = model.deployment.status.clone().unwrap_or_default();
    let mut status = counts(model);
    if did.collided {
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    }
    let mut conditions = Conditions {
        list: status.conditions.take().unwrap_or_default(),
        now,
    };
    let enough = status.available_replicas.unwrap_or(0) >= model.replicas - model.max_unavailable;
    if enough {
        conditions.set(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        );
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
    }
    let wake = progress(model, did, &before, &status, &mut conditions);
    replica_failure(model, did, &mut conditions);
    status.conditions = Some(conditions.list);
    (status, wake)
}

fn progress(
    model: &Model,
    did: &Did,
    before: &DeploymentStatus,
    status: &DeploymentStatus,
    conditions: &mut Conditions,
) -> Option<Duration> {
    let deadline = model.spec.progress_deadline_seconds.unwrap_or(600);
    if deadline == NO_DEADLINE {
        conditions.remove(PROGRESSING);
        return None;
    }
    let reason = conditions.reason(PROGRESSING).unwrap_or_default().to_owned();
    if model.spec.paused == Some(true) {
        if reason != TIMED_OUT {
            conditions.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused");
        }
        return None;
    }
    if reason == PAUSED {
        conditions.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed");
    }
    let subject = match (&did.created, &model.new) {
        (Some(name), _) => format!("ReplicaSet {name:?}"),
        (None, Some(new)) => format!("ReplicaSet {:?}", new.name_any()),
        (None, None) => format!("Deployment {:?}", model.deployment.name_any()),
    };
    if let Some(name) = &did.created {
        conditions.set(
            PROGRESSING,
            "True",
            "NewReplicaSetCreated",
            &format!("Created new replica set {name:?}"),
        );
        return conditions.deadline(PROGRESSING, deadline);
    }
    if let Some(failed) = &did.failed {
        conditions.set(PROGRESSING, "False", "ReplicaSetCreateError", failed);
        return None;
    }
    if conditions.reason(PROGRESSING).is_none() && model.new.is_some() {
        conditions.set(
            PROGRESSING,
            "True",
            "FoundNewReplicaSet",
            &format!("Found new {subject}"),
        );
    }
    if reason == COMPLETE && status.replicas == status.updated_replicas {
        // Complete once: pods that fail later are no rollout.
        return None;
    }
    if is_complete(model, status) {
        conditions.set(
            PROGRESSING,
            "True",
            COMPLETE,
            &format!("{subject} has successfully progressed."),
        );
        return None;
    }
    if moved(before, status) {
        conditions.refresh(PROGRESSING, "ReplicaSetUpdated", &format!("{subject} is progressing."));
    } else if reason != COMPLETE && conditions.is_past(PROGRESSING, deadline) {
        conditions.set(
            PROGRESSING,
            "False",
            TIMED_OUT,
            &format!("{subject} has timed out progressing."),
        );
        return None;
    }
    conditions.deadline(PROGRESSING, deadline)
}

fn moved(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
    let grew = |a: Option<i32>, b: Option<i32>| b.unwrap_or(0) > a.unwrap_or(0);
    grew(before.updated_replicas, now.updated_replicas)
        || old(now) < old(before)
        || grew(before.ready_replicas, now.ready_replicas)
        || grew(before.available_replicas, now.available_replicas)
}

/// The failure to make pods, as the ReplicaSets tell it: the current one's first.
fn replica_failure(model: &Model, did: &Did, conditions: &mut Conditions) {
    if did.created.is_some() {
        conditions.remove(FAILURE);
        return;
    }
    let of = |set: &ReplicaSet| {
        let conditions = set
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == FAILURE)
    };
    match model.new.iter().chain(&model.old).find_map(|set| of(set)) {
        Some(failure) => {
            let (reason, message) = (failure.reason.unwrap_or_default(), failure.message.unwrap_or_default());
            conditions.set(FAILURE, &failure.status, &reason, &message);
        }
        None => conditions.remove(FAILURE),
    }
}

struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    fn get(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.list.iter().find(|condition| condition.type_ == type_)
    }

    fn reason(&self, type_: &str) -> Option<&str> {
        self.get(type_)?.reason.as_deref()
    }

    fn remove(&mut self, type_: &str) {
        self.list.retain(|condition| condition.type_ != type_);
    }

    /// Sets a condition unless it has this status and reason already.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let current = self.get(type_);
        if current.is_some_and(|current| current.status == status && current.reason.as_deref() == Some(reason)) {
            return;
        }
        self.put(type_, status, reason, message);
    }

    /// Sets a condition to true and its update time to now, even if nothing else changes.
    fn refresh(&mut self, type_: &str, reason: &str, message: &str) {
        self.put(type_, "True", reason, message);
    }

    fn put(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let since = self.get(type_).filter(|current| current.status == status);
        let since = since.and_then(|current| current.last_transition_time.clone());
        let fresh = DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(Time(self.now)),
            last_transition_time: since.or(Some(Time(self.now))),
        };
        match self.list.iter_mut().find(|condition| condition.type_ == type_) {
            Some(current) => *current = fresh,
            None => self.list.push(fresh),
        }
    }

    fn left(&self, type_: &str, seconds: i32) -> Option<SignedDuration> {
        let condition = self
            .get(type_)
            .filter(|condition| condition.reason.as_deref() != Some(TIMED_OUT))?;
        let since = condition.last_update_time.as_ref()?.0;
        Some(SignedDuration::from_secs(i64::from(seconds)) - self.now.duration_since(since))
    }

    fn is_past(&self, type_: &str, seconds: i32) -> bool {
        self.left(type_, seconds)
            .is_some_and(|left| left.is_negative() || left.is_zero())
    }

    /// How long until the condition is past the deadline.
    fn deadline(&self, type_: &str, seconds: i32) -> Option<Duration> {
        let left = self.left(type_, seconds)?;
        // A little later than due, so that rounding does not make a second pass necessary.
        Duration::try_from(left)
            .ok()
            .map(|left| left + Duration::from_millis(10))
    }
}
