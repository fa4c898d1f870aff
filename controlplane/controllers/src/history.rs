//! Histories of workloads: ControllerRevisions, each of which holds a template that one can go back to.
//!
//! What a revision holds is a strategic merge patch that puts its template in the place of the present one, because
//! that is what `kubectl rollout undo` sends. Revisions are numbered; the one with the highest number is the current
//! one, so an old one that is current again is renumbered instead of made a second time.
//!
//! Source: <https://kubernetes.io/docs/tasks/manage-daemon/rollback-daemon-set/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use minato_api::apimachinery::pkg::runtime::RawExtension;
use minato_api::k8s::apps::v1::ControllerRevision;
use minato_api::k8s::core::v1::PodTemplateSpec;
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_api::meta_v1::ObjectMeta;
use minato_runtime::Object;
use serde_json::{Value, json};

use crate::error::{Error, Result, is_already_exists};
use crate::{names, ops, ownership, template};

/// Names of revisions are cut so that the hash still fits.
const LONGEST_PREFIX: usize = 223;
/// So many names may be taken by other templates before we give up for now.
const MOST_COLLISIONS: i32 = 10;

/// What a revision of `template` holds.
pub(crate) fn data(template: &PodTemplateSpec) -> Result<Value> {
    let mut template = serde_json::to_value(template)?;
    template["$patch"] = json!("replace");
    Ok(json!({"spec": {"template": template}}))
}

/// The template that a revision holds.
pub(crate) fn template(revision: &ControllerRevision) -> Result<PodTemplateSpec> {
    let held = held(revision).and_then(|data| data.pointer("/spec/template")).cloned();
    let mut held = held.ok_or_else(|| Error::Invalid("a revision holds no template".to_owned()))?;
    if let Some(fields) = held.as_object_mut() {
        fields.remove("$patch");
    }
    Ok(serde_json::from_value(held)?)
}

fn held(revision: &ControllerRevision) -> Option<&Value> {
    revision.data.as_ref().map(|RawExtension(data)| data)
}

/// Sorts revisions, the oldest first. Of two with one number, which only a race can make, the older one comes first.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    let rank = |revision: &Arc<ControllerRevision>| {
        let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (revision.revision, created, revision.metadata.name.clone())
    };
    revisions.sort_by_cached_key(rank);
}

/// How to come to a current revision that holds certain data.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// It is there.
    Keep(Arc<ControllerRevision>),
    /// An old one holds it: give it this number.
    Renumber(Arc<ControllerRevision>, i64),
    /// Make one with this number.
    Create(i64),
}

/// What to do so that the last of `revisions`, which are sorted, holds `data`.
pub(crate) fn step(revisions: &[Arc<ControllerRevision>], data: &Value) -> Step {
    let last = revisions.last().map_or(0, |revision| revision.revision);
    let same = revisions.iter().rfind(|revision| held(revision) == Some(data));
    match same {
        Some(same) if same.revision == last => Step::Keep(same.clone()),
        Some(same) => Step::Renumber(same.clone(), last.saturating_add(1)),
        None => Step::Create(last.saturating_add(1)),
    }
}

/// The revisions to delete so that `limit` are left of those that no pod has: the oldest of `revisions`, which are
/// sorted.
pub(crate) fn surplus(
    revisions: &[Arc<ControllerRevision>],
    in_use: impl Fn(&ControllerRevision) -> bool,
    limit: usize,
) -> Vec<Arc<ControllerRevision>> {
    let mut unused: Vec<_> = revisions.iter().filter(|revision| !in_use(revision)).cloned().collect();
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

/// The current revision of an object.
pub(crate) struct Current {
    pub(crate) revision: Arc<ControllerRevision>,
    /// How many names were taken by others: the status remembers it, as names depend on it.
    pub(crate) collisions: i32,
}

/// Makes the current revision hold `template`. `revisions` are the owner's, sorted; new ones get the labels of the
/// template and `hash_label` with a hash of it, and are named by both.
pub(crate) async fn settle<O: Object>(
    api: &Api<ControllerRevision>,
    owner: &O,
    template: &PodTemplateSpec,
    revisions: &[Arc<ControllerRevision>],
    hash_label: &str,
    collisions: i32,
) -> Result<Current> {
    let data = data(template)?;
    let kept = |revision| Current { revision, collisions };
    match step(revisions, &data) {
        Step::Keep(revision) => Ok(kept(revision)),
        Step::Renumber(revision, number) => {
            let renumbered = ops::merge(api, &revision.metadata, json!({"revision": number})).await?;
            Ok(kept(Arc::new(renumbered)))
        }
        Step::Create(number) => create(api, owner, template, data, number, hash_label, collisions).await,
    }
}

async fn create<O: Object>(
    api: &Api<ControllerRevision>,
    owner: &O,
    template: &PodTemplateSpec,
    data: Value,
    number: i64,
    hash_label: &str,
    mut collisions: i32,
) -> Result<Current> {
    for _ in 0..MOST_COLLISIONS {
        let hash = template::hash(&data, collisions)?;
        let revision = revision(owner, template, &data, number, (hash_label, &hash));
        let name = ops::name(&revision.metadata);
        match api.create(&PostParams::default(), &revision).await {
            Ok(created) => {
                return Ok(Current {
                    revision: Arc::new(created),
                    collisions,
                });
            }
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(error.into()),
        }
        // The name is taken: by our own revision that the cache does not know yet, or by one of other data.
        match api.get_opt(name).await? {
            Some(existing) if is_ours(&existing, owner, &data) => {
                return Ok(Current {
                    revision: Arc::new(existing),
                    collisions,
                });
            }
            Some(_) => collisions = collisions.saturating_add(1),
            None => {}
        }
    }
    Err(Error::Invalid("too many names of revisions are taken".to_owned()))
}

fn is_ours<O: Object>(existing: &ControllerRevision, owner: &O, data: &Value) -> bool {
    ownership::is_controlled_by(&existing.metadata, ops::uid(owner.meta())) && held(existing) == Some(data)
}

fn revision<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    data: &Value,
    number: i64,
    (hash_label, hash): (&str, &str),
) -> ControllerRevision {
    let meta = owner.meta();
    let mut prefix = ops::name(meta);
    prefix = prefix.get(..LONGEST_PREFIX).unwrap_or(prefix);
    let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
    let mut labels: BTreeMap<String, String> = labels.unwrap_or_default();
    labels.insert(hash_label.to_owned(), hash.to_owned());
    // Among them the cause of the change, which `kubectl rollout history` shows.
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.remove(names::LAST_APPLIED);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![ownership::reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data.clone())),
        revision: number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &str) -> PodTemplateSpec {
        let template = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        });
        serde_json::from_value(template).unwrap()
    }

    fn at(number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("r{number}")),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data(&of(image)).unwrap())),
            revision: number,
        })
    }

    #[test]
    fn a_revision_holds_a_patch_that_replaces_the_template() {
        let held = data(&of("one")).unwrap();
        assert_eq!(
            held,
            json!({"spec": {"template": {
                "$patch": "replace",
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "one"}]},
            }}})
        );
        assert_eq!(template(&at(1, "one")).unwrap(), of("one"));
        assert!(template(&ControllerRevision::default()).is_err());
    }

    #[test]
    fn what_was_there_before_is_renumbered_and_what_was_not_is_made() {
        let mut all = vec![at(3, "two"), at(1, "one")];
        sort(&mut all);
        assert_eq!(step(&[], &data(&of("one")).unwrap()), Step::Create(1));
        assert_eq!(step(&all, &data(&of("two")).unwrap()), Step::Keep(at(3, "two")));
        assert_eq!(step(&all, &data(&of("one")).unwrap()), Step::Renumber(at(1, "one"), 4));
        assert_eq!(step(&all, &data(&of("new")).unwrap()), Step::Create(4));
    }

    #[test]
    fn the_oldest_that_no_pod_has_go() {
        let all = [at(1, "a"), at(2, "b"), at(3, "c"), at(4, "d")];
        let gone = surplus(&all, |revision| matches!(revision.revision, 1 | 4), 1);
        assert_eq!(gone, [at(2, "b")]);
        assert!(surplus(&all, |_| false, 4).is_empty());
        assert_eq!(surplus(&all, |_| true, 0), []);
    }

    #[test]
    fn a_new_revision_belongs_to_its_owner_and_tells_the_hash() {
        let mut owner = minato_api::k8s::apps::v1::DaemonSet::default();
        owner.metadata.name = Some("x".repeat(240));
        owner.metadata.uid = Some("u".to_owned());
        let notes = [(names::LAST_APPLIED, "{}"), ("kubernetes.io/change-cause", "why")];
        owner.metadata.annotations = Some(notes.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let held = data(&of("one")).unwrap();
        let made = revision(&owner, &of("one"), &held, 7, ("hash", "bcd"));
        assert_eq!(made.metadata.name.as_ref().unwrap().len(), 223 + 1 + 3);
        assert_eq!(made.metadata.labels.as_ref().unwrap()["hash"], "bcd");
        assert_eq!(made.metadata.labels.as_ref().unwrap()["app"], "a");
        assert_eq!(made.metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(made.revision, 7);
        assert!(is_ours(&made, &owner, &held));
        owner.metadata.uid = Some("other".to_owned());
        assert!(!is_ours(&made, &owner, &held));
    }
}
