//! From pods and their scale to what a budget allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::apimachinery::pkg::util::intstr::IntOrString;
use minato_api::k8s::core::v1::Pod;
use minato_api::k8s::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use minato_api::meta_v1::{Condition, Time};

use crate::error::Result;
use crate::intstr::{Round, scaled};
use crate::{ops, pods};

const ALLOWED: &str = "DisruptionAllowed";
/// How long an evicted pod may take until its deletion is seen; then it counts as one that stays.
const DELETION: SignedDuration = SignedDuration::from_secs(120);

/// What was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) expected: i32,
    pub(super) desired: i32,
    pub(super) healthy: i32,
}

/// Whether the budget is about a share of the pods that there should be, not of those that there are.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// How many of `expected` pods must be healthy. Both kinds of percentages are rounded up.
pub(super) fn desired(budget: &PodDisruptionBudget, expected: i32) -> Result<i32> {
    let Some(spec) = &budget.spec else { return Ok(0) };
    if let Some(most) = &spec.max_unavailable {
        let away = scaled(most, expected, Round::Up)?;
        return Ok(expected.saturating_sub(away).max(0));
    }
    match &spec.min_available {
        Some(least) => scaled(least, expected, Round::Up),
        None => Ok(0),
    }
}

/// Pods that were evicted and are not seen to go yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Disrupted {
    pub(super) pods: BTreeMap<String, Time>,
    /// They should be going for long, and are not.
    pub(super) overdue: Vec<Arc<Pod>>,
    /// When the next one will be overdue.
    pub(super) recheck: Option<Duration>,
}

pub(super) fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> Disrupted {
    let mut found = Disrupted::default();
    let before = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let Some(before) = before else { return found };
    for pod in pods.iter().filter(|pod| !pods::is_terminating(pod)) {
        let name = ops::name(&pod.metadata);
        let Some(at) = before.get(name) else { continue };
        match Duration::try_from(DELETION - now.duration_since(at.0)) {
            Err(_) => found.overdue.push(pod.clone()),
            Ok(left) => {
                found.recheck = Some(found.recheck.map_or(left, |sooner| sooner.min(left)));
                found.pods.insert(name.to_owned(), at.clone());
            }
        }
    }
    found
}

/// Pods that are ready and not about to go.
pub(super) fn healthy(pods: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let stays = |pod: &&Arc<Pod>| !pods::is_terminating(pod) && !disrupted.contains_key(ops::name(&pod.metadata));
    let ready = pods.iter().filter(stays).filter(|pod| pods::is_ready(pod));
    i32::try_from(ready.count()).unwrap_or(i32::MAX)
}

/// The status of a budget whose pods were counted.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    counts: &Counts,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut allowed = counts.healthy.saturating_sub(counts.desired).max(0);
    if counts.expected <= 0 {
        // The first pods may appear before we have looked at them.
        allowed = 0;
    }
    let (word, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    PodDisruptionBudgetStatus {
        current_healthy: Some(counts.healthy),
        desired_healthy: Some(counts.desired),
        expected_pods: Some(counts.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions(budget, (word, reason), "", budget.metadata.generation, now)),
    }
}

/// The status of a budget whose pods could not be counted.
pub(super) fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let current = budget.status.clone().unwrap_or_default();
    let observed = current.observed_generation;
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        current_healthy: Some(current.current_healthy.unwrap_or(0)),
        desired_healthy: Some(current.desired_healthy.unwrap_or(0)),
        expected_pods: Some(current.expected_pods.unwrap_or(0)),
        conditions: Some(conditions(budget, ("False", "SyncFailed"), why, observed, now)),
        ..current
    }
}

/// The conditions with `DisruptionAllowed` as given. Its time is kept while its status is the same.
fn conditions(
    budget: &PodDisruptionBudget,
    (word, reason): (&str, &str),
    message: &str,
    observed: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let current = budget.status.as_ref().and_then(|status| status.conditions.clone());
    let mut conditions = current.unwrap_or_default();
    let known = conditions.iter().position(|condition| condition.type_ == ALLOWED);
    let since = known
        .and_then(|index| conditions.get(index))
        .filter(|condition| condition.status == word)
        .map_or(Time(now), |condition| condition.last_transition_time.clone());
    let next = Condition {
        type_: ALLOWED.to_owned(),
        status: word.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: observed,
        last_transition_time: since,
    };
    match known.and_then(|index| conditions.get_mut(index)) {
        Some(known) => *known = next,
        None => conditions.push(next),
    }
    conditions
}
