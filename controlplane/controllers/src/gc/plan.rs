//! What becomes of an object, given what became of its owners.

use minato_api::kube::api::PropagationPolicy;
use minato_api::meta_v1::{ObjectMeta, OwnerReference};

use crate::names::{FOREGROUND, ORPHAN};
use crate::ops;

/// What became of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// There, and staying or going without waiting for dependents.
    Solid,
    /// Gone, or another object has its name.
    Gone,
    /// Waiting for its dependents to go first.
    Waiting,
}

/// What to do with a dependent.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// It has an owner left: take away only the references to the others.
    Detach(Vec<OwnerReference>),
    /// `unblock`: its own references must first stop blocking their owners, as its dependents may own it in turn.
    Delete {
        policy: PropagationPolicy,
        unblock: bool,
    },
}

pub(super) fn judge(meta: &ObjectMeta, states: &[OwnerState], has_dependents: bool, dependent_waits: bool) -> Verdict {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    if owners.is_empty() || meta.deletion_timestamp.is_some() {
        return Verdict::Keep;
    }
    let solid: Vec<_> = owners
        .iter()
        .zip(states)
        .filter(|(_, state)| **state == OwnerState::Solid)
        .collect();
    if solid.len() == owners.len() {
        return Verdict::Keep;
    }
    if !solid.is_empty() {
        return Verdict::Detach(solid.into_iter().map(|(owner, _)| owner.clone()).collect());
    }
    if states.contains(&OwnerState::Waiting) && has_dependents {
        return Verdict::Delete {
            policy: PropagationPolicy::Foreground,
            unblock: dependent_waits,
        };
    }
    let policy = if ops::has_finalizer(meta, ORPHAN) {
        PropagationPolicy::Orphan
    } else if ops::has_finalizer(meta, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    Verdict::Delete { policy, unblock: false }
}
