//! Nodes and routes against a real API server and a simulated cloud.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Fault, is_initialized, named, quick, taints, transient, world};
use minato_api::k8s::core::v1::Node;
use minato_api::kube::api::DeleteParams;
use minato_provider_interface::{CloudError, CloudErrorKind, ClusterId, ProviderId, Route};
use minato_provider_mock::call::{Call, Endpoint};
use serde_json::json;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

fn addresses(node: &Node) -> Vec<String> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses
        .map(|address| format!("{}={}", address.type_, address.address))
        .collect()
}

fn network_unavailable(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some(format!("{} {}", found.status, found.reason.as_deref().unwrap_or("")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_initialized_when_the_cloud_knows_it() {
    let world = world(quick()).await;
    world.cloud.afflict({
        let mut left = 2;
        move |call| {
            let fails = matches!(call, Call::Metadata { .. }) && left > 0;
            left -= i32::from(fails);
            fails.then(|| Fault::Refused(transient()))
        }
    });
    world.register("n1", None).await;
    // Nobody has this name yet: it stays as it is.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!is_initialized(&world.nodes().get("n1").await.unwrap()));
    world
        .patch(&world.nodes(), "n1", json!({"metadata": {"labels": {"own": "x"}}}))
        .await;
    let id = world.machine("n1").await;
    let all = world
        .until(&world.nodes(), "initialization", |all| is_initialized(&all[0]))
        .await;
    let node = &all[0];
    assert_eq!(node.spec.as_ref().unwrap().provider_id.as_deref(), Some(id.as_str()));
    let labels = node.metadata.labels.clone().unwrap();
    assert_eq!(labels["topology.kubernetes.io/zone"], "zone-a");
    assert_eq!(labels["topology.kubernetes.io/region"], "region-1");
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m1.small");
    assert_eq!(labels["own"], "x");
    let ip = world.cloud.cloud.snapshot().instances.values().next().unwrap().ip;
    assert_eq!(addresses(node), [format!("InternalIP={ip}"), "Hostname=n1".to_owned()]);
    world.until_event("Synced").await;

    // What others make of the addresses is put right, and nothing else is written.
    let forged = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.66"}]}});
    let params = minato_api::kube::api::PatchParams::default();
    let patch = minato_api::kube::api::Patch::Merge(&forged);
    world.nodes().patch_status("n1", &params, &patch).await.unwrap();
    let right = |all: &[Node]| addresses(&all[0]) == [format!("InternalIP={ip}"), "Hostname=n1".to_owned()];
    world.until(&world.nodes(), "the right addresses", right).await;
    let before = world.nodes().get("n1").await.unwrap().metadata.resource_version;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(world.nodes().get("n1").await.unwrap().metadata.resource_version, before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_cost_few_calls() {
    let world = world(quick()).await;
    for i in 0..40 {
        world.machine(&format!("n{i}")).await;
    }
    let jobs = (0..40).map(|i| {
        let world = &world;
        async move { world.register(&format!("n{i}"), None).await }
    });
    futures::future::join_all(jobs).await;
    world
        .until(&world.nodes(), "initialization", |all| {
            all.len() == 40 && all.iter().all(is_initialized)
        })
        .await;
    let calls = world.cloud.count("metadata");
    assert!(calls < 40, "{calls} calls");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_with_its_instance_and_on_no_other_word() {
    let world = world(quick()).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(world.node(name, None).await);
    }
    // Ready nodes are not asked about.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let asked = world.cloud.count("existence");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.cloud.count("existence"), asked);

    // Off: it is marked, once, and stays.
    world
        .provider
        .call(Call::StopMachine { id: ids[0].clone() })
        .await
        .unwrap();
    world.ready("a", "Unknown").await;
    let marked = |all: &[Node]| taints(named(all, "a")).contains(&SHUTDOWN.to_owned());
    world.until(&world.nodes(), "the mark", marked).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(taints(&world.nodes().get("a").await.unwrap()), [SHUTDOWN]);
    world
        .provider
        .call(Call::StartMachine { id: ids[0].clone() })
        .await
        .unwrap();
    world.ready("a", "True").await;
    world
        .until(&world.nodes(), "the mark's end", |all| {
            taints(named(all, "a")).is_empty()
        })
        .await;

    // Whatever the cloud says but "it is not there" deletes nothing.
    world
        .provider
        .call(Call::TerminateMachine { id: ids[1].clone() })
        .await
        .unwrap();
    for kind in [
        CloudErrorKind::Unauthorized,
        CloudErrorKind::Throttled,
        CloudErrorKind::Transient,
        CloudErrorKind::Invalid,
        CloudErrorKind::NotFound,
    ] {
        world.cloud.afflict(move |call| {
            let asks = matches!(call, Call::Existence { .. });
            asks.then(|| Fault::Refused(CloudError::new(kind, "no answer")))
        });
        world.ready("b", "Unknown").await;
        let asked = world.cloud.count("existence");
        while world.cloud.count("existence") < asked + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(world.nodes().get_opt("b").await.unwrap().is_some(), "{kind:?}");
    }
    world.cloud.heal();
    world.until(&world.nodes(), "the deletion", |all| all.len() == 3).await;
    world.until_event("DeletingNode").await;

    // A node without an id whose name nobody has: only after a while.
    world.register("stray", None).await;
    world.ready("stray", "False").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.nodes().get_opt("stray").await.unwrap().is_some());
    world
        .until(&world.nodes(), "the stray's end", |all| all.len() == 3)
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_most_seem_gone_nothing_is_deleted_at_once() {
    let world = world(quick()).await;
    for name in ["a", "b", "c", "d", "e"] {
        let id = world.node(name, None).await;
        if name != "e" {
            world.provider.call(Call::TerminateMachine { id }).await.unwrap();
        }
    }
    // Nothing is heard until all four are suspects.
    world
        .cloud
        .afflict(|call| matches!(call, Call::Existence { .. }).then(|| Fault::Refused(transient())));
    for name in ["a", "b", "c", "d"] {
        world.ready(name, "Unknown").await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = tokio::time::Instant::now();
    world.cloud.heal();
    world.until_event("MassDeletionPaused").await;
    assert_eq!(world.nodes().list(&Default::default()).await.unwrap().items.len(), 5);
    world.until(&world.nodes(), "the deletions", |all| all.len() == 1).await;
    assert!(start.elapsed() >= Duration::from_millis(800));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_range_is_routed_to_its_node() {
    let mut world = world(quick()).await;
    // Another cluster's route, and one of ours outside the pods' ranges, are nobody's business.
    let foreign = |destination: &str| Route {
        destination: destination.parse().unwrap(),
        target: Some(ProviderId::new("mock:///zone-a/i-x")),
        node_name: "x".to_owned(),
        node_uid: "x".to_owned(),
        next_hops: Vec::new(),
    };
    let change = |destination: &str| Call::ChangeRoutes {
        create: vec![foreign(destination)],
        delete: Vec::new(),
    };
    world
        .cloud
        .cloud
        .call(&ClusterId("other".to_owned()), change("10.250.0.0/24"))
        .await
        .unwrap();
    world.provider.call(change("192.168.0.0/24")).await.unwrap();
    // A leftover of an earlier life leads nowhere.
    world.kill().await;
    world.provider.call(change("10.244.9.0/24")).await.unwrap();
    world.start();

    let a = world.node("a", Some("10.244.0.0/24")).await;
    let b = world.node("b", Some("10.244.1.0/24")).await;
    let routes = |state: &minato_provider_mock::state::CloudState| -> Vec<(String, String)> {
        let mut routes: Vec<_> = state
            .routes
            .iter()
            .map(|(_, r)| (r.destination.to_string(), r.target.as_ref().unwrap().to_string()))
            .collect();
        routes.sort();
        routes
    };
    let others = [
        ("10.250.0.0/24", "mock:///zone-a/i-x"),
        ("192.168.0.0/24", "mock:///zone-a/i-x"),
    ];
    let expected = |own: &[(&str, &ProviderId)]| {
        let own = own.iter().map(|(cidr, id)| ((*cidr).to_owned(), id.to_string()));
        let others = others.iter().map(|(cidr, id)| ((*cidr).to_owned(), (*id).to_owned()));
        let mut all: Vec<_> = own.chain(others).collect();
        all.sort();
        all
    };
    let both = expected(&[("10.244.0.0/24", &a), ("10.244.1.0/24", &b)]);
    world.until_cloud("both routes", |state| routes(state) == both).await;
    let routed = |node: &Node| network_unavailable(node).as_deref() == Some("False RouteCreated");
    world
        .until(&world.nodes(), "the conditions", |all| all.iter().all(routed))
        .await;

    // Idle, it costs nothing.
    let (lists, changes) = (world.cloud.count("listRoutes"), world.cloud.count("changeRoutes"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(world.cloud.count("listRoutes") <= lists + 1);
    assert_eq!(world.cloud.count("changeRoutes"), changes);

    // A failure is told on the node, and heals. So does a lost answer.
    world.cloud.afflict(|call| {
        let creates = matches!(call, Call::ChangeRoutes { create, .. } if !create.is_empty());
        creates.then(|| Fault::Refused(CloudError::new(CloudErrorKind::QuotaExceeded, "too many routes")))
    });
    let c = world.node("c", Some("10.244.2.0/24")).await;
    let unrouted = |all: &[Node]| network_unavailable(named(all, "c")).as_deref() == Some("True NoRouteCreated");
    world.until(&world.nodes(), "the failure", unrouted).await;
    assert!(routed(&world.nodes().get("a").await.unwrap()));
    world
        .cloud
        .afflict(|call| matches!(call, Call::ChangeRoutes { .. }).then_some(Fault::Lost));
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.cloud.heal();
    let three = expected(&[("10.244.0.0/24", &a), ("10.244.1.0/24", &b), ("10.244.2.0/24", &c)]);
    world.until_cloud("three routes", |state| routes(state) == three).await;
    world
        .until(&world.nodes(), "the healing", |all| all.iter().all(routed))
        .await;

    // With the node goes its route, and its range may lead elsewhere.
    world.nodes().delete("b", &DeleteParams::default()).await.unwrap();
    let d = world.node("d", Some("10.244.1.0/24")).await;
    let moved = expected(&[("10.244.0.0/24", &a), ("10.244.1.0/24", &d), ("10.244.2.0/24", &c)]);
    world
        .until_cloud("the moved range", |state| routes(state) == moved)
        .await;

    // A list that fails says nothing about any node.
    world
        .cloud
        .afflict(|call| matches!(call, Call::ListRoutes).then(|| Fault::Refused(transient())));
    world.nodes().delete("a", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let all = world.nodes().list(&Default::default()).await.unwrap().items;
    assert!(all.iter().all(routed));
    world.stop().await;
}
