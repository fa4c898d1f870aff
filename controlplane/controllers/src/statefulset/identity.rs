//! What the pod of an ordinal is called and made of.

use minato_api::k8s::apps::v1::{StatefulSet, StatefulSetSpec};
use minato_api::k8s::core::v1::{PersistentVolumeClaimVolumeSource, Pod, Volume};

use super::claims;
use super::model::Revision;
use crate::names::{CONTROLLER_REVISION_HASH, POD_INDEX, STATEFULSET_POD_NAME};
use crate::{ops, ownership, pods};

/// The ordinal of a pod of the set `set`; `None` when the name is not one that the set gives.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i64> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    // Signs and leading zeros parse too, and are nobody's.
    (ordinal >= 0 && ordinal.to_string() == digits).then_some(i64::from(ordinal))
}

/// The set that gives this pod name, if any does.
pub(super) fn parent(pod: &str) -> Option<&str> {
    let (set, digits) = pod.rsplit_once('-')?;
    (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())).then_some(set)
}

/// Name of the revision that a pod was made from.
pub(super) fn revision(pod: &Pod) -> Option<&str> {
    ops::label(&pod.metadata, CONTROLLER_REVISION_HASH)
}

/// The labels that tell an ordinal's pod from its siblings.
fn labels(pod_name: &str, ordinal: i64) -> [(&'static str, String); 2] {
    [
        (STATEFULSET_POD_NAME, pod_name.to_owned()),
        (POD_INDEX, ordinal.to_string()),
    ]
}

/// The labels that a pod lacks.
pub(super) fn missing_labels(pod: &Pod, ordinal: i64) -> Vec<(&'static str, String)> {
    let wanted = labels(ops::name(&pod.metadata), ordinal);
    let lacks = |(key, value): &(&str, String)| ops::label(&pod.metadata, key) != Some(value.as_str());
    wanted.into_iter().filter(lacks).collect()
}

/// The pod of an ordinal.
pub(super) fn pod(set: &StatefulSet, spec: &StatefulSetSpec, revision: &Revision, ordinal: i64) -> Pod {
    let (set_name, namespace) = (ops::name(&set.metadata), ops::namespace(&set.metadata));
    let name = format!("{set_name}-{ordinal}");
    let mut pod = pods::from_template(&revision.template, namespace, set_name, ownership::reference(set));
    pod.metadata.generate_name = None;
    let own = pod.metadata.labels.get_or_insert_default();
    for (key, value) in labels(&name, ordinal) {
        own.insert(key.to_owned(), value);
    }
    own.insert(CONTROLLER_REVISION_HASH.to_owned(), revision.name.clone());
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(name.clone());
    pod_spec.subdomain = spec.service_name.clone().filter(|service| !service.is_empty());
    // A claim hides a volume of that name in the template.
    let claimed = spec.volume_claim_templates.iter().flatten();
    let mut volumes: Vec<Volume> = claimed
        .map(|template| claimed_volume(template, set_name, ordinal))
        .collect();
    for volume in pod_spec.volumes.take().into_iter().flatten() {
        if !volumes.iter().any(|claimed| claimed.name == volume.name) {
            volumes.push(volume);
        }
    }
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    pod.metadata.name = Some(name);
    pod
}

fn claimed_volume(template: &minato_api::k8s::core::v1::PersistentVolumeClaim, set: &str, ordinal: i64) -> Volume {
    Volume {
        name: ops::name(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claims::name(template, set, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    }
}
