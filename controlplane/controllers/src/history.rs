//! The states that a template had, kept as ControllerRevisions: what StatefulSets and DaemonSets roll out and go back to.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/controller-revision-v1/>.

use std::collections::HashSet;
use std::sync::Arc;

use minato_api::apimachinery::pkg::runtime::RawExtension;
use minato_api::k8s::apps::v1::ControllerRevision;
use minato_api::k8s::core::v1::PodTemplateSpec;
use minato_api::kube::api::PostParams;
use minato_api::kube::{Api, Resource};
use minato_api::meta_v1::ObjectMeta;
use serde_json::{Value, json};

use crate::error::{Error, Result, is_already_exists, is_not_found};
use crate::{ops, ownership, template};

/// Names that were taken by another state, in a row, before a reconciliation gives up and is tried again.
const MOST_COLLISIONS: usize = 10;

/// What is to be recorded of one owner.
pub(crate) struct State<'a, O> {
    pub(crate) owner: &'a O,
    pub(crate) template: &'a PodTemplateSpec,
    /// The label that holds the hash, which differs by the kind of owner.
    pub(crate) hash_label: &'static str,
}

/// How the present state becomes the newest revision.
#[derive(Debug, PartialEq)]
pub(crate) enum Newest {
    /// It is that already.
    Kept(Arc<ControllerRevision>),
    /// It was there before, and moves to the front under this number.
    Again(Arc<ControllerRevision>, i64),
    /// It is new, and gets this number.
    New(i64),
}

/// The oldest first.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    let rank = |revision: &Arc<ControllerRevision>| {
        let meta = &revision.metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (revision.revision, created, meta.name.clone())
    };
    revisions.sort_by_cached_key(rank);
}

/// A template as `kubectl rollout undo` sends it back: a patch that replaces the present one.
pub(crate) fn data(template: &PodTemplateSpec) -> Result<Value> {
    let mut template = serde_json::to_value(template)?;
    template["$patch"] = json!("replace");
    Ok(json!({"spec": {"template": template}}))
}

/// The template that a revision holds.
pub(crate) fn template_of(revision: &ControllerRevision) -> Result<PodTemplateSpec> {
    let held = revision.data.as_ref().and_then(|data| data.0.pointer("/spec/template"));
    let held =
        held.ok_or_else(|| Error::Invalid(format!("revision {} has no template", ops::name(&revision.metadata))))?;
    Ok(serde_json::from_value(held.clone())?)
}

/// Finds the place of a state among sorted revisions.
pub(crate) fn place(revisions: &[Arc<ControllerRevision>], data: &Value) -> Newest {
    let next = revisions.last().map_or(1, |last| last.revision.saturating_add(1));
    let equal = |revision: &&Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|held| held.0 == *data);
    match revisions.iter().rev().find(equal) {
        None => Newest::New(next),
        Some(found) if revisions.last().is_some_and(|last| Arc::ptr_eq(last, found)) => Newest::Kept(found.clone()),
        Some(found) => Newest::Again(found.clone(), next),
    }
}

/// Revisions to delete: the oldest of those that nothing is made from, beyond `limit`.
pub(crate) fn surplus(
    revisions: &[Arc<ControllerRevision>],
    live: &HashSet<&str>,
    limit: usize,
) -> Vec<Arc<ControllerRevision>> {
    let dead = |revision: &&Arc<ControllerRevision>| !live.contains(ops::name(&revision.metadata));
    let mut dead: Vec<_> = revisions.iter().filter(dead).cloned().collect();
    dead.truncate(dead.len().saturating_sub(limit));
    dead
}

/// Makes the present state the newest revision and returns it. `revisions` are the owner's, sorted; `collisions` is how
/// often a name was taken by another state, and is counted on.
pub(crate) async fn record<O>(
    api: &Api<ControllerRevision>,
    state: &State<'_, O>,
    revisions: &[Arc<ControllerRevision>],
    collisions: &mut i32,
) -> Result<Arc<ControllerRevision>>
where
    O: Resource<DynamicType = ()>,
{
    let data = data(state.template)?;
    let number = match place(revisions, &data) {
        Newest::Kept(revision) => return Ok(revision),
        Newest::Again(revision, number) => {
            let patch = json!({"revision": number});
            return Ok(Arc::new(ops::merge(api, &revision.metadata, patch).await?));
        }
        Newest::New(number) => number,
    };
    for _ in 0..MOST_COLLISIONS {
        let wanted = revision(state, &data, number, *collisions)?;
        match api.create(&PostParams::default(), &wanted).await {
            Ok(created) => return Ok(Arc::new(created)),
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(error.into()),
        }
        // Ours, which the cache does not know yet; or another state of the same hash.
        match api.get_opt(ops::name(&wanted.metadata)).await? {
            Some(existing) if existing.data == wanted.data => return Ok(Arc::new(existing)),
            Some(_) => *collisions = collisions.saturating_add(1),
            None => {}
        }
    }
    Err(Error::Behind("the names of revisions are taken"))
}

/// Deletes revisions.
pub(crate) async fn delete(api: &Api<ControllerRevision>, revisions: &[Arc<ControllerRevision>]) -> Result<()> {
    for revision in revisions {
        match ops::delete(api, &revision.metadata).await {
            Err(error) if !is_not_found(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn revision<O>(state: &State<'_, O>, data: &Value, number: i64, collisions: i32) -> Result<ControllerRevision>
where
    O: Resource<DynamicType = ()>,
{
    let owner = state.owner.meta();
    let hash = template::hash(data, collisions)?;
    let meta = state.template.metadata.as_ref();
    let mut labels = meta.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(state.hash_label.to_owned(), hash.clone());
    Ok(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", ops::name(owner))),
            namespace: owner.namespace.clone(),
            labels: Some(labels),
            annotations: owner.annotations.clone(),
            owner_references: Some(vec![ownership::reference(state.owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data.clone())),
        revision: number,
    })
}

#[cfg(test)]
mod tests {
    use minato_api::k8s::apps::v1::StatefulSet;

    use super::*;

    fn held(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data(&pod_template(image)).unwrap())),
            revision: number,
        })
    }

    fn pod_template(image: &str) -> PodTemplateSpec {
        let spec =
            json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_state_is_kept_moved_to_the_front_or_new() {
        let mut all = vec![held("b", 2, "two"), held("a", 1, "one")];
        sort(&mut all);
        assert_eq!(ops::name(&all[0].metadata), "a");
        let place = |image: &str| place(&all, &data(&pod_template(image)).unwrap());
        assert_eq!(place("two"), Newest::Kept(all[1].clone()));
        assert_eq!(place("one"), Newest::Again(all[0].clone(), 3));
        assert_eq!(place("three"), Newest::New(3));
        assert_eq!(super::place(&[], &json!({})), Newest::New(1));
    }

    #[test]
    fn the_template_comes_back_as_it_was() {
        let revision = held("a", 1, "one");
        assert_eq!(template_of(&revision).unwrap(), pod_template("one"));
        assert!(template_of(&ControllerRevision::default()).is_err());
    }

    #[test]
    fn the_oldest_that_nothing_lives_on_go() {
        let all = [
            held("a", 1, "1"),
            held("b", 2, "2"),
            held("c", 3, "3"),
            held("d", 4, "4"),
        ];
        let names = |limit| -> Vec<String> {
            let gone = surplus(&all, &["a", "d"].into(), limit);
            gone.iter()
                .map(|revision| ops::name(&revision.metadata).to_owned())
                .collect()
        };
        assert_eq!(names(1), ["b"]);
        assert_eq!(names(0), ["b", "c"]);
        assert!(names(2).is_empty());
    }

    #[test]
    fn a_revision_is_named_by_its_hash_and_owned() {
        let mut owner = StatefulSet::default();
        owner.metadata.name = Some("web".to_owned());
        owner.metadata.uid = Some("u".to_owned());
        let template = pod_template("one");
        let state = State {
            owner: &owner,
            template: &template,
            hash_label: "hash",
        };
        let made = revision(&state, &data(&template).unwrap(), 1, 0).unwrap();
        let labels = made.metadata.labels.clone().unwrap();
        assert_eq!(made.metadata.name, Some(format!("web-{}", labels["hash"])));
        assert_eq!(labels["app"], "a");
        assert!(ownership::is_controlled_by(&made.metadata, "u"));
        let other = revision(&state, &data(&template).unwrap(), 1, 1).unwrap();
        assert_ne!(made.metadata.name, other.metadata.name);
    }
}
