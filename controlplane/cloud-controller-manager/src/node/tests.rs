use minato_api::k8s::core::v1::Node;
use minato_provider_interface::{AddressType, InstanceMetadata, NodeAddress, ProviderId};
use serde_json::{Value, json};

use super::plan::{addresses, differ, initialized, keep_hostname, missing_labels};

fn node(metadata: Value, spec: Value, addresses: Value) -> Node {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"addresses": addresses}})).unwrap()
}

fn metadata(list: &[(AddressType, &str)]) -> InstanceMetadata {
    InstanceMetadata {
        provider_id: ProviderId::new("mock:///a/i-1"),
        instance_type: "m1.small".to_owned(),
        addresses: list
            .iter()
            .map(|(address_type, address)| NodeAddress {
                address_type: *address_type,
                address: (*address).to_owned(),
            })
            .collect(),
        zone: "zone-a".to_owned(),
        region: String::new(),
        labels: [("example.com/rack", "r1"), ("sub.k8s.io/x", "no"), ("mine", "cloud")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
    }
}

#[test]
fn a_new_node_gets_its_id_and_labels_and_loses_the_taint_alone() {
    let taints = json!([
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
        {"key": "mine", "effect": "NoSchedule"},
    ]);
    let fresh = node(
        json!({"name": "n", "labels": {"mine": "own"}}),
        json!({"taints": taints}),
        json!([]),
    );
    assert_eq!(
        initialized(&fresh, &metadata(&[])),
        json!({
            "metadata": {"labels": {
                "node.kubernetes.io/instance-type": "m1.small", "beta.kubernetes.io/instance-type": "m1.small",
                "topology.kubernetes.io/zone": "zone-a", "failure-domain.beta.kubernetes.io/zone": "zone-a",
                "example.com/rack": "r1",
            }},
            "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}], "providerID": "mock:///a/i-1"},
        })
    );
    // An id that is there is never another's to change, and what is no label is left out.
    let known = node(json!({"name": "n"}), json!({"providerID": "mock:///b/i-2"}), json!([]));
    let mut odd = metadata(&[]);
    odd.zone = "has spaces".to_owned();
    let patch = initialized(&known, &odd);
    assert_eq!(patch["spec"], json!({"taints": []}));
    assert_eq!(patch["metadata"]["labels"].get("topology.kubernetes.io/zone"), None);
}

#[test]
fn addresses_that_the_kubelet_was_told_come_first_and_alone_of_their_type() {
    use AddressType::{ExternalIP, Hostname, InternalIP};
    let cloud = metadata(&[
        (InternalIP, "10.0.0.1"),
        (InternalIP, "10.0.0.2"),
        (ExternalIP, "192.0.2.1"),
        (Hostname, "h"),
    ]);
    let told = |ips: &str| {
        let node = node(
            json!({"name": "n", "annotations": {"alpha.kubernetes.io/provided-node-ip": ips}}),
            json!({}),
            json!([]),
        );
        let found = addresses(&node, &cloud).map_err(|error| error.to_string())?;
        Ok::<_, String>(found.into_iter().map(|address| address.address).collect::<Vec<_>>())
    };
    assert_eq!(told("10.0.0.2").unwrap(), ["10.0.0.2", "192.0.2.1", "h"]);
    assert_eq!(
        told("10.0.0.2, 10.0.0.1").unwrap(),
        ["10.0.0.2", "10.0.0.1", "192.0.2.1", "h"]
    );
    assert!(told("10.0.0.9").unwrap_err().contains("does not know 10.0.0.9"));
    assert!(told("garbage").unwrap_err().contains("no address"));
}

#[test]
fn only_other_addresses_are_a_difference() {
    use AddressType::{ExternalIP, InternalIP};
    let present = json!([
        {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ]);
    let node = node(json!({"name": "n"}), json!({}), present);
    let of = |list: &[(AddressType, &str)]| keep_hostname(&node, addresses(&node, &metadata(list)).unwrap());
    assert!(!differ(
        &node,
        &of(&[(InternalIP, "10.0.0.1"), (ExternalIP, "192.0.2.1")])
    ));
    assert!(differ(
        &node,
        &of(&[(InternalIP, "10.0.0.7"), (ExternalIP, "192.0.2.1")])
    ));
    assert!(of(&[]).is_empty());
}

#[test]
fn older_labels_give_the_current_ones() {
    let labels = json!({"failure-domain.beta.kubernetes.io/zone": "a", "topology.kubernetes.io/zone": "b",
        "beta.kubernetes.io/instance-type": "m", "node.kubernetes.io/instance-type": "m"});
    let node = node(json!({"name": "n", "labels": labels}), json!({}), json!([]));
    assert_eq!(
        missing_labels(&node),
        [("topology.kubernetes.io/zone".to_owned(), "a".to_owned())].into()
    );
}
