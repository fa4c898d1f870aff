//! The Node object as the kubelet sees it: pure functions of facts and the runtime's state.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use minato_api::apimachinery::pkg::api::resource::Quantity;
use minato_api::k8s::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, Taint,
};
use minato_api::meta_v1::Time;
use minato_cri::Cri;
use minato_meta::QuantityFormat;
use minato_pki::AltName;

use super::{Capacity, Facts};
use crate::settings::Settings;

/// Upstream shows this many images in a node's status.
const IMAGES: usize = 50;

/// What the runtime says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct RuntimeState {
    /// Why it is not ready, if it is not.
    problem: Option<String>,
    /// It did not answer: it may just be starting again.
    silent: bool,
    images: Vec<ContainerImage>,
}

impl RuntimeState {
    pub(super) async fn read(cri: &Cri) -> Self {
        let status = match cri.status().await {
            Ok(status) => status,
            Err(error) => {
                return Self {
                    problem: Some(format!("container runtime is down: {error}")),
                    silent: true,
                    ..Self::default()
                };
            }
        };
        let mut problem = None;
        for (condition, what) in [
            ("RuntimeReady", "container runtime"),
            ("NetworkReady", "container runtime network"),
        ] {
            let found = status.conditions.iter().find(|c| c.r#type == condition);
            problem = problem.or(match found {
                Some(c) if c.status => None,
                Some(c) => Some(format!(
                    "{what} not ready: {condition}=false reason:{} message:{}",
                    c.reason, c.message
                )),
                None => Some(format!("{what} status unknown")),
            });
        }
        Self {
            problem,
            silent: false,
            images: images(cri).await,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn not_ready(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

async fn images(cri: &Cri) -> Vec<ContainerImage> {
    let Ok(mut images) = cri.list_images().await else {
        return Vec::new();
    };
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    images.truncate(IMAGES);
    let show = |image: minato_cri::v1::Image| ContainerImage {
        names: Some(image.repo_digests.into_iter().chain(image.repo_tags).collect()),
        size_bytes: i64::try_from(image.size).ok(),
    };
    images.into_iter().map(show).collect()
}

fn quantities(capacity: &Capacity) -> BTreeMap<String, Quantity> {
    let binary = |bytes| Quantity(minato_meta::Quantity::from_units(bytes, QuantityFormat::BinarySi).to_string());
    let decimal = |milli| Quantity(minato_meta::Quantity::from_milli(milli, QuantityFormat::DecimalSi).to_string());
    BTreeMap::from([
        ("cpu".to_owned(), decimal(capacity.milli_cpu)),
        ("memory".to_owned(), binary(capacity.memory)),
        ("ephemeral-storage".to_owned(), binary(capacity.storage)),
        ("pods".to_owned(), Quantity(capacity.pods.to_string())),
    ])
}

/// The object to register.
pub(super) fn new_node(settings: &Settings, facts: &Facts, state: &RuntimeState) -> Node {
    let mut labels = settings.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", &settings.node_name),
        ("kubernetes.io/os", &facts.info.operating_system),
        ("kubernetes.io/arch", &facts.info.architecture),
    ] {
        labels.insert(key.to_owned(), value.clone());
    }
    let mut taints = settings.taints.clone();
    if settings.external_cloud {
        taints.push(Taint {
            key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
    }
    let mut node = Node::default();
    node.metadata.name = Some(settings.node_name.clone());
    node.metadata.labels = Some(labels);
    if let Some(ip) = settings.node_ip.filter(|_| settings.external_cloud) {
        // Tells the cloud's controller which of the instance's addresses to put first.
        let annotation = ("alpha.kubernetes.io/provided-node-ip".to_owned(), ip.to_string());
        node.metadata.annotations = Some(BTreeMap::from([annotation]));
    }
    node.spec = Some(NodeSpec {
        provider_id: settings.provider_id.clone(),
        taints: (!taints.is_empty()).then_some(taints),
        ..NodeSpec::default()
    });
    node.status = Some(status(settings, facts, state, &node));
    node
}

fn addresses(settings: &Settings, existing: &[NodeAddress]) -> Vec<NodeAddress> {
    // Once the cloud's controller has written addresses, they are its own.
    if settings.external_cloud && existing.iter().any(|a| a.type_ != "Hostname") {
        return existing.to_vec();
    }
    let address = |type_: &str, address: String| NodeAddress {
        type_: type_.to_owned(),
        address,
    };
    let internal = settings.node_ip.map(|ip| address("InternalIP", ip.to_string()));
    internal
        .into_iter()
        .chain([address("Hostname", settings.node_name.clone())])
        .collect()
}

fn condition(
    old: &NodeStatus,
    now: Timestamp,
    type_: &str,
    (value, reason, message): (bool, &str, &str),
) -> NodeCondition {
    let status = if value { "True" } else { "False" };
    let before = old.conditions.iter().flatten().find(|c| c.type_ == type_);
    let since = before
        .filter(|c| c.status == status)
        .and_then(|c| c.last_transition_time.clone());
    NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(since.unwrap_or(Time(now))),
    }
}

/// The status now; `node` is what the API server has.
pub(super) fn status(settings: &Settings, facts: &Facts, state: &RuntimeState, node: &Node) -> NodeStatus {
    let old = node.status.clone().unwrap_or_default();
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let ready = match &state.problem {
        None => (true, "KubeletReady", "kubelet is posting ready status"),
        Some(problem) => (false, "KubeletNotReady", problem.as_str()),
    };
    let conditions = vec![
        condition(
            &old,
            now,
            "MemoryPressure",
            (
                false,
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
        ),
        condition(
            &old,
            now,
            "DiskPressure",
            (false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        condition(
            &old,
            now,
            "PIDPressure",
            (false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        condition(&old, now, "Ready", ready),
    ];
    NodeStatus {
        addresses: Some(addresses(settings, old.addresses.as_deref().unwrap_or_default())),
        allocatable: Some(quantities(&facts.capacity)),
        capacity: Some(quantities(&facts.capacity)),
        conditions: Some(conditions),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: settings.serve_on.port().into(),
            }),
        }),
        images: (!state.images.is_empty()).then(|| state.images.clone()),
        node_info: Some(facts.info.clone()),
        ..NodeStatus::default()
    }
}

/// Whether the status says something new; heartbeat times alone do not count.
pub(super) fn differs(old: &NodeStatus, new: &NodeStatus) -> bool {
    let comparable = |status: &NodeStatus, names: &[&str]| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|c| names.contains(&c.type_.as_str()));
            conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        }
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            let ours = [
                "addresses",
                "allocatable",
                "capacity",
                "conditions",
                "daemonEndpoints",
                "images",
                "nodeInfo",
            ];
            fields.retain(|name, _| ours.contains(&name.as_str()));
        }
        value
    };
    let names: Vec<&str> = new.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    comparable(old, &names) != comparable(new, &names)
}

/// What the serving certificate must be good for: the node's addresses.
pub(super) fn serving_names(node: &Node) -> Vec<AltName> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut names: Vec<AltName> = Vec::new();
    for address in addresses {
        let name = match (address.type_.as_str(), address.address.parse::<IpAddr>()) {
            ("InternalIP" | "ExternalIP", Ok(ip)) => AltName::Ip(ip),
            ("Hostname" | "InternalDNS" | "ExternalDNS", Err(_)) => AltName::Dns(address.address.clone()),
            _ => continue,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
