use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, Service};
use minato_provider_interface::{ClusterId, HealthCheck, Ingress, IpMode, LoadBalancerStatus, PortStatus, Protocol};
use serde_json::{Value, json};

use super::spec::{ingress, is_member, is_wanted, load_balancer, members, needs_cleanup};

fn service(metadata: Value, spec: Value) -> Service {
    let mut object = json!({"metadata": {"namespace": "d", "name": "s", "uid": "01234567-89ab-cdef-0123-456789abcdef"}, "spec": spec});
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn node(metadata: Value, spec: Value) -> Node {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn spec() -> Value {
    json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]})
}

#[test]
fn a_service_becomes_a_request() {
    let cluster = ClusterId("c".to_owned());
    let plain = load_balancer(&service(json!({}), spec()), Vec::new(), &cluster).unwrap();
    assert_eq!(plain.name, "a0123456789abcdef0123456789abcde");
    assert_eq!(
        (plain.owner.owner_kind.as_str(), plain.owner.owner_name.as_str()),
        ("Service", "d/s")
    );
    let ports: Vec<_> = plain
        .ports
        .iter()
        .map(|port| (port.port, port.protocol, port.node_port))
        .collect();
    assert_eq!(ports, [(80, Protocol::Tcp, Some(30080)), (53, Protocol::Udp, None)]);
    assert_eq!(
        (plain.source_ranges.len(), plain.health_check),
        (0, HealthCheck::NodePort)
    );

    let mut local = spec();
    local["externalTrafficPolicy"] = json!("Local");
    local["healthCheckNodePort"] = json!(31000);
    local["loadBalancerSourceRanges"] = json!([" 10.0.0.0/8 "]);
    local["loadBalancerIP"] = json!("192.0.2.1");
    local["sessionAffinity"] = json!("ClientIP");
    let annotations = json!({"annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "1.2.3.4/32",
        "kubectl.kubernetes.io/last-applied-configuration": "x"}});
    let local = load_balancer(&service(annotations.clone(), local), Vec::new(), &cluster).unwrap();
    assert_eq!(local.health_check, HealthCheck::LocalEndpoints { port: 31000 });
    assert_eq!(local.source_ranges, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(local.requested_ip, Some("192.0.2.1".parse().unwrap()));
    assert!(local.client_ip_affinity);
    assert_eq!(local.annotations.len(), 1);
    // The field is empty: the annotation counts.
    let annotated = load_balancer(&service(annotations, spec()), Vec::new(), &cluster).unwrap();
    assert_eq!(annotated.source_ranges, ["1.2.3.4/32".parse().unwrap()]);

    for (field, value, why) in [
        ("loadBalancerSourceRanges", json!(["everywhere"]), "is no CIDR"),
        ("loadBalancerIP", json!("here"), "is no address"),
        ("ports", json!([]), "no ports"),
        ("ports", json!([{"port": 70000}]), "out of range"),
    ] {
        let mut odd = spec();
        odd[field] = value;
        let error = load_balancer(&service(json!({}), odd), Vec::new(), &cluster).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn classes_are_told_apart_in_life_and_death() {
    let finalizer = json!({"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]});
    let mut deleted = finalizer.clone();
    deleted["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let other = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/x"});
    let case = |metadata: &Value, spec: &Value, class: Option<&str>| {
        let service = service(metadata.clone(), spec.clone());
        (is_wanted(&service, class), needs_cleanup(&service, class))
    };
    let cluster_ip = json!({"type": "ClusterIP"});
    assert_eq!(case(&json!({}), &spec(), None), (true, false));
    assert_eq!(case(&finalizer, &spec(), None), (true, false));
    assert_eq!(case(&deleted, &spec(), None), (false, true));
    assert_eq!(case(&finalizer, &cluster_ip, None), (false, true));
    assert_eq!(case(&json!({}), &cluster_ip, None), (false, false));
    assert_eq!(case(&deleted, &other, None), (false, false));
    assert_eq!(case(&json!({}), &other, Some("example.com/x")), (true, false));
    assert_eq!(case(&json!({}), &spec(), Some("example.com/x")), (false, false));
}

#[test]
fn only_nodes_that_are_taken_out_are_no_members() {
    let excluded = |value: &str| json!({"name": "n", "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}});
    let cases = [
        (json!({"name": "n"}), json!({"unschedulable": true}), true),
        (
            json!({"name": "n"}),
            json!({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}),
            false,
        ),
        (
            json!({"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({}),
            false,
        ),
        (excluded("true"), json!({}), false),
        (excluded("false"), json!({}), true),
        (excluded(""), json!({}), false),
        (excluded("garbage"), json!({}), false),
    ];
    for (metadata, spec, expected) in cases {
        assert_eq!(
            is_member(&node(metadata.clone(), spec.clone())),
            expected,
            "{metadata} {spec}"
        );
    }
    let all = ["b", "a"].map(|name| {
        Arc::new(node(
            json!({"name": name}),
            json!({"providerID": format!("m://{name}")}),
        ))
    });
    let names: Vec<_> = members(&all).into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_status_is_told_in_the_api_s_words() {
    let status = LoadBalancerStatus {
        ingress: vec![
            Ingress {
                ip: Some("192.0.2.1".parse().unwrap()),
                hostname: None,
                ip_mode: Some(IpMode::Proxy),
                ports: vec![PortStatus {
                    port: 80,
                    protocol: Protocol::Tcp,
                    error: Some("Broken".to_owned()),
                }],
            },
            Ingress {
                ip: None,
                hostname: Some("lb.example.com".to_owned()),
                ip_mode: Some(IpMode::Vip),
                ports: Vec::new(),
            },
        ],
    };
    assert_eq!(
        serde_json::to_value(ingress(&status)).unwrap(),
        json!([
            {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "Broken"}]},
            {"hostname": "lb.example.com"},
        ])
    );
}
