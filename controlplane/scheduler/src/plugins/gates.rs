//! `SchedulingGates`: a pod waits until others have taken their gates off. Source: KEP-3521.

use crate::framework::{Event, Plugin, Rejection};
use crate::pod::PodInfo;

pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_ref());
        match gates {
            Some(gates) if !gates.is_empty() => Err(Rejection::unresolvable("waiting for scheduling gates")),
            _ => Ok(()),
        }
    }

    /// Only the pod itself can lift them.
    fn wakes(&self, _event: Event, _pod: &PodInfo) -> bool {
        false
    }
}
