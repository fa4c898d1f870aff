//! From the pods that are there to what to do and what to tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Pod;

use crate::pods::{self, Availability};

/// At most so many pods are made or deleted in one go.
pub(super) const BURST: usize = 500;

/// What to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    Create(usize),
    /// These, least harmful first.
    Delete(Vec<Arc<Pod>>),
}

/// What a status tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) replicas: i32,
    pub(super) fully_labeled: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    pub(super) terminating: i32,
    /// When the next ready pod becomes available.
    pub(super) wake: Option<Duration>,
}

pub(super) fn step(desired: usize, claimed: &[Arc<Pod>], now: Timestamp) -> Step {
    let mut active: Vec<_> = claimed.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
    match active.len() {
        have if have < desired => Step::Create((desired - have).min(BURST)),
        have if have > desired => {
            pods::sort_for_deletion(&mut active, now);
            active.truncate((have - desired).min(BURST));
            Step::Delete(active)
        }
        _ => Step::Nothing,
    }
}

pub(super) fn observe(
    claimed: &[Arc<Pod>],
    template_labels: &BTreeMap<String, String>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Observed {
    let mut observed = Observed::default();
    for pod in claimed {
        if pods::is_terminating(pod) && !pods::is_finished(pod) {
            observed.terminating += 1;
        }
        if !pods::is_active(pod) {
            continue;
        }
        observed.replicas += 1;
        let labels = pod.metadata.labels.as_ref();
        let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
        observed.fully_labeled += i32::from(template_labels.iter().all(has));
        observed.ready += i32::from(pods::is_ready(pod));
        match pods::availability(pod, min_ready_seconds, now) {
            Availability::Yes => observed.available += 1,
            Availability::In(left) => observed.wake = Some(observed.wake.map_or(left, |wake| wake.min(left))),
            Availability::No => {}
        }
    }
    observed
}
