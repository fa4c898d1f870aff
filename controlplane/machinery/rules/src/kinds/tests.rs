//! What holds for every kind.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::builtin;
use crate::resource::{ResourceInfo, Verb};

fn kind(plural: &str, version: &str) -> ResourceInfo {
    let mut all = builtin().into_iter();
    all.find(|i| i.gvr.resource == plural && i.gvr.version == version && i.gvr.group != "events.k8s.io")
        .unwrap()
}

#[test]
fn every_definition_is_a_known_one() {
    for info in builtin() {
        let definition = minato_schema::builtin().get(&info.definition);
        let kinds = &definition.unwrap_or_else(|| panic!("{}", info.definition)).kinds;
        assert!(kinds.contains(&info.gvk), "{}", info.definition);
    }
}

#[test]
fn paths_are_unique_and_storage_is_served() {
    let all = builtin();
    let mut paths: Vec<_> = all.iter().map(|i| format!("{:?}", i.gvr)).collect();
    paths.sort();
    let count = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), count);
    for info in &all {
        let stored = |i: &&ResourceInfo| {
            i.gvr.group == info.storage.group
                && i.gvr.resource == info.storage.resource
                && i.gvr.version == info.storage_version
        };
        assert!(all.iter().any(|i| stored(&i)), "{:?}", info.gvr);
    }
}

#[test]
fn verbs_and_foreign_bodies() {
    assert_eq!(kind("bindings", "v1").verbs, Verb::CREATE_ONLY);
    assert_eq!(kind("componentstatuses", "v1").verbs, Verb::READ_ONLY);
    assert!(!kind("namespaces", "v1").verbs.contains(&Verb::DeleteCollection));
    let pods = kind("pods", "v1");
    assert_eq!(pods.subresources.len(), 10);
    let eviction = pods.subresource("eviction").unwrap().kind.clone().unwrap();
    assert_eq!(
        (eviction.group.as_str(), eviction.kind.as_str()),
        ("policy", "Eviction")
    );
    let scale = kind("deployments", "v1")
        .subresource("scale")
        .unwrap()
        .kind
        .clone()
        .unwrap();
    assert_eq!((scale.group.as_str(), scale.kind.as_str()), ("autoscaling", "Scale"));
}

/// Runs all of a strategy on a pair of trees. Nothing is said of the results: nothing may panic, a row has as many cells
/// as there are columns, and defaulting twice is defaulting once.
fn exercise(info: &ResourceInfo, object: &Value, old: &Value) {
    let strategy = &info.strategy;
    let mut once = object.clone();
    strategy.default(&mut once);
    let mut twice = once.clone();
    strategy.default(&mut twice);
    assert_eq!(once, twice, "{:?}", info.gvr);
    for object in [object, &once] {
        assert_eq!(
            strategy.cells(object, Timestamp::UNIX_EPOCH).len(),
            strategy.columns().len(),
            "{:?}",
            info.gvr
        );
        strategy.validate(object);
        strategy.validate_update(object, old);
        strategy.validate_status_update(object, old);
        strategy.warnings(object, None);
        strategy.warnings(object, Some(old));
        strategy.graceful_deletion_seconds(object);
        for label in strategy.field_labels() {
            strategy.field(object, label);
        }
        let mut copy = object.clone();
        strategy.prepare_for_create(&mut copy);
        strategy.prepare_for_update(&mut copy, old);
        strategy.prepare_for_status_update(&mut copy, old);
        for sub in &info.subresources {
            strategy.prepare_for_subresource_update(sub.name, &mut copy, old);
            strategy.validate_subresource_update(sub.name, object, old);
        }
        strategy.validate(&copy);
    }
    strategy.validate_name("a");
}

#[test]
fn odd_trees_do_no_harm() {
    let odd = [
        json!(null),
        json!(1),
        json!([]),
        json!({}),
        json!({"metadata": [], "spec": "x", "status": 1, "data": [1], "stringData": 1}),
        json!({"spec": {"containers": [null, 1, {}], "template": {"spec": {"containers": {}}}, "ports": [{"port": 80}, 1, null]}}),
        json!({"spec": {"replicas": i64::MAX, "minReadySeconds": i64::MIN, "template": []}, "status": {"replicas": u64::MAX}}),
    ];
    for info in builtin() {
        for object in &odd {
            for old in &odd {
                exercise(&info, object, old);
            }
        }
    }
}

/// Words that strategies look for, so that random trees reach far into them.
const WORDS: &[&str] = &[
    "accessModes",
    "addresses",
    "affinity",
    "allowed",
    "annotations",
    "apiGroup",
    "apiGroups",
    "backend",
    "behavior",
    "capacity",
    "clientIP",
    "clusterIP",
    "clusterIPs",
    "completionMode",
    "completions",
    "conditions",
    "containerPort",
    "containerStatuses",
    "containers",
    "count",
    "cpu",
    "data",
    "default",
    "emptyDir",
    "endpoints",
    "env",
    "ephemeralContainers",
    "exec",
    "externalIPs",
    "finalizers",
    "hard",
    "host",
    "hostNetwork",
    "hostPort",
    "http",
    "httpGet",
    "image",
    "ingress",
    "initContainerStatuses",
    "initContainers",
    "involvedObject",
    "ip",
    "items",
    "jobTemplate",
    "key",
    "kind",
    "labels",
    "lastState",
    "limits",
    "livenessProbe",
    "matchExpressions",
    "matchLabels",
    "max",
    "maxSurge",
    "maxUnavailable",
    "memory",
    "metadata",
    "metrics",
    "min",
    "minReadySeconds",
    "mountPath",
    "name",
    "namespace",
    "nodeAffinity",
    "nodePort",
    "operator",
    "parallelism",
    "path",
    "paths",
    "podAffinity",
    "podCIDR",
    "podFailurePolicy",
    "podSelector",
    "policyTypes",
    "port",
    "ports",
    "protocol",
    "ref",
    "replicas",
    "requests",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resource",
    "resources",
    "restartPolicy",
    "roleRef",
    "rollingUpdate",
    "rules",
    "schedule",
    "secret",
    "securityContext",
    "selector",
    "sessionAffinity",
    "source",
    "spec",
    "state",
    "status",
    "storage",
    "strategy",
    "stringData",
    "subjects",
    "subsets",
    "suspend",
    "template",
    "terminated",
    "tolerations",
    "topologySpreadConstraints",
    "type",
    "updateStrategy",
    "used",
    "valueFrom",
    "values",
    "verbs",
    "versions",
    "volumeClaimTemplates",
    "volumeMounts",
    "volumes",
    "waiting",
    "webhooks",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "Always",
    "Never",
    "OnFailure",
    "ClusterIP",
    "LoadBalancer",
    "None",
    "TCP",
    "1",
    "-1",
    "1Gi",
    "100%",
    "25%",
    "x%",
    "10.0.0.1",
    "::1",
    "10.0.0.0/8",
    "/",
    "/a/../b",
    "..",
    "2026-01-01T00:00:00Z",
    "* * * * *",
    "@daily",
    "In",
    "Exists",
    "Running",
    "True",
    "example.com/x",
    "RollingUpdate",
    "Indexed",
    "Resource",
    "é",
    "kubernetes.io/tls",
    "\u{0}",
];

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just(0_i64),
            Just(1),
            Just(-1),
            Just(i64::MAX),
            Just(i64::MIN),
            0..70_000_i64
        ]
        .prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(TEXTS).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 120, 8, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((prop::sample::select(WORDS), inner), 0..8).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
            }),
        ]
    })
}

use proptest::strategy::Strategy;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_tree_makes_a_strategy_panic(spec in tree(), status in tree(), other in tree()) {
        let object = json!({"metadata": other, "spec": spec, "status": status});
        let old = json!({"metadata": spec, "spec": status, "status": other});
        for info in builtin() {
            exercise(&info, &object, &old);
            exercise(&info, &spec, &other);
        }
    }
}
