use jiff::Timestamp;
use minato_meta::GroupResource;
use serde_json::{Value, json};

use super::{Amounts, exceeded, increase, selects, source, usage};

fn core(resource: &str) -> GroupResource {
    GroupResource::new("", resource)
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn shown(amounts: &Amounts) -> Value {
    json!(
        amounts
            .iter()
            .map(|(name, amount)| (name.clone(), amount.to_string()))
            .collect::<std::collections::BTreeMap<_, _>>()
    )
}

fn amounts(list: Value) -> Amounts {
    super::amounts(Some(&list))
}

#[test]
fn names_lead_to_kinds() {
    let of = |name: &str| source(name).map(|resource| (resource.resource, resource.group));
    let pair = |resource: &str, group: &str| Some((resource.to_owned(), group.to_owned()));
    assert_eq!(of("count/deployments.apps"), pair("deployments", "apps"));
    assert_eq!(of("count/pods"), pair("pods", ""));
    assert_eq!(of("services.nodeports"), pair("services", ""));
    assert_eq!(of("requests.storage"), pair("persistentvolumeclaims", ""));
    assert_eq!(
        of("gold.storageclass.storage.k8s.io/requests.storage"),
        pair("persistentvolumeclaims", "")
    );
    assert_eq!(of("requests.example.com/gpu"), pair("pods", ""));
    assert_eq!(of("cpu"), pair("pods", ""));
    assert_eq!(of("nonsense"), None);
}

#[test]
fn a_pod_uses_what_its_containers_ask_for() {
    let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
    let mut init = container(json!({"cpu": "3", "memory": "1Gi"}), json!({}));
    let mut side_car = container(json!({"cpu": "500m"}), json!({}));
    side_car["restartPolicy"] = json!("Always");
    init["name"] = json!("first");
    let pod = json!({"spec": {
        "initContainers": [side_car, init],
        "containers": [
            container(json!({"cpu": "1", "memory": "512Mi", "example.com/gpu": "2"}), json!({"cpu": "2", "example.com/gpu": "2"})),
            container(json!({"cpu": "250m", "memory": "512Mi"}), json!({"memory": "1Gi"})),
        ],
        "overhead": {"memory": "100Mi"},
    }});
    // cpu: 1.25 beside half a side car, but first 3.5; memory: 1Gi either way, and the overhead.
    assert_eq!(
        shown(&usage(&core("pods"), &pod, now())),
        json!({
            "count/pods": "1", "pods": "1",
            "cpu": "3500m", "requests.cpu": "3500m", "memory": "1124Mi", "requests.memory": "1124Mi",
            "requests.example.com/gpu": "2", "limits.cpu": "2", "limits.memory": "1124Mi",
        })
    );
    // The pod's own say goes before that of its containers.
    let whole = json!({"spec": {"resources": {"requests": {"cpu": "2"}}, "containers": [container(json!({"cpu": "1"}), json!({}))]}});
    assert_eq!(usage(&core("pods"), &whole, now())["requests.cpu"].to_string(), "2");
}

#[test]
fn a_pod_that_has_ended_or_should_have_uses_nothing() {
    let only_counted = |pod: Value| shown(&usage(&core("pods"), &pod, now())) == json!({"count/pods": "1"});
    assert!(only_counted(json!({"status": {"phase": "Succeeded"}})));
    let deleted = |at: &str| json!({"metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}});
    assert!(only_counted(deleted("2025-12-31T23:59:00Z")));
    assert!(!only_counted(deleted("2025-12-31T23:59:45Z")));
}

#[test]
fn services_and_claims_use_ports_and_storage() {
    let ports = json!([{"port": 1, "nodePort": 30001}, {"port": 2}]);
    let service = |spec: Value| shown(&usage(&core("services"), &json!({"spec": spec}), now()));
    let plain = json!({"count/services": "1", "services": "1"});
    assert_eq!(service(json!({"type": "ClusterIP", "ports": ports})), plain);
    assert_eq!(
        service(json!({"type": "NodePort", "ports": ports}))["services.nodeports"],
        "2"
    );
    let balanced = service(json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}));
    assert_eq!(
        (&balanced["services.loadbalancers"], &balanced["services.nodeports"]),
        (&json!("1"), &json!("1"))
    );

    let claim = json!({
        "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "2Gi"}},
    });
    assert_eq!(
        shown(&usage(&core("persistentvolumeclaims"), &claim, now())),
        json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2Gi",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
        })
    );
    assert_eq!(
        shown(&usage(&core("secrets"), &json!({}), now())),
        json!({"count/secrets": "1", "secrets": "1"})
    );
    let deployments = GroupResource::new("apps", "deployments");
    assert_eq!(
        shown(&usage(&deployments, &json!({}), now())),
        json!({"count/deployments.apps": "1"})
    );
}

#[test]
fn scopes_select_pods() {
    let plain = json!({"spec": {"containers": [{}]}});
    let burdened = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]}}}});
    let quota = |scope: &str| json!({"spec": {"scopes": [scope]}});
    for scope in [
        "Terminating",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    ] {
        assert!(selects(&quota(scope), &core("pods"), &burdened), "{scope}");
        assert!(!selects(&quota(scope), &core("pods"), &plain), "{scope}");
    }
    for scope in ["NotTerminating", "BestEffort"] {
        assert!(selects(&quota(scope), &core("pods"), &plain), "{scope}");
        assert!(!selects(&quota(scope), &core("services"), &plain), "{scope}");
    }
    let classes = |operator: &str| json!({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}}});
    assert!(selects(&classes("In"), &core("pods"), &burdened));
    assert!(!selects(&classes("NotIn"), &core("pods"), &burdened));
    assert!(selects(&classes("NotIn"), &core("pods"), &plain));
    assert!(selects(&json!({}), &core("services"), &plain));
}

#[test]
fn only_more_of_what_is_limited_is_too_much() {
    let hard = amounts(json!({"cpu": "2", "pods": 3}));
    let used = amounts(json!({"cpu": "1500m", "pods": "3"}));
    assert_eq!(
        exceeded(&hard, &used, &amounts(json!({"cpu": "500m", "memory": "1Ti"}))),
        Vec::<String>::new()
    );
    assert_eq!(
        exceeded(&hard, &used, &amounts(json!({"cpu": "501m", "pods": "0"}))),
        ["cpu"]
    );
    assert_eq!(exceeded(&hard, &used, &amounts(json!({"pods": "1"}))), ["pods"]);
    let more = increase(
        &amounts(json!({"cpu": "1", "pods": "1"})),
        &amounts(json!({"cpu": "3", "pods": "1", "memory": "1"})),
    );
    assert_eq!(shown(&more), json!({"cpu": "2", "memory": "1"}));
}

#[test]
fn what_is_limited_must_be_stated() {
    let full = json!({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1"}});
    let pod = json!({"spec": {"containers": [
        {"name": "b", "resources": full}, {"name": "c"}, {"name": "a", "resources": {"limits": {"cpu": "1"}}},
    ]}});
    let limited = ["cpu", "limits.cpu", "limits.memory", "pods"];
    assert_eq!(
        super::unstated(&pod, &limited).unwrap(),
        "cpu for: a,c; limits.cpu for: c; limits.memory for: a,c"
    );
    assert_eq!(super::unstated(&pod, &["pods", "requests.example.com/gpu"]), None);
    let mut whole = pod.clone();
    whole["spec"]["resources"] = json!({"limits": {"memory": "1", "cpu": "1"}, "requests": {"cpu": "1"}});
    assert_eq!(super::unstated(&whole, &limited), None);
    let names = ["pods", "count/pods", "services", "cpu"].map(str::to_owned);
    assert_eq!(super::of_kind(&names, &core("pods")), ["pods", "count/pods", "cpu"]);
}
