//! Rollouts, step by step.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::apimachinery::pkg::util::intstr::IntOrString;
use minato_api::k8s::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus,
    RollingUpdateDeployment,
};
use minato_api::k8s::core::v1::{Container, PodSpec, PodTemplateSpec};
use minato_api::meta_v1::{ObjectMeta, Time};

use super::model::{Model, spec_replicas};
use super::plan::{Plan, plan};
use super::status::{Did, status};
use crate::names;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn template(image: &str) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![Container {
                image: Some(image.to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
    }
}

fn deployment(replicas: i32, image: &str, surge: i32, unavailable: i32) -> Deployment {
    Deployment {
        metadata: ObjectMeta {
            name: Some("web".to_owned()),
            uid: Some("u".to_owned()),
            generation: Some(1),
            annotations: Some(
                [
                    ("note".to_owned(), "x".to_owned()),
                    (names::LAST_APPLIED.to_owned(), "y".to_owned()),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            template: template(image),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(surge)),
                    max_unavailable: Some(IntOrString::Int(unavailable)),
                }),
            }),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// A set of revision `revision`, made at that second too, last scaled for a Deployment of `of` replicas with surge 1.
fn set(revision: i64, image: &str, replicas: i32, available: i32, of: i32) -> ReplicaSet {
    let annotations = [
        (names::REVISION, revision.to_string()),
        (names::DESIRED_REPLICAS, of.to_string()),
        (names::MAX_REPLICAS, (of + 1).to_string()),
        ("note", "x".to_owned()),
    ];
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("web-{revision}")),
            uid: Some(format!("u{revision}")),
            creation_timestamp: Some(Time(at(revision))),
            annotations: Some(
                annotations
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            template: Some(template(image)),
            ..ReplicaSetSpec::default()
        }),
        status: Some(ReplicaSetStatus {
            replicas,
            available_replicas: Some(available),
            ready_replicas: Some(available),
            ..ReplicaSetStatus::default()
        }),
    }
}

fn model(deployment: Deployment, sets: Vec<ReplicaSet>) -> Model {
    Model::new(Arc::new(deployment), sets.into_iter().map(Arc::new).collect(), |set| {
        spec_replicas(set) > 0
    })
    .unwrap()
}

fn sizes(plan: &Plan) -> Vec<(String, i32)> {
    let scaled = plan
        .edits
        .iter()
        .filter_map(|edit| Some((edit.set.metadata.name.clone()?, edit.replicas?)));
    scaled.collect()
}

fn planned(deployment: Deployment, sets: Vec<ReplicaSet>) -> Plan {
    plan(&model(deployment, sets), at(1000)).unwrap()
}

#[test]
fn the_first_set_gets_all_replicas_and_revision_one() {
    let plan = planned(deployment(3, "a", 1, 0), vec![]);
    let created = plan.create.unwrap();
    let meta = &created.metadata;
    assert_eq!(spec_replicas(&created), 3);
    let annotations = meta.annotations.as_ref().unwrap();
    assert_eq!(annotations[names::REVISION], "1");
    assert_eq!(annotations[names::MAX_REPLICAS], "4");
    assert_eq!(annotations["note"], "x");
    assert!(!annotations.contains_key(names::LAST_APPLIED));
    let hash = &meta.labels.as_ref().unwrap()[names::POD_TEMPLATE_HASH];
    assert_eq!(meta.name.as_deref(), Some(format!("web-{hash}").as_str()));
    let spec = created.spec.as_ref().unwrap();
    assert_eq!(
        &spec.selector.match_labels.as_ref().unwrap()[names::POD_TEMPLATE_HASH],
        hash
    );
    assert_eq!(
        &spec
            .template
            .as_ref()
            .unwrap()
            .metadata
            .as_ref()
            .unwrap()
            .labels
            .as_ref()
            .unwrap()[names::POD_TEMPLATE_HASH],
        hash
    );
    assert_eq!(plan.revision.as_deref(), Some("1"));
}

#[test]
fn a_rollout_starts_with_the_surge() {
    let plan = planned(deployment(10, "b", 1, 0), vec![set(1, "a", 10, 10, 10)]);
    assert_eq!(spec_replicas(&plan.create.unwrap()), 1);
    assert!(sizes(&plan_edits_only(&plan.edits)).is_empty());
    assert_eq!(plan.revision.as_deref(), Some("2"));
}

fn plan_edits_only(edits: &[super::plan::Edit]) -> Plan {
    Plan {
        edits: edits.to_vec(),
        ..Plan::default()
    }
}

#[test]
fn a_rollout_alternates_between_new_and_old() {
    // The new one is up to its surge and available: one old pod may go.
    let plan = planned(
        deployment(3, "b", 1, 0),
        vec![set(1, "a", 3, 3, 3), set(2, "b", 1, 1, 3)],
    );
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 2)]);
    // Then there is room for one more new pod.
    let plan = planned(
        deployment(3, "b", 1, 0),
        vec![set(1, "a", 2, 2, 3), set(2, "b", 1, 1, 3)],
    );
    assert_eq!(sizes(&plan), [("web-2".to_owned(), 2)]);
    // While that is not available nothing moves.
    let plan = planned(
        deployment(3, "b", 1, 0),
        vec![set(1, "a", 2, 2, 3), set(2, "b", 2, 1, 3)],
    );
    assert!(sizes(&plan).is_empty());
}

#[test]
fn unhealthy_old_pods_go_first() {
    // 10 of 12 must stay available; 3 new ones are not yet. 15 - 8 - 3 = 4 may go: the 4 unhealthy of the oldest.
    let sets = vec![set(1, "a", 5, 1, 10), set(2, "b", 7, 7, 10), set(3, "c", 3, 0, 10)];
    let plan = planned(deployment(10, "c", 5, 2), sets);
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 1)]);
}

#[test]
fn going_back_to_an_old_template_gives_it_a_new_revision() {
    let plan = planned(
        deployment(3, "a", 1, 0),
        vec![set(1, "a", 0, 0, 3), set(2, "b", 3, 3, 3)],
    );
    let edit = plan
        .edits
        .iter()
        .find(|edit| edit.set.metadata.name.as_deref() == Some("web-1"))
        .unwrap();
    assert_eq!(edit.annotations[names::REVISION], "3");
    assert_eq!(edit.annotations[names::REVISION_HISTORY], "1");
    assert_eq!(edit.replicas, Some(1));
    assert_eq!(plan.revision.as_deref(), Some("3"));
    assert!(plan.create.is_none());
}

#[test]
fn scaling_in_a_rollout_is_in_proportion() {
    // 10 replicas with surge 1 grow to 21: 6 and 5 of 11 become 12 and 10 of 22.
    let sets = vec![set(1, "a", 6, 6, 10), set(2, "b", 5, 5, 10)];
    let plan = planned(deployment(21, "b", 1, 0), sets);
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 12), ("web-2".to_owned(), 10)]);
    // And shrink to nothing.
    let sets = vec![set(1, "a", 6, 6, 10), set(2, "b", 5, 5, 10)];
    let plan = planned(deployment(0, "b", 1, 0), sets);
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 0), ("web-2".to_owned(), 0)]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut paused = deployment(5, "b", 1, 0);
    paused.spec.as_mut().unwrap().paused = Some(true);
    let plan = planned(paused, vec![set(1, "a", 3, 3, 3)]);
    assert!(plan.create.is_none());
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 5)]);
}

#[test]
fn recreate_waits_for_the_old_pods() {
    let mut recreate = deployment(3, "b", 1, 0);
    recreate.spec.as_mut().unwrap().strategy = Some(DeploymentStrategy {
        type_: Some("Recreate".to_owned()),
        rolling_update: None,
    });
    let plan = planned(recreate.clone(), vec![set(1, "a", 3, 3, 3)]);
    assert!(plan.create.is_none());
    assert_eq!(sizes(&plan), [("web-1".to_owned(), 0)]);

    let stopping = Model::new(Arc::new(recreate.clone()), vec![Arc::new(set(1, "a", 0, 0, 3))], |_| {
        true
    })
    .unwrap();
    assert!(super::plan::plan(&stopping, at(1000)).unwrap().create.is_none());
    let plan = planned(recreate, vec![set(1, "a", 0, 0, 3)]);
    assert_eq!(spec_replicas(&plan.create.unwrap()), 3);
}

#[test]
fn empty_sets_beyond_the_limit_go_when_complete() {
    let mut limited = deployment(1, "d", 1, 0);
    limited.spec.as_mut().unwrap().revision_history_limit = Some(1);
    let sets = |available| {
        vec![
            set(1, "a", 0, 0, 1),
            set(2, "b", 0, 0, 1),
            set(3, "c", 0, 0, 1),
            set(4, "d", 1, available, 1),
        ]
    };
    let deleted: Vec<_> = planned(limited.clone(), sets(1))
        .delete
        .iter()
        .filter_map(|set| set.metadata.name.clone())
        .collect();
    assert_eq!(deleted, ["web-1", "web-2"]);
    assert!(planned(limited, sets(0)).delete.is_empty());
}

#[test]
fn progress_is_told_until_complete_or_too_late() {
    let mut rolling = deployment(2, "a", 1, 0);
    rolling.spec.as_mut().unwrap().progress_deadline_seconds = Some(60);
    let created = Did {
        created: Some("web-1".to_owned()),
        ..Did::default()
    };
    let (first, wake) = status(&model(rolling.clone(), vec![]), &created, at(1000));
    let condition = |status: &minato_api::k8s::apps::v1::DeploymentStatus, type_: &str| {
        let conditions = status.conditions.clone().unwrap();
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_ == type_)
            .unwrap();
        (found.status, found.reason.unwrap())
    };
    assert_eq!(
        condition(&first, "Progressing"),
        ("True".to_owned(), "NewReplicaSetCreated".to_owned())
    );
    assert_eq!(condition(&first, "Available").0, "False");
    assert_eq!(wake, Some(Duration::from_millis(60_010)));

    rolling.status = Some(first);
    let (late, wake) = status(
        &model(rolling.clone(), vec![set(1, "a", 2, 0, 2)]),
        &Did::default(),
        at(1030),
    );
    assert_eq!(
        condition(&late, "Progressing"),
        ("True".to_owned(), "ReplicaSetUpdated".to_owned())
    );
    assert_eq!(wake, Some(Duration::from_millis(60_010)));

    rolling.status = Some(late);
    let (expired, wake) = status(
        &model(rolling.clone(), vec![set(1, "a", 2, 0, 2)]),
        &Did::default(),
        at(1090),
    );
    assert_eq!(
        condition(&expired, "Progressing"),
        ("False".to_owned(), "ProgressDeadlineExceeded".to_owned())
    );
    assert_eq!(wake, None);

    rolling.status = Some(expired);
    let (done, _) = status(
        &model(rolling.clone(), vec![set(1, "a", 2, 2, 2)]),
        &Did::default(),
        at(1100),
    );
    assert_eq!(
        condition(&done, "Progressing"),
        ("True".to_owned(), "NewReplicaSetAvailable".to_owned())
    );
    assert_eq!(condition(&done, "Available").0, "True");
    assert_eq!(done.unavailable_replicas, Some(0));

    // A pod that fails afterwards is no rollout.
    rolling.status = Some(done.clone());
    let (after, wake) = status(&model(rolling, vec![set(1, "a", 2, 1, 2)]), &Did::default(), at(5000));
    assert_eq!(condition(&after, "Progressing"), condition(&done, "Progressing"));
    assert_eq!(wake, None);
}
