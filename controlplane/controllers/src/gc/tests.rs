//! The graph and the verdicts.

use jiff::Timestamp;
use minato_api::kube::api::PropagationPolicy;
use minato_api::meta_v1::{ObjectMeta, OwnerReference, Time};

use super::ResourceId;
use super::graph::{Effects, Graph, Place};
use super::plan::{OwnerState, Verdict, judge};

fn id(plural: &str) -> ResourceId {
    (String::new(), plural.to_owned())
}

fn owner(uid: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: format!("name-{uid}"),
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: Some(blocks),
    }
}

fn meta(uid: &str, owners: &[OwnerReference]) -> ObjectMeta {
    ObjectMeta {
        name: Some(format!("name-{uid}")),
        namespace: Some("a".to_owned()),
        uid: Some(uid.to_owned()),
        owner_references: Some(owners.to_vec()),
        ..ObjectMeta::default()
    }
}

fn deleting(mut meta: ObjectMeta, finalizer: &str) -> ObjectMeta {
    meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    meta.finalizers = Some(vec![finalizer.to_owned()]);
    meta
}

fn collect(uids: &[&str]) -> Effects {
    Effects {
        collect: uids.iter().map(|uid| (*uid).to_owned()).collect(),
        orphan: Vec::new(),
    }
}

#[test]
fn unrelated_objects_are_not_kept_and_absent_owners_are_asked_for() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(&id("configmaps"), &meta("o", &[])), Effects::default());
    assert_eq!(graph.len(), 0);
    assert_eq!(
        graph.observe(&id("pods"), &meta("d", &[owner("o", true)])),
        collect(&["o"])
    );
    let node = graph.get("o").unwrap();
    assert!(matches!(&node.place, Place::Named { kind, .. } if kind == "ConfigMap"));
    // Confirmed, it is known; a second dependent asks no more.
    assert_eq!(
        graph.confirm("o", &id("configmaps"), &meta("o", &[])),
        Effects::default()
    );
    assert_eq!(
        graph.observe(&id("pods"), &meta("e", &[owner("o", true)])),
        Effects::default()
    );
    let effects = graph.gone("o");
    let mut uids = effects.collect;
    uids.sort();
    assert_eq!(uids, ["d", "e"]);
    graph.gone("d");
    graph.gone("e");
    assert_eq!(graph.len(), 0);
}

#[test]
fn a_waiting_owner_is_looked_at_when_a_dependent_goes_or_stops_blocking() {
    let mut graph = Graph::default();
    graph.observe(&id("pods"), &meta("d", &[owner("o", true)]));
    graph.observe(&id("pods"), &meta("e", &[owner("o", false)]));
    graph.confirm("o", &id("configmaps"), &meta("o", &[]));
    let effects = graph.observe(&id("configmaps"), &deleting(meta("o", &[]), "foregroundDeletion"));
    assert_eq!(effects.collect.len(), 3);
    assert_eq!(graph.blocking("o"), ["d"]);
    // Who joins late must go too.
    assert_eq!(
        graph.observe(&id("pods"), &meta("f", &[owner("o", true)])),
        collect(&["f"])
    );
    assert_eq!(
        graph.observe(&id("pods"), &meta("f", &[owner("o", false)])),
        collect(&["o", "f"])
    );
    assert_eq!(graph.gone("d"), collect(&["o"]));
    assert!(graph.blocking("o").is_empty());
}

#[test]
fn an_orphaning_owner_is_queued_once() {
    let mut graph = Graph::default();
    graph.observe(&id("pods"), &meta("d", &[owner("o", true)]));
    let going = deleting(meta("o", &[]), "orphan");
    assert_eq!(graph.observe(&id("configmaps"), &going).orphan, ["o"]);
    assert!(graph.observe(&id("configmaps"), &going).orphan.is_empty());
}

#[test]
fn one_solid_owner_is_enough() {
    let (a, b) = (owner("a", true), owner("b", true));
    let dependent = meta("d", &[a.clone(), b.clone()]);
    let judged = |states: &[OwnerState]| judge(&dependent, states, false, false);
    assert_eq!(judged(&[OwnerState::Solid, OwnerState::Solid]), Verdict::Keep);
    assert_eq!(judged(&[OwnerState::Gone, OwnerState::Solid]), Verdict::Detach(vec![b]));
    assert_eq!(
        judged(&[OwnerState::Solid, OwnerState::Waiting]),
        Verdict::Detach(vec![a])
    );
    let background = Verdict::Delete {
        policy: PropagationPolicy::Background,
        unblock: false,
    };
    assert_eq!(judged(&[OwnerState::Gone, OwnerState::Gone]), background);
    assert_eq!(judge(&meta("d", &[]), &[], false, false), Verdict::Keep);
    assert_eq!(
        judge(&deleting(dependent.clone(), "x"), &[OwnerState::Gone; 2], false, false),
        Verdict::Keep
    );
    let foreground = Verdict::Delete {
        policy: PropagationPolicy::Foreground,
        unblock: true,
    };
    assert_eq!(
        judge(&dependent, &[OwnerState::Waiting, OwnerState::Gone], true, true),
        foreground
    );
}
