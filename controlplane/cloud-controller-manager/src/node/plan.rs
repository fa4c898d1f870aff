//! From what the cloud says to what a Node should say: no await, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use minato_api::k8s::core::v1::{Node, NodeAddress};
use minato_meta::names;
use minato_provider_interface::{AddressType, CloudError, CloudErrorKind, InstanceMetadata};
use serde_json::{Map, Value, json};

use crate::ops;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Addresses that the kubelet was told to use, with commas between them.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Labels, and the older names of the same.
const INSTANCE_TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] = [
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
];

/// Whether the cloud has not been asked about the node yet.
pub(super) fn is_new(node: &Node) -> bool {
    !ops::is_deleting(&node.metadata) && ops::taints(node).any(|taint| taint.key == UNINITIALIZED)
}

/// Labels that an initialized node lacks and whose older names it has.
pub(super) fn missing_labels(node: &Node) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for [current, older] in [INSTANCE_TYPE, ZONE, REGION] {
        if let Some(value) = ops::label(&node.metadata, older)
            && ops::label(&node.metadata, current) != Some(value)
        {
            labels.insert(current.to_owned(), value.to_owned());
        }
    }
    labels
}

/// The patch that makes a node initialized.
pub(super) fn initialized(node: &Node, metadata: &InstanceMetadata) -> Value {
    let mut labels = Map::new();
    let facts = [
        (INSTANCE_TYPE, &metadata.instance_type),
        (ZONE, &metadata.zone),
        (REGION, &metadata.region),
    ];
    for (keys, value) in facts {
        if value.is_empty() {
            continue;
        }
        if !names::label_value(value).is_empty() {
            tracing::warn!(label = keys[0], value, "the cloud's value cannot be a label");
            continue;
        }
        labels.extend(keys.map(|key| (key.to_owned(), json!(value))));
    }
    for (key, value) in &metadata.labels {
        let free = !is_reserved(key) && ops::label(&node.metadata, key).is_none();
        if free && names::qualified_name(key).is_empty() && names::label_value(value).is_empty() {
            labels.insert(key.clone(), json!(value));
        }
    }
    let taints: Vec<_> = ops::taints(node).filter(|taint| taint.key != UNINITIALIZED).collect();
    let mut spec = Map::new();
    spec.insert("taints".to_owned(), json!(taints));
    if ops::provider_id(node).is_none() {
        spec.insert("providerID".to_owned(), json!(metadata.provider_id));
    }
    json!({"metadata": {"labels": labels}, "spec": spec})
}

/// Labels in Kubernetes' own domains are not a cloud's to set.
fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|reserved| domain == *reserved || domain.strip_suffix(reserved).is_some_and(|rest| rest.ends_with('.')))
}

fn type_name(address_type: AddressType) -> &'static str {
    match address_type {
        AddressType::Hostname => "Hostname",
        AddressType::InternalIP => "InternalIP",
        AddressType::ExternalIP => "ExternalIP",
        AddressType::InternalDNS => "InternalDNS",
        AddressType::ExternalDNS => "ExternalDNS",
    }
}

/// The node's addresses: the cloud's, with those first that the kubelet was told to use, and of their types no others.
///
/// # Errors
/// The kubelet was told to use one that the cloud does not know.
pub(super) fn addresses(node: &Node, metadata: &InstanceMetadata) -> Result<Vec<NodeAddress>, CloudError> {
    let all: Vec<NodeAddress> = metadata
        .addresses
        .iter()
        .map(|address| NodeAddress {
            type_: type_name(address.address_type).to_owned(),
            address: address.address.clone(),
        })
        .collect();
    let Some(provided) = ops::annotation(&node.metadata, PROVIDED_IP) else {
        return Ok(all);
    };
    let invalid = |message: String| CloudError::new(CloudErrorKind::Invalid, message);
    let mut first = Vec::new();
    let mut settled = BTreeSet::new();
    for text in provided.split(',').map(str::trim) {
        let ip: IpAddr = text
            .parse()
            .map_err(|_| invalid(format!("{text:?} in {PROVIDED_IP} is no address")))?;
        let before = first.len();
        for address in &all {
            if address.address.parse() == Ok(ip) {
                settled.insert(address.type_.clone());
                first.push(address.clone());
            }
        }
        if first.len() == before {
            return Err(invalid(format!(
                "the cloud does not know {ip}, which the node was told to use"
            )));
        }
    }
    first.extend(all.into_iter().filter(|address| !settled.contains(&address.type_)));
    Ok(first)
}

/// A host name that the node has and the cloud does not tell is kept.
pub(super) fn keep_hostname(node: &Node, mut addresses: Vec<NodeAddress>) -> Vec<NodeAddress> {
    if addresses.is_empty() || addresses.iter().any(|address| address.type_ == "Hostname") {
        return addresses;
    }
    let present = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.extend(present.filter(|address| address.type_ == "Hostname").cloned());
    addresses
}

/// Whether the node's addresses are others than these. Their order alone is no difference.
pub(super) fn differ(node: &Node, addresses: &[NodeAddress]) -> bool {
    let sorted = |list: &[NodeAddress]| {
        let mut pairs: Vec<_> = list.iter().map(|a| (a.type_.clone(), a.address.clone())).collect();
        pairs.sort();
        pairs
    };
    let present = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.clone())
        .unwrap_or_default();
    sorted(&present) != sorted(addresses)
}
