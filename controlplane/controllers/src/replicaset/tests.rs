//! Plans of ReplicaSets.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::ReplicaSet;
use minato_api::meta_v1::Time;

use super::kind::ReplicaKind;
use super::plan::{Observed, Step, observe, step};
use crate::pods::tests::pod;

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

#[test]
fn makes_up_for_finished_and_stopping_pods() {
    let mut failed = pod("failed", Some("n"), None);
    failed.status.as_mut().unwrap().phase = Some("Failed".to_owned());
    let mut stopping = pod("stopping", Some("n"), Some(1));
    stopping.metadata.deletion_timestamp = Some(Time(now()));
    let claimed = [failed, stopping, pod("a", Some("n"), Some(1))].map(Arc::new);
    assert_eq!(step(3, &claimed, now()), Step::Create(2));
    assert_eq!(step(1, &claimed, now()), Step::Nothing);
    assert_eq!(step(2000, &claimed, now()), Step::Create(500));
}

#[test]
fn deletes_what_harms_least() {
    let claimed = [pod("ready", Some("n"), Some(1)), pod("pending", None, None)].map(Arc::new);
    assert_eq!(step(1, &claimed, now()), Step::Delete(vec![claimed[1].clone()]));
}

#[test]
fn observes_ready_and_available_and_when_to_look_again() {
    let mut labeled = pod("a", Some("n"), Some(995));
    labeled.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
    let mut stopping = pod("c", Some("n"), Some(1));
    stopping.metadata.deletion_timestamp = Some(Time(now()));
    let claimed = [labeled, pod("b", Some("n"), Some(900)), pod("d", None, None), stopping].map(Arc::new);
    let labels = [("app".to_owned(), "x".to_owned())].into();
    let expected = Observed {
        replicas: 3,
        fully_labeled: 1,
        ready: 2,
        available: 1,
        terminating: 1,
        wake: Some(Duration::from_secs(5)),
    };
    assert_eq!(observe(&claimed, &labels, 10, now()), expected);
}

#[test]
fn a_status_is_written_only_when_it_changed() {
    let set = ReplicaSet::default();
    assert!(set.next_status(&Observed::default(), None, now()).is_none());
    let failed = set
        .next_status(&Observed::default(), Some(("FailedCreate", "quota".to_owned())), now())
        .unwrap();
    let conditions = failed.status.as_ref().unwrap().conditions.clone().unwrap();
    assert_eq!(
        (conditions[0].type_.as_str(), conditions[0].reason.as_deref()),
        ("ReplicaFailure", Some("FailedCreate"))
    );
    let well = failed.next_status(&Observed::default(), None, now()).unwrap();
    assert_eq!(well.status.unwrap().conditions, None);
}
