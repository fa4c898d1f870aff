//! Plans of slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Pod, PodIP, Service};
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_api::meta_v1::Time;
use serde_json::json;

use super::model::{Groups, groups};
use super::plan::{Plan, plan};
use crate::names;
use crate::pods::tests::pod;

fn service(spec: serde_json::Value) -> Service {
    let meta = json!({"name": "web", "namespace": "default", "uid": "s", "labels": {"team": "a"}});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

fn web() -> Service {
    service(
        json!({"clusterIP": "10.0.0.1", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}),
    )
}

fn serving(name: &str, address: &str, port: i32) -> Pod {
    let mut pod = pod(name, Some("n1"), Some(1));
    pod.status.as_mut().unwrap().pod_ips = Some(vec![PodIP { ip: address.to_owned() }]);
    let containers = json!([{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]);
    pod.spec.as_mut().unwrap().containers = serde_json::from_value(containers).unwrap();
    pod
}

fn grouped(service: &Service, pods: Vec<Pod>) -> Groups {
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    groups(service, &pods, |node| Some(format!("zone-of-{node}")))
}

fn planned(groups: &Groups, existing: &[EndpointSlice]) -> Plan {
    let existing: Vec<_> = existing.iter().cloned().map(Arc::new).collect();
    plan(&web(), groups, &existing, Timestamp::UNIX_EPOCH)
}

fn named(mut slice: EndpointSlice, name: &str) -> EndpointSlice {
    slice.metadata.name = Some(name.to_owned());
    slice
}

#[test]
fn named_ports_make_groups_and_conditions_follow_the_pod() {
    let mut stopping = serving("c", "10.1.0.3", 8080);
    stopping.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let mut finished = serving("d", "10.1.0.4", 8080);
    finished.status.as_mut().unwrap().phase = Some("Failed".to_owned());
    let pods = vec![
        serving("a", "10.1.0.1", 8080),
        serving("b", "10.1.0.2", 9090),
        stopping,
        finished,
        pod("without-address", Some("n1"), Some(1)),
    ];
    let groups = grouped(&web(), pods);
    let ports: Vec<_> = groups.keys().map(|(_, ports)| ports[0].port).collect();
    assert_eq!(ports, [8080, 9090]);
    let first = groups.values().next().unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].zone.as_deref(), Some("zone-of-n1"));
    let conditions = first[1].conditions.clone().unwrap();
    assert_eq!(
        (conditions.ready, conditions.serving, conditions.terminating),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn a_hostname_counts_in_the_subdomain_of_the_service_alone() {
    let headless = service(json!({"clusterIP": "None", "selector": {"app": "web"}}));
    let mut with = serving("a", "10.1.0.1", 80);
    with.spec.as_mut().unwrap().hostname = Some("a".to_owned());
    let mut inside = with.clone();
    inside.spec.as_mut().unwrap().subdomain = Some("web".to_owned());
    let hostname = |pod: Pod| {
        grouped(&headless, vec![pod]).into_values().next().unwrap()[0]
            .hostname
            .clone()
    };
    assert_eq!(hostname(with), None);
    assert_eq!(hostname(inside).as_deref(), Some("a"));
}

#[test]
fn a_service_without_pods_has_one_empty_slice() {
    let plan = planned(&BTreeMap::new(), &[]);
    assert_eq!(plan.create.len(), 1);
    let slice = &plan.create[0];
    assert!(slice.endpoints.as_ref().unwrap().is_empty());
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!(
        (labels[names::SERVICE_NAME].as_str(), labels["team"].as_str()),
        ("web", "a")
    );
    let again = planned(&BTreeMap::new(), &[named(slice.clone(), "web-1")]);
    assert!(again.create.is_empty() && again.update.is_empty() && again.delete.is_empty());
}

#[test]
fn slices_are_filled_up_and_a_change_touches_one() {
    let pods: Vec<_> = (0..150)
        .map(|i| serving(&format!("p{i:03}"), &format!("10.1.{}.{}", i / 100, i % 100), 80))
        .collect();
    let first = planned(&grouped(&web(), pods.clone()), &[]);
    let sizes: Vec<_> = first
        .create
        .iter()
        .map(|slice| slice.endpoints.as_ref().unwrap().len())
        .collect();
    assert_eq!(sizes, [100, 50]);
    let slices: Vec<_> = first
        .create
        .into_iter()
        .enumerate()
        .map(|(i, slice)| named(slice, &format!("web-{i}")))
        .collect();

    let mut fewer = pods.clone();
    fewer.remove(120);
    let plan = planned(&grouped(&web(), fewer), &slices);
    assert_eq!((plan.create.len(), plan.delete.len(), plan.update.len()), (0, 0, 1));
    assert_eq!(plan.update[0].metadata.name.as_deref(), Some("web-1"));
    assert_eq!(plan.update[0].endpoints.as_ref().unwrap().len(), 49);

    // Of the rest that fits into one slice the emptied one goes.
    let plan = planned(&grouped(&web(), pods[..100].to_vec()), &slices);
    assert_eq!((plan.create.len(), plan.update.len()), (0, 0));
    assert_eq!(plan.delete[0].metadata.name.as_deref(), Some("web-1"));
}
