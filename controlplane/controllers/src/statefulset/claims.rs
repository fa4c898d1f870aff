//! The claims of an ordinal, and whose deletion takes them along.

use minato_api::k8s::apps::v1::{StatefulSet, StatefulSetSpec};
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod};
use minato_api::meta_v1::{ObjectMeta, OwnerReference};

use crate::{ops, ownership};

/// Name of the claim that `template` makes for an ordinal.
pub(super) fn name(template: &PersistentVolumeClaim, set: &str, ordinal: i64) -> String {
    format!("{}-{set}-{ordinal}", ops::name(&template.metadata))
}

/// Whether a claim of this name may be one of the set's.
pub(super) fn may_belong(set: &StatefulSet, claim: &str) -> bool {
    let templates = set
        .spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    let mut templates = templates.into_iter();
    templates.any(|template| {
        let prefix = format!("{}-{}-", ops::name(&template.metadata), ops::name(&set.metadata));
        claim.starts_with(&prefix)
    })
}

/// Names of the claims of an ordinal.
pub(super) fn names(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i64) -> Vec<String> {
    let templates = spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| name(template, ops::name(&set.metadata), ordinal))
        .collect()
}

/// The claims that a pod of this ordinal needs, as they are made.
pub(super) fn wanted(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i64) -> Vec<PersistentVolumeClaim> {
    let templates = spec.volume_claim_templates.iter().flatten();
    let claim = |template: &PersistentVolumeClaim| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        let owners = Policy::of(spec).with_set.then(|| vec![ownership::reference(set)]);
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name(template, ops::name(&set.metadata), ordinal)),
                namespace: set.metadata.namespace.clone(),
                labels: Some(labels).filter(|labels| !labels.is_empty()),
                annotations: template.metadata.annotations.clone(),
                owner_references: owners,
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    };
    templates.map(claim).collect()
}

/// With what claims are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    with_set: bool,
    when_scaled: bool,
}

impl Policy {
    fn of(spec: &StatefulSetSpec) -> Self {
        let policy = spec.persistent_volume_claim_retention_policy.as_ref();
        let deletes = |word: Option<&String>| word.is_some_and(|word| word == "Delete");
        Self {
            with_set: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }
}

/// The owners that a claim should have, where they differ from those it has. A pod that is there to stay owns nothing:
/// its claim outlives it. Claims that somebody else controls are left alone.
pub(super) fn owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pod: &Pod,
    condemned: bool,
) -> Option<Vec<OwnerReference>> {
    let (set_uid, pod_uid) = (ops::uid(&set.metadata), ops::uid(&pod.metadata));
    if ownership::controller(&claim.metadata).is_some_and(|owner| owner.uid != set_uid && owner.uid != pod_uid) {
        return None;
    }
    let policy = Policy::of(spec);
    let by_pod = policy.when_scaled && condemned;
    let by_set = policy.with_set && !by_pod;
    let current: Vec<OwnerReference> = claim.metadata.owner_references.clone().unwrap_or_default();
    let right = |uid: &str, wanted: bool| {
        let reference = current.iter().find(|owner| owner.uid == uid);
        reference.map(|owner| owner.controller == Some(true)) == wanted.then_some(true)
    };
    if right(set_uid, by_set) && right(pod_uid, by_pod) {
        return None;
    }
    let mut owners = current;
    owners.retain(|owner| owner.uid != set_uid && owner.uid != pod_uid);
    if by_set {
        owners.push(ownership::reference(set));
    }
    if by_pod {
        owners.push(ownership::reference(pod));
    }
    Some(owners)
}

/// Whether a claim goes with a former pod of this name, so that a new one must not use it.
pub(super) fn is_stale(claim: &PersistentVolumeClaim, pod_name: &str) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Pod" && owner.name == pod_name)
}
