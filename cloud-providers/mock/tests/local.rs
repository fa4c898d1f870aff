//! Local mode for real: namespaces, kernel routes, listeners. Needs root and the packages that `make test` installs.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minato_provider_interface::{
    CloudProvider, ClusterId, HealthCheck, LoadBalancerPort, LoadBalancerSpec, LoadBalancers, Machine, MachineSpec,
    MachineState, Machines, NodeRef, OwnerTags, Protocol, Route, Routes,
};
use minato_provider_mock::call::{Call, Reply};
use minato_provider_mock::local::{self, LocalConfig, LocalHost, NodeProgram};
use minato_provider_mock::{CloudConfig, MockCloud, MockProvider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

fn owner(kind: &str, uid: &str) -> OwnerTags {
    OwnerTags {
        cluster: ClusterId("c1".into()),
        owner_kind: kind.into(),
        owner_name: format!("default/{uid}"),
        owner_uid: uid.into(),
    }
}

fn machine(name: &str) -> MachineSpec {
    MachineSpec {
        owner: owner("NodePool", "pool"),
        name: name.into(),
        client_token: name.into(),
        instance_type: "m1.small".into(),
        image: String::new(),
        zone: String::new(),
        user_data: format!("hello {name}"),
        tags: Default::default(),
    }
}

/// Retries until the condition yields a value; the condition is about other processes, which give no signal.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    for _ in 0..200 {
        if let Some(value) = condition().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come true in 10 s");
}

async fn get(address: SocketAddr, path: &str) -> Option<String> {
    // Packets to an address that is gone vanish without an answer: every step may hang.
    tokio::time::timeout(Duration::from_secs(1), async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream
            .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
            .await
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        text.contains(" 200 ").then_some(text)
    })
    .await
    .ok()?
}

fn namespaces(prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let named = |p: &PathBuf| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with(&format!("{prefix}-")))
    };
    entries.flatten().map(|e| e.path()).filter(named).collect()
}

struct Host {
    cloud: MockCloud,
    provider: MockProvider,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start(directory: &Path, config: &LocalConfig, network: ipnet::Ipv4Net) -> Host {
    let cloud = MockCloud::open(CloudConfig {
        network,
        zones: vec!["a".into()],
        region: "local".into(),
        state_file: Some(directory.join("cloud.json")),
        local: true,
    })
    .unwrap();
    let host = LocalHost::start(cloud.clone(), config.clone()).await.unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(host.run(stop.clone()));
    let provider = MockProvider::new(Arc::new(cloud.clone()), ClusterId("c1".into()));
    Host {
        cloud,
        provider,
        stop,
        task,
    }
}

async fn running(provider: &MockProvider, name: &str) -> Machine {
    eventually("the machine runs", || async {
        let list = Machines::list(provider, &owner("NodePool", "pool")).await.unwrap();
        list.into_iter()
            .find(|m| m.name == name && m.state == MachineState::Running)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_routes_and_load_balancers_are_real_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = format!("mt{:04x}", std::process::id() & 0xffff);
    // Each instance serves a page and says what the metadata service and an exposed control plane told it.
    let script = r#"
        busybox ip link set lo up
        mkdir -p /tmp/www && cd /tmp/www
        busybox hostname > index.html
        exec busybox httpd -f -p 30080 -h /tmp/www"#;
    let config = LocalConfig {
        directory: directory.path().join("instances"),
        prefix: prefix.clone(),
        program: NodeProgram {
            path: "/bin/busybox".into(),
            arguments: vec!["sh".into(), "-c".into(), format!("mount -t tmpfs tmpfs /tmp; {script}")],
        },
    };
    let network = local::free_network().await.unwrap();
    let host = start(directory.path(), &config, network).await;
    let first = Machines::create(&host.provider, &machine("n1")).await.unwrap();
    Machines::create(&host.provider, &machine("n2")).await.unwrap();
    running(&host.provider, "n1").await;
    let second = running(&host.provider, "n2").await;
    let node = |m: &Machine| NodeRef {
        name: m.name.clone(),
        provider_id: Some(m.provider_id.clone()),
    };

    // A load balancer over both answers on its own address.
    let mut spec = LoadBalancerSpec {
        owner: owner("Service", "svc"),
        name: "a1".into(),
        ports: vec![LoadBalancerPort {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: Some(30080),
        }],
        source_ranges: vec![],
        client_ip_affinity: false,
        health_check: HealthCheck::NodePort,
        requested_ip: None,
        annotations: Default::default(),
        nodes: vec![node(&first), node(&second)],
    };
    let status = LoadBalancers::ensure(&host.provider, &spec).await.unwrap();
    let vip = SocketAddr::new(status.ingress[0].ip.unwrap(), 80);
    eventually("the load balancer answers", || get(vip, "/")).await;

    // A route to a pod CIDR is in the router's table.
    let route = Route {
        destination: "10.244.7.0/24".parse().unwrap(),
        target: Some(second.provider_id.clone()),
        node_name: "n2".into(),
        node_uid: "u2".into(),
        next_hops: vec![],
    };
    Routes::change(&host.provider, std::slice::from_ref(&route), &[])
        .await
        .unwrap();
    let table = || async {
        let output = std::process::Command::new("ip")
            .args(["-n", &format!("{prefix}-vpc"), "route"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    eventually("the route is there", || async {
        table().await.contains("10.244.7.0/24 via").then_some(())
    })
    .await;

    // A control plane on the host's loopback is reachable at the router's address.
    let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let call = Call::ExposeEndpoint {
        owner: owner("Cluster", "c1"),
        port: 6443,
        backend: backend.local_addr().unwrap(),
    };
    let Reply::Endpoint { host: gateway, port } = host.provider.call(call).await.unwrap() else {
        panic!()
    };
    let exposed: SocketAddr = format!("{gateway}:{port}").parse().unwrap();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = backend.accept().await.unwrap();
        stream.write_all(b"control plane").await.unwrap();
    });
    let mut stream = eventually("the endpoint listens", || async {
        TcpStream::connect(exposed).await.ok()
    })
    .await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "control plane");
    echo.await.unwrap();

    // A restart of the cloud takes over what runs: the same processes serve.
    let before = host.cloud.snapshot().instances.len();
    host.stop.cancel();
    host.task.await.unwrap();
    let host = start(directory.path(), &config, network).await;
    assert_eq!(host.cloud.snapshot().instances.len(), before);
    eventually("the load balancer answers again", || get(vip, "/")).await;

    // Terminating a member leaves the other; deleting everything leaves nothing.
    Machines::terminate(&host.provider, &first.provider_id).await.unwrap();
    eventually("the machine is gone", || async {
        let list = Machines::list(&host.provider, &owner("NodePool", "pool"))
            .await
            .unwrap();
        (list.len() == 1).then_some(())
    })
    .await;
    spec.nodes = vec![node(&second)];
    LoadBalancers::update_members(&host.provider, &spec).await.unwrap();
    let page = eventually("the other member answers", || get(vip, "/")).await;
    assert!(page.contains(" 200 "));
    for resource in host.provider.owned_resources().await.unwrap() {
        host.provider.delete_owned(&resource).await.unwrap();
    }
    eventually("nothing is owned", || async {
        host.provider.owned_resources().await.unwrap().is_empty().then_some(())
    })
    .await;
    eventually("the address is gone", || async {
        get(vip, "/").await.is_none().then_some(())
    })
    .await;
    host.stop.cancel();
    host.task.await.unwrap();
    local::purge(&config, ["i-00000001".to_owned(), "i-00000002".to_owned()])
        .await
        .unwrap();
    assert_eq!(namespaces(&prefix), Vec::<PathBuf>::new());
    for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        assert!(
            !controller.path().join(&prefix).exists(),
            "{:?} is left",
            controller.path().join(&prefix)
        );
    }
}
