//! Load balancers against a real API server and a simulated cloud.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Fault, World, quick, transient, world};
use minato_api::k8s::core::v1::Service;
use minato_api::kube::api::DeleteParams;
use minato_cloud_controller_manager::CloudControllerManagerConfig;
use minato_provider_interface::{CloudError, CloudErrorKind, HealthCheck};
use minato_provider_mock::call::Call;
use minato_provider_mock::state::{CloudState, LoadBalancer};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "type": "LoadBalancer", "selector": {"app": name}, "ports": [{"name": "http", "port": 80}],
    }})
}

fn has_address(service: &Service) -> bool {
    address(service).is_some()
}

fn address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.clone()
}

fn of<'a>(state: &'a CloudState, name: &str) -> Option<&'a LoadBalancer> {
    let owner = format!("default/{name}");
    state
        .load_balancers
        .values()
        .find(|lb| lb.spec.owner.owner_name == owner)
}

fn members(lb: &LoadBalancer) -> Vec<&str> {
    lb.spec.nodes.iter().map(|node| node.name.as_str()).collect()
}

/// Services that this test made; the API server makes one of its own.
fn ours(all: &[Service]) -> Vec<&Service> {
    all.iter()
        .filter(|service| service.metadata.name.as_deref() != Some("kubernetes"))
        .collect()
}

async fn addressed(world: &World, name: &str) -> Service {
    let named = |service: &&Service| service.metadata.name.as_deref() == Some(name);
    let all = world
        .until(&world.services(), "the address", |all| {
            all.iter().find(named).is_some_and(has_address)
        })
        .await;
    all.iter().find(named).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_its_load_balancer_and_takes_it_along() {
    let world = world(quick()).await;
    world.node("n1", None).await;
    world.cloud.afflict({
        // Before the cloud hears of it, the finalizer is on.
        let services = world.services();
        move |call| {
            if matches!(call, Call::EnsureLoadBalancer { .. }) {
                let services = services.clone();
                let held = tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(async move { services.get("web").await.unwrap() })
                });
                assert_eq!(held.metadata.finalizers.unwrap_or_default(), [FINALIZER]);
            }
            None
        }
    });
    world.create(&world.services(), service("web")).await;
    let web = addressed(&world, "web").await;
    let state = world.cloud.cloud.snapshot();
    let lb = of(&state, "web").unwrap();
    assert_eq!(address(&web), Some(lb.vip.to_string()));
    let ingress = web.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("Proxy"));
    assert_eq!(members(lb), ["n1"]);
    let node_port = web.spec.unwrap().ports.unwrap()[0].node_port.unwrap();
    assert_eq!(lb.spec.ports[0].node_port.map(i32::from), Some(node_port));
    world.until_event("EnsuredLoadBalancer").await;

    // What does not matter to the cloud costs no call; what does, one.
    world.cloud.heal();
    let ensured = world.cloud.count("ensureLoadBalancer");
    world
        .patch(&world.services(), "web", json!({"metadata": {"labels": {"team": "x"}}}))
        .await;
    world.ready("n1", "False").await;
    world
        .patch(&world.nodes(), "n1", json!({"spec": {"unschedulable": true}}))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        (
            world.cloud.count("ensureLoadBalancer"),
            world.cloud.count("updateMembers")
        ),
        (ensured, 0)
    );
    let local = json!({"spec": {
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 32100, "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "ports": [{"name": "http", "port": 8080}],
    }});
    world.patch(&world.services(), "web", local).await;
    world
        .until_cloud("the change", |state| {
            let spec = &of(state, "web").unwrap().spec;
            let checks = matches!(spec.health_check, HealthCheck::LocalEndpoints { .. });
            checks && spec.ports[0].port == 8080 && spec.source_ranges.len() == 1
        })
        .await;
    // A status that somebody lost is written again, without asking the cloud.
    let ensured = world.cloud.count("ensureLoadBalancer");
    let lost = json!({"status": {"loadBalancer": {"ingress": null}}});
    let params = minato_api::kube::api::PatchParams::default();
    world
        .services()
        .patch_status("web", &params, &minato_api::kube::api::Patch::Merge(&lost))
        .await
        .unwrap();
    addressed(&world, "web").await;
    assert_eq!(world.cloud.count("ensureLoadBalancer"), ensured);

    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    world
        .until(&world.services(), "the end", |all| ours(all).is_empty())
        .await;
    assert!(world.cloud.cloud.snapshot().load_balancers.is_empty());
    world.until_event("DeletedLoadBalancer").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_follow_the_nodes() {
    let world = world(quick()).await;
    world.create(&world.services(), service("web")).await;
    addressed(&world, "web").await;
    world.until_event("UnAvailableLoadBalancer").await;
    let has = |expected: &'static [&'static str]| {
        move |state: &CloudState| of(state, "web").is_some_and(|lb| members(lb) == expected)
    };
    let calls = world.cloud.count("updateMembers");
    let jobs = ["n1", "n2", "n3", "n4"].map(|name| world.node(name, None));
    futures::future::join_all(jobs).await;
    world.until_cloud("four members", has(&["n1", "n2", "n3", "n4"])).await;
    // Changes that come together are told together; ids come later than names.
    assert!(world.cloud.count("updateMembers") - calls <= 8);
    let with_ids = |state: &CloudState| {
        of(state, "web")
            .unwrap()
            .spec
            .nodes
            .iter()
            .all(|node| node.provider_id.is_some())
    };
    world.until_cloud("their ids", with_ids).await;
    let exclude = |value: Value| json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
    world.patch(&world.nodes(), "n1", exclude(json!("true"))).await;
    world
        .until_cloud("without the excluded", has(&["n2", "n3", "n4"]))
        .await;
    world.patch(&world.nodes(), "n1", exclude(json!("false"))).await;
    world.until_cloud("with it again", has(&["n1", "n2", "n3", "n4"])).await;
    world.nodes().delete("n2", &DeleteParams::default()).await.unwrap();
    world.until_cloud("without the deleted", has(&["n1", "n3", "n4"])).await;
    // An update that fails is made up for by all of it.
    world
        .cloud
        .afflict(|call| matches!(call, Call::UpdateMembers { .. }).then(|| Fault::Refused(transient())));
    world.nodes().delete("n3", &DeleteParams::default()).await.unwrap();
    world.until_cloud("without the next", has(&["n1", "n4"])).await;
    world.until_event("UpdateLoadBalancerFailed").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn types_and_classes_decide() {
    let world = world(quick()).await;
    let mut other = service("other");
    other["spec"]["loadBalancerClass"] = json!("example.com/other");
    world.create(&world.services(), other).await;
    world.create(&world.services(), service("web")).await;
    addressed(&world, "web").await;
    world
        .patch(&world.services(), "web", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    world
        .until_cloud("the end of the load balancer", |state| state.load_balancers.is_empty())
        .await;
    let clean = |service: &&Service| service.metadata.finalizers.is_none() && !has_address(service);
    world
        .until(&world.services(), "a clean service", |all| ours(all).iter().all(clean))
        .await;
    world
        .patch(&world.services(), "web", json!({"spec": {"type": "LoadBalancer"}}))
        .await;
    addressed(&world, "web").await;
    // What makes no sense is told, and the load balancer stays as it is.
    world
        .patch(
            &world.services(),
            "web",
            json!({"spec": {"loadBalancerIP": "not-here"}}),
        )
        .await;
    world.until_event("SyncLoadBalancerFailed").await;
    let state = world.cloud.cloud.snapshot();
    assert_eq!(state.load_balancers.len(), 1);
    assert_eq!(world.services().get("other").await.unwrap().metadata.finalizers, None);

    // Two protocols on one are more than this cloud can, which is told until it is no longer so.
    world
        .patch(&world.services(), "web", json!({"spec": {"loadBalancerIP": null}}))
        .await;
    let ports = |protocols: &[&str]| {
        let ports: Vec<_> = protocols
            .iter()
            .map(|p| json!({"name": p.to_lowercase(), "port": 53, "protocol": p}))
            .collect();
        json!({"spec": {"ports": ports}})
    };
    let told = |status: &'static str| {
        move |all: &[Service]| {
            let conditions = ours(all)
                .into_iter()
                .filter_map(|service| service.status.clone()?.conditions);
            conditions
                .flatten()
                .any(|condition| condition.type_ == "LoadBalancerPortsError" && condition.status == status)
        }
    };
    world.patch(&world.services(), "web", ports(&["TCP", "UDP"])).await;
    world.until(&world.services(), "the condition", told("True")).await;
    world.patch(&world.services(), "web", ports(&["TCP"])).await;
    world
        .until(&world.services(), "the condition's end", told("False"))
        .await;

    // Deleted and made anew under the same name, it is another.
    let old = of(&state, "web").unwrap().id.clone();
    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    world
        .until(&world.services(), "the end", |all| ours(all).len() == 1)
        .await;
    world.create(&world.services(), service("web")).await;
    addressed(&world, "web").await;
    let state = world.cloud.cloud.snapshot();
    assert_eq!(state.load_balancers.len(), 1);
    assert_ne!(of(&state, "web").unwrap().id, old);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_the_cloud_is_no_failure_and_throttling_is_heeded() {
    let world = world(quick()).await;
    world.cloud.afflict({
        let mut busy = 3;
        move |call| {
            let ensures = matches!(call, Call::EnsureLoadBalancer { .. });
            busy -= i32::from(ensures);
            let at_work = CloudError::new(CloudErrorKind::InProgress, "being built").after(Duration::from_millis(30));
            (ensures && busy >= 0).then_some(Fault::Refused(at_work))
        }
    });
    world.create(&world.services(), service("web")).await;
    addressed(&world, "web").await;
    assert_eq!(world.cloud.count("ensureLoadBalancer"), 4);
    let events: minato_api::kube::Api<minato_api::k8s::core::v1::Event> =
        minato_api::kube::Api::namespaced(world.client.clone(), "default");
    world.until_event("EnsuredLoadBalancer").await;
    let all = events.list(&Default::default()).await.unwrap().items;
    assert!(
        all.iter().all(|event| event.type_.as_deref() != Some("Warning")
            || event.reason.as_deref() == Some("UnAvailableLoadBalancer"))
    );

    let start = tokio::time::Instant::now();
    world.cloud.afflict({
        let mut first = true;
        move |call| {
            let throttles = matches!(call, Call::DeleteLoadBalancer { .. }) && std::mem::take(&mut first);
            let slower = CloudError::new(CloudErrorKind::Throttled, "slower").after(Duration::from_millis(700));
            throttles.then_some(Fault::Refused(slower))
        }
    });
    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    world
        .until(&world.services(), "the end", |all| ours(all).is_empty())
        .await;
    assert!(start.elapsed() >= Duration::from_millis(700));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing() {
    let mut world = world(quick()).await;
    world.node("n1", None).await;
    // Made, but the answer was lost and the controllers died of it: the next ones find it by its tags.
    world
        .cloud
        .afflict(|call| matches!(call, Call::EnsureLoadBalancer { .. }).then_some(Fault::Lost));
    world.create(&world.services(), service("web")).await;
    world
        .until_cloud("the load balancer", |state| of(state, "web").is_some())
        .await;
    world.kill().await;
    let id = of(&world.cloud.cloud.snapshot(), "web").unwrap().id.clone();
    world.cloud.heal();
    world.start();
    addressed(&world, "web").await;
    let state = world.cloud.cloud.snapshot();
    assert_eq!((state.load_balancers.len(), &of(&state, "web").unwrap().id), (1, &id));
    // Deleted while nobody looks.
    world.kill().await;
    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    world.start();
    world
        .until(&world.services(), "the end", |all| ours(all).is_empty())
        .await;
    assert!(world.cloud.cloud.snapshot().load_balancers.is_empty());

    // The finalizer is taken off by hand while they run.
    world.create(&world.services(), service("torn")).await;
    addressed(&world, "torn").await;
    world
        .patch(&world.services(), "torn", json!({"metadata": {"finalizers": null}}))
        .await;
    world.services().delete("torn", &DeleteParams::default()).await.unwrap();
    world
        .until_cloud("its end all the same", |state| state.load_balancers.is_empty())
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_deleted_only_when_asked_for() {
    let mut world = world(quick()).await;
    world.create(&world.services(), service("lost")).await;
    addressed(&world, "lost").await;
    world.kill().await;
    world
        .patch(&world.services(), "lost", json!({"metadata": {"finalizers": null}}))
        .await;
    world.services().delete("lost", &DeleteParams::default()).await.unwrap();
    world.start();
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(world.cloud.cloud.snapshot().load_balancers.len(), 1);
    world.kill().await;
    world.configure(CloudControllerManagerConfig {
        delete_orphans: true,
        ..quick()
    });
    world.start();
    world
        .until_cloud("the sweep", |state| state.load_balancers.is_empty())
        .await;
    world.stop().await;
}

/// Services come, change and go while calls fail or lose their answers and the controllers are killed: in the end the
/// cloud holds exactly what is wanted. The seed is in the message of a failure; `MINATO_CCM_SEEDS` tries more.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_the_cloud_ends_up_as_wanted() {
    let seeds: u64 = std::env::var("MINATO_CCM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4);
    let mut world = world(quick()).await;
    world.node("n1", None).await;
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fate = StdRng::seed_from_u64(seed ^ 0xfa17);
        world.cloud.afflict(move |_| match fate.random_range(0..10) {
            0..2 => Some(Fault::Refused(transient())),
            2 => Some(if fate.random_bool(0.1) {
                Fault::Silence
            } else {
                Fault::Lost
            }),
            3 => Some(Fault::Refused(
                CloudError::new(CloudErrorKind::Throttled, "slower").after(Duration::from_millis(30)),
            )),
            _ => None,
        });
        for step in 0..25 {
            let name = format!("s{}", random.random_range(0..5));
            let there = world.services().get_opt(&name).await.unwrap();
            let deleting = there
                .as_ref()
                .is_some_and(|service| service.metadata.deletion_timestamp.is_some());
            match random.random_range(0..6) {
                _ if deleting => {}
                0..3 if there.is_none() => drop(world.create(&world.services(), service(&name)).await),
                0..2 => drop(world.services().delete(&name, &DeleteParams::default()).await.unwrap()),
                2 if there.is_some() => {
                    let port = random.random_range(1000..2000);
                    let ports = json!({"spec": {"ports": [{"name": "http", "port": port}]}});
                    world.patch(&world.services(), &name, ports).await;
                }
                3 if there.is_some() => {
                    let kind = ["ClusterIP", "LoadBalancer"][random.random_range(0..2)];
                    world
                        .patch(&world.services(), &name, json!({"spec": {"type": kind}}))
                        .await;
                }
                4 => {
                    world.kill().await;
                    world.start();
                }
                _ => tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await,
            }
            tracing::trace!(seed, step, name);
        }
        world.cloud.heal();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let all = world.services().list(&Default::default()).await.unwrap().items;
            let wanted: BTreeSet<(String, i32)> = ours(&all)
                .iter()
                .filter(|service| service.spec.as_ref().unwrap().type_.as_deref() == Some("LoadBalancer"))
                .map(|service| {
                    (
                        service.metadata.uid.clone().unwrap(),
                        service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port,
                    )
                })
                .collect();
            let state = world.cloud.cloud.snapshot();
            let there: BTreeSet<(String, i32)> = state
                .load_balancers
                .values()
                .map(|lb| (lb.spec.owner.owner_uid.clone(), i32::from(lb.spec.ports[0].port)))
                .collect();
            let settled = ours(&all).iter().all(|service| {
                let balanced = service.spec.as_ref().unwrap().type_.as_deref() == Some("LoadBalancer");
                let held = service.metadata.finalizers.is_some();
                service.metadata.deletion_timestamp.is_none() && balanced == has_address(service) && balanced == held
            });
            if wanted == there && there.len() == state.load_balancers.len() && settled {
                break;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "seed {seed}: wanted {wanted:?}, there {there:?}, {all:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    world.stop().await;
}
