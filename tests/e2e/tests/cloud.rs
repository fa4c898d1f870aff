//! Machines come and go: by the pool's size, and by what happens in the cloud.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use minato_e2e::{QuickStart, eventually, eventually_within};
use minato_provider_interface::{ClusterId, ProviderId};
use minato_provider_mock::call::Call;

/// Until a silent node counts as lost (50 s), and until the cloud is asked about a young one again (30 s).
const LOST: Duration = Duration::from_secs(150);

fn resize(quick: &QuickStart, replicas: usize) {
    let size = format!("--replicas={replicas}");
    quick.fleet().run(&["scale", "nodepool", "workers", &size]);
    quick.until(&["get", "nodes", "--no-headers"], |nodes| {
        let ready = nodes.lines().filter(|line| line.contains(" Ready "));
        ready.count() == replicas && nodes.lines().count() == replicas
    });
    eventually("as many instances as the pool wants", || {
        let instances = quick.instances();
        if instances.len() == replicas {
            Ok(())
        } else {
            Err(format!("{instances:?}"))
        }
    });
}

fn nodes(quick: &QuickStart) -> Vec<(String, String)> {
    let path = r#"jsonpath={range .items[*]}{.metadata.name} {.spec.providerID}{"\n"}{end}"#;
    let text = quick.kubectl(&["get", "nodes", "-o", path]);
    text.lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect()
}

#[test]
fn nodes_follow_the_pool_and_the_cloud() {
    let quick = QuickStart::up(&[]);
    resize(&quick, 3);
    resize(&quick, 1);
    resize(&quick, 2);

    let uid = quick
        .fleet()
        .run(&["get", "cluster", "demo", "-o", "jsonpath={.metadata.uid}"]);
    let cluster = ClusterId(uid);
    let (name, id) = nodes(&quick).remove(0);
    let id = ProviderId::new(id);
    quick.at_the_console(&cluster, Call::StopMachine { id: id.clone() });
    let taints = ["get", "node", &name, "-o", "jsonpath={.spec.taints[*].key}"];
    eventually_within(LOST, "the taint of a node that is shut down", || {
        let keys = quick.kubectl(&taints);
        let shut_down = keys.contains("node.cloudprovider.kubernetes.io/shutdown");
        if shut_down { Ok(()) } else { Err(keys) }
    });
    quick.at_the_console(&cluster, Call::StartMachine { id: id.clone() });
    quick.kubectl(&["wait", "node", &name, "--for=condition=Ready", "--timeout=60s"]);
    quick.until(&taints, str::is_empty);

    // A machine that was deleted takes its Node with it, and the pool makes another.
    quick.at_the_console(&cluster, Call::TerminateMachine { id });
    eventually_within(
        LOST,
        "the node of a deleted machine is gone, and there is another",
        || {
            let now = nodes(&quick);
            let gone = now.iter().all(|(other, _)| *other != name);
            if gone && now.len() == 2 {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        },
    );
    quick.down();
}
