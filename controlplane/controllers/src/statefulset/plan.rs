//! From the pods that are there to what to do.
//!
//! Ordinals come in order and go in reverse, each after the one before it is available; `Parallel` waits for nobody.
//! Making the set whole comes before scaling down, and both before a rollout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Pod;

use super::identity;
use super::model::{Model, is_running_and_ready};
use crate::error::Result;
use crate::intstr::{Round, scaled};
use crate::pods::{self, Availability};

/// At most so many pods are made in one go.
const BURST: usize = 500;

/// Something to do about one ordinal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Make its claims and its pod.
    Create(i64),
    /// Delete its pod, which has ended, so that it is made anew.
    Recreate(Arc<Pod>),
    /// See to the labels of its pod and to its claims.
    Mend(i64, Arc<Pod>),
}

/// What to do, in this order; a failure ends it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// About the ordinals that there should be.
    pub(super) keep: Vec<Step>,
    /// Pods beyond them to delete.
    pub(super) scale_down: Vec<Arc<Pod>>,
    /// Pods to delete so that they come back in the new revision.
    pub(super) update: Vec<Arc<Pod>>,
    /// When time alone makes a pod available.
    pub(super) wake: Option<Duration>,
}

fn is_available(pod: &Pod, model: &Model, now: Timestamp) -> bool {
    is_running_and_ready(pod) && pods::availability(pod, model.min_ready_seconds(), now) == Availability::Yes
}

fn is_available_and_stays(pod: &Pod, model: &Model, now: Timestamp) -> bool {
    is_available(pod, model, now) && !pods::is_terminating(pod)
}

pub(super) fn plan(model: &Model, now: Timestamp) -> Result<Plan> {
    let mut plan = Plan {
        wake: wake(model, now),
        ..Plan::default()
    };
    if keep(model, now, &mut plan.keep) {
        return Ok(plan);
    }
    plan.scale_down = scale_down(model, now);
    if !model.is_parallel() && !model.condemned.is_empty() {
        return Ok(plan);
    }
    if model.rolls() {
        plan.update = update(model, now)?;
    }
    Ok(plan)
}

fn wake(model: &Model, now: Timestamp) -> Option<Duration> {
    let waits = model.pods().filter(|pod| is_running_and_ready(pod));
    let left = waits.filter_map(|pod| match pods::availability(pod, model.min_ready_seconds(), now) {
        Availability::In(left) => Some(left),
        Availability::Yes | Availability::No => None,
    });
    left.min()
}

/// Returns whether anything further has to wait.
fn keep(model: &Model, now: Timestamp, steps: &mut Vec<Step>) -> bool {
    let in_order = !model.is_parallel();
    let mut made = 0;
    for ordinal in model.start..model.start + model.replicas {
        let Some(pod) = model.kept.get(&ordinal) else {
            steps.push(Step::Create(ordinal));
            made += 1;
            if in_order || made == BURST {
                return true;
            }
            continue;
        };
        if pods::is_finished(pod) {
            if !pods::is_terminating(pod) {
                steps.push(Step::Recreate(pod.clone()));
            }
            if in_order {
                return true;
            }
            continue;
        }
        let ready = is_available_and_stays(pod, model, now);
        // Who waits for a claim gets it even out of turn.
        if !in_order || ready || pods::phase(pod) == "Pending" {
            steps.push(Step::Mend(ordinal, pod.clone()));
        }
        if in_order && !ready {
            return true;
        }
    }
    false
}

fn scale_down(model: &Model, now: Timestamp) -> Vec<Arc<Pod>> {
    let staying = |pod: &&Arc<Pod>| !pods::is_terminating(pod);
    if model.is_parallel() {
        return model.condemned.values().rev().filter(staying).cloned().collect();
    }
    let Some((highest, pod)) = model.condemned.last_key_value() else {
        return Vec::new();
    };
    if pods::is_terminating(pod) {
        return Vec::new();
    }
    // An ailing pod may go if no other ails: going is then the only way on.
    let ailing = |pod: &Pod| !is_running_and_ready(pod) || pods::is_terminating(pod);
    let first_ailing = model
        .condemned
        .iter()
        .find(|(_, pod)| ailing(pod))
        .map(|(ordinal, _)| ordinal);
    let may_go = is_available(pod, model, now) || first_ailing == Some(highest);
    may_go.then(|| pod.clone()).into_iter().collect()
}

fn update(model: &Model, now: Timestamp) -> Result<Vec<Arc<Pod>>> {
    let available = |pod: &Arc<Pod>| is_available_and_stays(pod, model, now);
    let there = model.kept.values().filter(|pod| available(pod)).count();
    let away = model.replicas - i64::try_from(there).unwrap_or(model.replicas);
    let mut budget = max_unavailable(model)? - away;
    // Those that have ended are made anew already.
    let old: BTreeMap<i64, &Arc<Pod>> = model
        .kept
        .iter()
        .filter(|(ordinal, pod)| {
            **ordinal >= model.partition()
                && identity::revision(pod) != Some(model.update.name.as_str())
                && pods::is_active(pod)
        })
        .map(|(ordinal, pod)| (*ordinal, pod))
        .collect();
    let mut chosen = Vec::new();
    if model.is_parallel() {
        // They are away already: replacing them takes nothing from the budget.
        let ailing = old.values().rev().filter(|pod| !available(pod));
        chosen.extend(ailing.map(|pod| (*pod).clone()));
    }
    for pod in old.values().rev() {
        if budget <= 0 {
            break;
        }
        if available(pod) {
            chosen.push((*pod).clone());
            budget -= 1;
        }
    }
    Ok(chosen)
}

fn max_unavailable(model: &Model) -> Result<i64> {
    let rolling = model
        .spec
        .update_strategy
        .as_ref()
        .and_then(|s| s.rolling_update.as_ref());
    let Some(value) = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) else {
        return Ok(1);
    };
    let replicas = i32::try_from(model.replicas).unwrap_or(i32::MAX);
    Ok(i64::from(scaled(value, replicas, Round::Down)?).max(1))
}
