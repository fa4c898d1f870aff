//! Plans, identities, claims and statuses of StatefulSets.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::StatefulSet;
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod};
use minato_api::meta_v1::Time;
use serde_json::{Value, json};

use super::model::{Model, Revision};
use super::plan::{Step, plan};
use super::{claims, identity, status};
use crate::ownership;
use crate::pods::tests::pod;

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

fn set(spec: Value) -> Arc<StatefulSet> {
    let mut whole = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "serviceName": "web",
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let set = json!({"metadata": {"name": "web", "namespace": "default", "uid": "set"}, "spec": whole});
    Arc::new(serde_json::from_value(set).unwrap())
}

fn revision(name: &str) -> Revision {
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": name}]}});
    Revision {
        name: name.to_owned(),
        template: serde_json::from_value(template).unwrap(),
    }
}

/// `web-ORDINAL` of a revision, which is well.
fn well(ordinal: i64, revision: &str) -> Pod {
    let mut pod = pod(&format!("web-{ordinal}"), Some("n"), Some(1));
    pod.metadata.labels = Some([("controller-revision-hash".to_owned(), revision.to_owned())].into());
    pod
}

/// The same, running but not ready.
fn ill(ordinal: i64, revision: &str) -> Pod {
    let mut pod = well(ordinal, revision);
    pod.status.as_mut().unwrap().conditions = None;
    pod
}

fn going(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(Time(now()));
    pod
}

fn ended(ordinal: i64, phase: &str) -> Pod {
    let mut pod = ill(ordinal, "one");
    pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
    pod
}

fn model(spec: Value, pods: Vec<Pod>) -> Model {
    let set = set(spec);
    let spec = set.spec.clone().unwrap();
    let pods = pods.into_iter().map(Arc::new).collect();
    Model::new(set, spec, pods, revision("one"), revision("two"))
}

/// What is planned, in words.
fn planned(spec: Value, pods: Vec<Pod>) -> Vec<String> {
    let plan = plan(&model(spec, pods), now()).unwrap();
    let name = |pod: &Arc<Pod>| pod.metadata.name.clone().unwrap().replace("web-", "");
    let mut words = Vec::new();
    for step in &plan.keep {
        match step {
            Step::Create(ordinal) => words.push(format!("create {ordinal}")),
            Step::Recreate(pod) => words.push(format!("recreate {}", name(pod))),
            Step::Mend(..) => {}
        }
    }
    words.extend(plan.scale_down.iter().map(|pod| format!("drop {}", name(pod))));
    words.extend(plan.update.iter().map(|pod| format!("update {}", name(pod))));
    words
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn names_are_taken_apart_only_as_they_are_given() {
    assert_eq!(identity::ordinal("web", "web-12"), Some(12));
    for other in [
        "web",
        "web-",
        "web-01",
        "web-+1",
        "web--1",
        "web-x-1",
        "web-99999999999",
        "other-1",
    ] {
        assert_eq!(identity::ordinal("web", other), None, "{other}");
    }
    assert_eq!(identity::parent("a-b-7"), Some("a-b"));
    assert_eq!(identity::parent("a-b"), None);
}

#[test]
fn ordered_pods_come_one_after_another() {
    let three = || json!({"replicas": 3});
    assert_eq!(planned(three(), vec![]), ["create 0"]);
    assert_eq!(planned(three(), vec![ill(0, "two")]), nothing());
    assert_eq!(planned(three(), vec![well(0, "two")]), ["create 1"]);
    // A gap is filled before anything above it.
    assert_eq!(planned(three(), vec![well(0, "two"), well(2, "two")]), ["create 1"]);
    assert_eq!(planned(three(), vec![going(well(0, "two"))]), nothing());
    let all = vec![well(0, "two"), well(1, "two"), well(2, "two")];
    assert_eq!(planned(three(), all), nothing());
}

#[test]
fn ordinals_start_where_they_are_told_to() {
    let spec = || json!({"replicas": 2, "ordinals": {"start": 5}});
    assert_eq!(planned(spec(), vec![]), ["create 5"]);
    assert_eq!(planned(spec(), vec![well(5, "two")]), ["create 6"]);
    // Below the start they are too many.
    let shifted = vec![well(4, "two"), well(5, "two"), well(6, "two")];
    assert_eq!(planned(spec(), shifted), ["drop 4"]);
}

#[test]
fn parallel_pods_wait_for_nobody() {
    let spec = |replicas: i32| json!({"replicas": replicas, "podManagementPolicy": "Parallel"});
    assert_eq!(planned(spec(3), vec![ill(1, "two")]), ["create 0", "create 2"]);
    assert_eq!(
        planned(spec(1), vec![well(0, "two"), ill(1, "two"), well(2, "two")]),
        ["drop 2", "drop 1"]
    );
    assert_eq!(planned(spec(2_000_000_000), vec![]).len(), 500);
}

#[test]
fn a_new_pod_counts_once_it_was_ready_for_long_enough() {
    let spec = json!({"replicas": 2, "minReadySeconds": 30});
    let mut young = well(0, "two");
    young.status = pod("", Some("n"), Some(990)).status;
    let plan = plan(&model(spec, vec![young]), now()).unwrap();
    assert_eq!(plan.keep, []);
    assert_eq!(plan.wake, Some(Duration::from_secs(20)));
}

#[test]
fn ended_pods_are_made_anew() {
    let spec = || json!({"replicas": 2});
    assert_eq!(
        planned(spec(), vec![ended(0, "Failed"), well(1, "two")]),
        ["recreate 0"]
    );
    assert_eq!(
        planned(spec(), vec![ended(0, "Succeeded"), well(1, "two")]),
        ["recreate 0"]
    );
    assert_eq!(
        planned(spec(), vec![going(ended(0, "Failed")), well(1, "two")]),
        nothing()
    );
    let parallel = json!({"replicas": 2, "podManagementPolicy": "Parallel"});
    assert_eq!(planned(parallel, vec![ended(0, "Failed")]), ["recreate 0", "create 1"]);
}

#[test]
fn ordered_pods_go_from_the_highest_one_at_a_time() {
    let one = || json!({"replicas": 1});
    assert_eq!(
        planned(one(), vec![well(0, "two"), well(1, "two"), well(2, "two")]),
        ["drop 2"]
    );
    assert_eq!(
        planned(one(), vec![well(0, "two"), well(1, "two"), going(well(2, "two"))]),
        nothing()
    );
    // Not while a pod that stays ails, nor from above one that ails.
    assert_eq!(planned(one(), vec![ill(0, "two"), well(1, "two")]), nothing());
    assert_eq!(
        planned(one(), vec![well(0, "two"), ill(1, "two"), ill(2, "two")]),
        nothing()
    );
    assert_eq!(
        planned(one(), vec![well(0, "two"), well(1, "two"), ill(2, "two")]),
        ["drop 2"]
    );
    // A rollout waits for it.
    assert_eq!(planned(one(), vec![well(0, "one"), well(1, "one")]), ["drop 1"]);
}

#[test]
fn a_rollout_goes_down_to_its_partition() {
    let spec = |partition: i32| json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    let old = || vec![well(0, "one"), well(1, "one"), well(2, "one")];
    assert_eq!(planned(spec(0), old()), ["update 2"]);
    assert_eq!(
        planned(spec(0), vec![well(0, "one"), well(1, "one"), well(2, "two")]),
        ["update 1"]
    );
    assert_eq!(
        planned(spec(2), vec![well(0, "one"), well(1, "one"), well(2, "two")]),
        nothing()
    );
    assert_eq!(planned(spec(9), old()), nothing());
    assert_eq!(
        planned(spec(0), vec![well(0, "one"), well(1, "one"), ill(2, "two")]),
        nothing()
    );
    let on_delete = json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
    assert_eq!(planned(on_delete, old()), nothing());
    // With ordinals from 5, a partition of 1 spares 5 alone.
    let shifted =
        json!({"replicas": 2, "ordinals": {"start": 5}, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
    assert_eq!(planned(shifted, vec![well(5, "one"), well(6, "one")]), ["update 6"]);
}

#[test]
fn a_rollout_may_have_several_pods_away() {
    let spec = |policy: &str, max: Value| {
        json!({"replicas": 5, "podManagementPolicy": policy,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": max}}})
    };
    let old = || (0..5).map(|ordinal| well(ordinal, "one")).collect::<Vec<_>>();
    assert_eq!(planned(spec("OrderedReady", json!(2)), old()), ["update 4", "update 3"]);
    // A tenth of five is none, and none is one.
    assert_eq!(planned(spec("OrderedReady", json!("10%")), old()), ["update 4"]);
    assert_eq!(
        planned(spec("OrderedReady", json!("59%")), old()),
        ["update 4", "update 3"]
    );
    // One is away already; that it is old and ails makes its own replacement free.
    let mut pods = old();
    pods[1] = ill(1, "one");
    assert_eq!(planned(spec("Parallel", json!(2)), pods), ["update 1", "update 4"]);
    let mut pods = old();
    (pods[0], pods[1]) = (ill(0, "two"), ill(1, "two"));
    assert_eq!(planned(spec("Parallel", json!(2)), pods), nothing());
}

#[test]
fn below_the_partition_pods_come_back_as_they_were() {
    let spec = json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}});
    let model = super::tests::model(spec, vec![]);
    assert_eq!(model.revision_for(0).name, "one");
    assert_eq!(model.revision_for(1).name, "two");
    let on_delete = super::tests::model(json!({"updateStrategy": {"type": "OnDelete"}}), vec![]);
    assert_eq!(on_delete.revision_for(0).name, "two");
}

#[test]
fn a_pod_has_its_name_its_place_and_its_volumes() {
    let set = set(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}));
    let mut revision = revision("two");
    let spec = revision.template.spec.as_mut().unwrap();
    spec.volumes = Some(vec![
        serde_json::from_value(json!({"name": "data", "emptyDir": {}})).unwrap(),
        serde_json::from_value(json!({"name": "tmp", "emptyDir": {}})).unwrap(),
    ]);
    let pod = identity::pod(&set, set.spec.as_ref().unwrap(), &revision, 7);
    let pod = serde_json::to_value(pod).unwrap();
    assert_eq!(pod["metadata"]["name"], "web-7");
    assert_eq!(pod["metadata"].get("generateName"), None);
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "statefulset.kubernetes.io/pod-name": "web-7", "apps.kubernetes.io/pod-index": "7",
               "controller-revision-hash": "two"})
    );
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("web-7"), &json!("web"))
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-7"}}, {"name": "tmp", "emptyDir": {}}])
    );
}

#[test]
fn labels_that_somebody_took_are_missing() {
    let mut pod = well(3, "two");
    assert_eq!(identity::missing_labels(&pod, 3).len(), 2);
    let labels = pod.metadata.labels.as_mut().unwrap();
    labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), "web-3".to_owned());
    labels.insert("apps.kubernetes.io/pod-index".to_owned(), "0".to_owned());
    assert_eq!(
        identity::missing_labels(&pod, 3),
        [("apps.kubernetes.io/pod-index", "3".to_owned())]
    );
}

fn retention(when_deleted: &str, when_scaled: &str) -> Arc<StatefulSet> {
    set(json!({
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "db"}}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled},
    }))
}

#[test]
fn claims_are_owned_as_the_policy_says() {
    let pod = well(0, "two");
    let owners = |set: &StatefulSet, claim: &PersistentVolumeClaim, condemned: bool| {
        let owners = claims::owners(claim, set, set.spec.as_ref().unwrap(), &pod, condemned)?;
        Some(owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>())
    };
    let bare = PersistentVolumeClaim::default();
    let some = |uid: &str| Some(vec![uid.to_owned()]);
    for (deleted, scaled, condemned, expected) in [
        ("Retain", "Retain", false, None),
        ("Retain", "Retain", true, None),
        ("Delete", "Retain", false, some("set")),
        ("Delete", "Retain", true, some("set")),
        ("Retain", "Delete", false, None),
        ("Retain", "Delete", true, some("uid-web-0")),
        ("Delete", "Delete", false, some("set")),
        ("Delete", "Delete", true, some("uid-web-0")),
    ] {
        let set = retention(deleted, scaled);
        assert_eq!(
            owners(&set, &bare, condemned),
            expected,
            "{deleted} {scaled} {condemned}"
        );
    }
    // What is there and should not be goes; what is right stays; what is another's is not touched.
    let set = retention("Delete", "Delete");
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.owner_references = Some(vec![ownership::reference(set.as_ref())]);
    assert_eq!(owners(&set, &claim, false), None);
    assert_eq!(owners(&set, &claim, true), some("uid-web-0"));
    assert_eq!(owners(&retention("Retain", "Retain"), &claim, false), Some(vec![]));
    claim.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
    assert_eq!(owners(&set, &claim, false), None);
}

#[test]
fn claims_are_made_of_their_templates() {
    let set = retention("Delete", "Retain");
    let wanted = claims::wanted(&set, set.spec.as_ref().unwrap(), 2);
    assert_eq!(wanted.len(), 1);
    let meta = &wanted[0].metadata;
    assert_eq!(meta.name.as_deref(), Some("data-web-2"));
    assert_eq!(
        serde_json::to_value(&meta.labels).unwrap(),
        json!({"app": "web", "tier": "db"})
    );
    assert!(ownership::is_controlled_by(meta, "set"));
    assert!(claims::may_belong(&set, "data-web-2") && !claims::may_belong(&set, "logs-web-2"));
    let mut claim = wanted[0].clone();
    assert!(!claims::is_stale(&claim, "web-2"));
    claim.metadata.owner_references = Some(vec![ownership::reference(&well(2, "one"))]);
    assert!(claims::is_stale(&claim, "web-2") && !claims::is_stale(&claim, "web-20"));
}

#[test]
fn a_status_counts_and_ends_a_rollout() {
    let counts = |model: &Model| {
        let status = status::status(model, 0, now());
        let numbers = [
            Some(status.replicas),
            status.ready_replicas,
            status.available_replicas,
            status.current_replicas,
            status.updated_replicas,
        ];
        (numbers.map(Option::unwrap), status.current_revision.unwrap())
    };
    let spec =
        || json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    let midway = model(spec(), vec![well(0, "one"), ill(1, "two"), going(well(2, "one"))]);
    assert_eq!(counts(&midway), ([3, 2, 2, 1, 1], "one".to_owned()));
    let done = model(spec(), vec![well(0, "two"), well(1, "two"), well(2, "two")]);
    assert_eq!(counts(&done), ([3, 3, 3, 3, 3], "two".to_owned()));
    // Deleted by hand, a rollout is never declared done.
    let by_hand = model(
        json!({"replicas": 1, "updateStrategy": {"type": "OnDelete"}}),
        vec![well(0, "two")],
    );
    assert_eq!(counts(&by_hand), ([1, 1, 1, 0, 1], "one".to_owned()));
    let same = status::status(&done, 0, now());
    assert!(status::same(&same, &same.clone()));
    assert!(!status::same(&same, &status::status(&midway, 0, now())));
}
