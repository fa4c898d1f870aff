//! From the nodes and the routes that are there to those that should be: no await, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use minato_api::k8s::core::v1::Node;
use minato_provider_interface::{CloudError, CloudErrorKind, ProviderId, Route};

use crate::ops;

/// What of a node decides about its routes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) provider_id: Option<String>,
    pub(super) cidrs: Vec<IpNet>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) deleting: bool,
}

pub(super) fn view(node: &Node) -> View {
    let spec = node.spec.as_ref();
    let lists = spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    let mut cidrs: Vec<IpNet> = lists.filter_map(|text| text.parse().ok()).collect();
    if cidrs.is_empty() {
        let single = spec.and_then(|spec| spec.pod_cidr.as_ref());
        cidrs.extend(single.and_then(|text| text.parse::<IpNet>().ok()));
    }
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    View {
        provider_id: ops::provider_id(node).map(str::to_owned),
        cidrs: cidrs.into_iter().map(|cidr| cidr.trunc()).collect(),
        addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        deleting: ops::is_deleting(&node.metadata),
    }
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<Route>,
    pub(super) delete: Vec<Route>,
    /// Nodes whose routes cannot be made as they are, by name.
    pub(super) impossible: BTreeMap<String, CloudError>,
}

/// Whether a route leads where it should. Clouds that do not tell next hops are taken at their word.
fn fits(present: &Route, wanted: &Route) -> bool {
    let hops = |route: &Route| route.next_hops.iter().copied().collect::<BTreeSet<_>>();
    present.destination == wanted.destination
        && present.target == wanted.target
        && (present.next_hops.is_empty() || hops(present) == hops(wanted))
}

pub(super) fn plan(present: &[Route], nodes: &[Arc<Node>], cluster: &[IpNet]) -> Plan {
    let mut plan = Plan::default();
    let mut wanted: BTreeMap<IpNet, Route> = BTreeMap::new();
    let mut sorted: Vec<&Arc<Node>> = nodes.iter().collect();
    // Of two that claim one range, the older has it.
    sorted.sort_by_key(|node| {
        (
            node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            node.metadata.name.clone(),
        )
    });
    for node in sorted {
        let view = view(node);
        let name = ops::name(&node.metadata).to_owned();
        let mut refuse = |kind, why: String| {
            plan.impossible.insert(name.clone(), CloudError::new(kind, why));
        };
        if view.deleting {
            continue;
        }
        for cidr in view.cidrs {
            let Some(id) = &view.provider_id else {
                refuse(CloudErrorKind::NotFound, "the node has no provider id yet".to_owned());
                continue;
            };
            if !cluster.iter().any(|range| range.contains(&cidr)) {
                refuse(
                    CloudErrorKind::Invalid,
                    format!("{cidr} is not in the cluster's ranges"),
                );
                continue;
            }
            if let Some(other) = wanted.get(&cidr) {
                refuse(CloudErrorKind::Invalid, format!("{cidr} is {}'s", other.node_name));
                continue;
            }
            let same_family = view
                .addresses
                .iter()
                .filter(|address| address.is_ipv4() == cidr.addr().is_ipv4());
            wanted.insert(
                cidr,
                Route {
                    destination: cidr,
                    target: Some(ProviderId::new(id)),
                    node_name: name.clone(),
                    node_uid: ops::uid(&node.metadata).to_owned(),
                    next_hops: same_family.copied().collect(),
                },
            );
        }
    }
    for route in present {
        // What is not within the cluster's ranges is not ours, whatever its tags say.
        let ours = cluster.iter().any(|range| range.contains(&route.destination));
        let fitting = wanted.get(&route.destination).is_some_and(|wanted| fits(route, wanted));
        if ours && !fitting {
            plan.delete.push(route.clone());
        }
    }
    let missing = wanted
        .into_values()
        .filter(|wanted| !present.iter().any(|route| fits(route, wanted)));
    plan.create.extend(missing);
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, cidr: &str, id: Option<&str>, address: &str) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"podCIDRs": [cidr], "providerID": id},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
            .unwrap(),
        )
    }

    fn route(cidr: &str, name: &str, id: Option<&str>, hop: &str) -> Route {
        Route {
            destination: cidr.parse().unwrap(),
            target: id.map(ProviderId::new),
            node_name: name.to_owned(),
            node_uid: format!("uid-{name}"),
            next_hops: vec![hop.parse().unwrap()],
        }
    }

    fn cluster() -> Vec<IpNet> {
        vec!["10.244.0.0/16".parse().unwrap()]
    }

    #[test]
    fn makes_what_is_missing_and_removes_what_leads_nowhere() {
        let nodes = [
            node("a", "10.244.0.0/24", Some("m://a"), "10.0.0.1"),
            node("b", "10.244.1.0/24", Some("m://b"), "10.0.0.2"),
            node("c", "10.244.2.0/24", Some("m://c"), "10.0.0.3"),
            node("d", "10.244.3.0/24", None, "10.0.0.4"),
        ];
        let present = [
            route("10.244.0.0/24", "a", Some("m://a"), "10.0.0.1"),
            // Its address changed.
            route("10.244.1.0/24", "b", Some("m://b"), "10.0.0.9"),
            // A blackhole, and a route to a node that is gone.
            route("10.244.9.0/24", "x", None, "10.0.0.7"),
            route("10.244.8.0/24", "y", Some("m://y"), "10.0.0.8"),
            // Not ours to touch.
            route("192.168.0.0/24", "z", None, "10.0.0.7"),
        ];
        let plan = plan(&present, &nodes, &cluster());
        let created: Vec<_> = plan.create.iter().map(|route| route.node_name.as_str()).collect();
        assert_eq!(created, ["b", "c"]);
        assert_eq!(plan.create[0].next_hops, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        let deleted: Vec<_> = plan.delete.iter().map(|route| route.destination.to_string()).collect();
        assert_eq!(deleted, ["10.244.1.0/24", "10.244.9.0/24", "10.244.8.0/24"]);
        assert_eq!(plan.impossible.keys().collect::<Vec<_>>(), ["d"]);
    }

    #[test]
    fn a_range_that_moved_to_another_node_is_led_there() {
        let nodes = [node("b", "10.244.0.0/24", Some("m://b"), "10.0.0.2")];
        let plan = plan(
            &[route("10.244.0.0/24", "a", Some("m://a"), "10.0.0.1")],
            &nodes,
            &cluster(),
        );
        assert_eq!((plan.create.len(), plan.delete.len()), (1, 1));
        assert_eq!(plan.create[0].target, Some(ProviderId::new("m://b")));
    }

    #[test]
    fn one_range_has_one_node() {
        let nodes = [
            node("a", "10.244.0.0/24", Some("m://a"), "10.0.0.1"),
            node("b", "10.244.0.0/24", Some("m://b"), "10.0.0.2"),
            node("c", "172.16.0.0/24", Some("m://c"), "10.0.0.3"),
        ];
        let plan = plan(&[], &nodes, &cluster());
        assert_eq!(plan.create.len(), 1);
        assert_eq!(plan.impossible.keys().collect::<Vec<_>>(), ["b", "c"]);
    }
}
