//! What nodes serve, reached through the tunnel that a node opens: the real kubectl against a stand-in kubelet.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "common/mod.rs"]
mod common;
#[path = "common/kubelet.rs"]
mod kubelet;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kubelet::NODE;
use minato_control_plane::ControlPlane;
use minato_pki::ClusterPki;
use minato_runtime::Tasks;
use minato_tunnel::{AgentConfig, AgentHandle, TunnelAgent};
use tokio::sync::watch;

const OBJECTS: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
   "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting"},
   "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two"},
   "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "homeless"},
   "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}}
]}"#;

/// Both ways of kubectl to a connection of many streams.
const WEBSOCKETS: &str = "true";
const SPDY: &str = "false";

struct World {
    plane: ControlPlane,
    pki: ClusterPki,
    kubeconfig: PathBuf,
    tasks: Tasks,
    directory: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let plane = common::start(directory.path()).await;
        let pki = ClusterPki::load_or_create(&directory.path().join("c1/pki"), "c1").unwrap();
        let kubeconfig = plane.kubeconfig().to_owned();
        let file = directory.path().join("objects.json");
        std::fs::write(&file, OBJECTS).unwrap();
        common::until_ok(
            &kubeconfig,
            &["apply", "--validate=false", "-f", file.to_str().unwrap()],
        )
        .await;
        // Phases are the kubelet's to write; kubectl asks for them before it attaches or forwards.
        for pod in ["p", "two"] {
            let patch = r#"{"status": {"phase": "Running"}}"#;
            common::until_ok(
                &kubeconfig,
                &["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", patch],
            )
            .await;
        }
        Self {
            plane,
            pki,
            kubeconfig,
            tasks: Tasks::new(),
            directory,
        }
    }

    async fn join(&self) -> AgentHandle {
        let certificate = kubelet::serving_for(&self.pki, NODE);
        self.join_with(kubelet::serve(&self.pki, &certificate).await).await
    }

    async fn join_with(&self, kubelet: std::net::SocketAddr) -> AgentHandle {
        let identity = self
            .pki
            .issue_client(&format!("system:node:{NODE}"), &["system:nodes"])
            .unwrap();
        let (_keep, tls) = watch::channel(kubelet::client_tls(&self.pki, &identity));
        let config = AgentConfig {
            node: NODE.to_owned(),
            server: self.plane.address().to_string(),
            server_name: String::new(),
            tls,
            kubelet,
        };
        let mut agent = TunnelAgent::start(config, &self.tasks);
        tokio::time::timeout(Duration::from_secs(10), agent.connected())
            .await
            .unwrap();
        agent
    }

    fn command(&self, websockets: &str, arguments: &[&str]) -> Command {
        command(&self.kubeconfig, websockets, arguments)
    }

    /// Runs kubectl with an input, off the runtime's threads.
    async fn run(&self, websockets: &str, input: Vec<u8>, arguments: &[&str]) -> Output {
        let mut command = self.command(websockets, arguments);
        let running = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || stdin.write_all(&input));
            let output = child.wait_with_output().unwrap();
            let _ = writer.join().unwrap();
            output
        });
        tokio::time::timeout(Duration::from_secs(60), running)
            .await
            .expect("kubectl ends")
            .unwrap()
    }

    async fn stop(self) {
        self.tasks.stop().await;
        self.plane.stop().await;
    }
}

fn command(kubeconfig: &Path, websockets: &str, arguments: &[&str]) -> Command {
    let program = std::env::var("MINATO_TEST_KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let mut command = Command::new(program);
    command
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
        .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cache-dir")
        .arg(kubeconfig.with_file_name("kubectl-cache"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_through_the_tunnel() {
    let world = World::start().await;
    let output = world.run(WEBSOCKETS, vec![], &["logs", "p"]).await;
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("no tunnel to node \"n1\" is up"),
        "{output:?}"
    );
    let _agent = world.join().await;
    let output = world
        .run(WEBSOCKETS, vec![], &["logs", "p", "-f", "--tail=3", "--timestamps"])
        .await;
    assert_eq!(
        text(&output.stdout),
        "default/p/c?follow=true&timestamps=true&tailLines=3\n",
        "{output:?}"
    );
    for (pod, why) in [
        (
            "waiting",
            "container \"c\" in pod \"waiting\" is waiting to start: ContainerCreating",
        ),
        ("absent", "pods \"absent\" not found"),
    ] {
        let output = world.run(WEBSOCKETS, vec![], &["logs", pod]).await;
        assert!(text(&output.stderr).contains(why), "{output:?}");
    }
    let output = world.run(WEBSOCKETS, vec![], &["logs", "homeless"]).await;
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let output = world
        .run(
            WEBSOCKETS,
            vec![],
            &["get", "--raw", "/api/v1/namespaces/default/pods/two/log"],
        )
        .await;
    let why = "a container name must be specified for pod two, choose one of: [a b]";
    assert!(text(&output.stderr).contains(why), "{output:?}");
    let output = world
        .run(WEBSOCKETS, vec![], &["get", "--raw", "/api/v1/nodes/n1/proxy/pods"])
        .await;
    assert_eq!(text(&output.stdout), "{\"kind\":\"PodList\"}", "{output:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_and_tell_how_they_ended() {
    let world = World::start().await;
    let _agent = world.join().await;
    for way in [WEBSOCKETS, SPDY] {
        let script = "echo out; echo err >&2; exit 7";
        let output = world.run(way, vec![], &["exec", "p", "--", "sh", "-c", script]).await;
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(text(&output.stdout), "out\n");
        assert_eq!(text(&output.stderr), "err\ncommand terminated with exit code 7\n");
        // All of stdin arrives, then its end; all of stdout comes back.
        let input: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
        let output = world.run(way, input.clone(), &["exec", "-i", "p", "--", "cat"]).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            output.stdout == input,
            "{} of {} bytes",
            output.stdout.len(),
            input.len()
        );
        // A command that does not read its input to the end.
        let output = world
            .run(way, input, &["exec", "-i", "p", "--", "head", "-c", "4"])
            .await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(output.stdout, [0, 0, 0, 0]);
        let output = world.run(way, b"to it".to_vec(), &["attach", "-i", "p"]).await;
        assert_eq!(text(&output.stdout), "to it", "{output:?}");
        let output = world.run(way, vec![], &["exec", "p", "--", "/no/such"]).await;
        assert!(text(&output.stderr).contains("no such command"), "{output:?}");
        let output = world.run(way, vec![], &["exec", "homeless", "--", "true"]).await;
        assert!(
            text(&output.stderr).contains("pod homeless does not have a host assigned"),
            "{output:?}"
        );
    }
    world.stop().await;
}

/// Starts kubectl port-forward and returns it with its port.
fn forwarding(mut command: Command) -> (Child, u16) {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let port = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|l| l.split(' ').next());
    let port = port.and_then(|p| p.parse().ok());
    let Some(port) = port else {
        let _ = child.kill();
        panic!("{line:?} {:?}", child.wait_with_output());
    };
    (child, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded() {
    let world = World::start().await;
    let _agent = world.join().await;
    // Answers with what it got, once the client has said all.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                stream.write_all(&got).unwrap();
            });
        }
    });
    for way in [WEBSOCKETS, SPDY] {
        let command = world.command(way, &["port-forward", "pod/p", &format!(":{target}")]);
        let exchange = tokio::task::spawn_blocking(move || {
            let (mut child, port) = forwarding(command);
            let clients: Vec<_> = (0..4_u8)
                .map(|n| {
                    std::thread::spawn(move || {
                        let sent = vec![n; 500_000];
                        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
                        stream.write_all(&sent).unwrap();
                        stream.shutdown(std::net::Shutdown::Write).unwrap();
                        let mut got = Vec::new();
                        stream.read_to_end(&mut got).unwrap();
                        assert!(got == sent, "{} bytes came back", got.len());
                    })
                })
                .collect();
            let results: Vec<_> = clients.into_iter().map(std::thread::JoinHandle::join).collect();
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(results.iter().all(Result::is_ok), "{output:?}");
        });
        tokio::time::timeout(Duration::from_secs(60), exchange)
            .await
            .unwrap()
            .unwrap();
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_control_plane_ends_what_runs_through_it() {
    let world = World::start().await;
    let _agent = world.join().await;
    let mut child = world
        .command(WEBSOCKETS, &["exec", "p", "--", "sh", "-c", "echo up; sleep 1000"])
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    let started = Instant::now();
    world.stop().await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let output = tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .unwrap()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_must_be_the_node_that_it_serves_for() {
    let world = World::start().await;
    // One that the cluster authority calls by another name.
    let stranger = kubelet::serving_for(&world.pki, "n2");
    let _agent = world.join_with(kubelet::serve(&world.pki, &stranger).await).await;
    let output = world.run(WEBSOCKETS, vec![], &["logs", "p"]).await;
    assert!(
        text(&output.stderr).contains("certificate not valid for name"),
        "{output:?}"
    );
    // One that no authority knows yet: its tunnel vouches for it. The newest tunnel is used.
    let other = ClusterPki::generate("self").unwrap();
    let unsigned = kubelet::serving_for(&other, NODE);
    let _agent = world.join_with(kubelet::serve(&world.pki, &unsigned).await).await;
    let output = world.run(WEBSOCKETS, vec![], &["logs", "p"]).await;
    assert_eq!(text(&output.stdout), "default/p/c?\n", "{output:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nodes_may_open_a_tunnel() {
    let world = World::start().await;
    for (user, group) in [("jane", "system:nodes"), ("system:node:n1", "system:masters")] {
        let identity = world.pki.issue_client(user, &[group]).unwrap();
        let (_keep, tls) = watch::channel(kubelet::client_tls(&world.pki, &identity));
        let config = AgentConfig {
            node: NODE.to_owned(),
            server: world.plane.address().to_string(),
            server_name: String::new(),
            tls,
            kubelet: "127.0.0.1:1".parse().unwrap(),
        };
        let mut agent = TunnelAgent::start(config, &world.tasks);
        let connected = tokio::time::timeout(Duration::from_secs(1), agent.connected()).await;
        assert!(connected.is_err(), "{user} {group}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_follows_its_certificate() {
    let world = World::start().await;
    let certificate = kubelet::serving_for(&world.pki, NODE);
    let kubelet = kubelet::serve(&world.pki, &certificate).await;
    let identity = || {
        world
            .pki
            .issue_client(&format!("system:node:{NODE}"), &["system:nodes"])
            .unwrap()
    };
    let (rotate, tls) = watch::channel(kubelet::client_tls(&world.pki, &identity()));
    let config = AgentConfig {
        node: NODE.to_owned(),
        server: world.plane.address().to_string(),
        server_name: "localhost".to_owned(),
        tls,
        kubelet,
    };
    let mut agent = TunnelAgent::start(config, &world.tasks);
    agent.connected().await;
    // A command that runs through the tunnel outlives the tunnel's replacement.
    let mut child = world
        .command(WEBSOCKETS, &["exec", "-i", "p", "--", "cat"])
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdin.write_all(b"before\n").unwrap();
    stdout.read_line(&mut line).unwrap();
    rotate.send_replace(kubelet::client_tls(&world.pki, &identity()));
    let deadline = Instant::now() + Duration::from_secs(10);
    while agent.is_connected() && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    agent.connected().await;
    stdin.write_all(b"after\n").unwrap();
    stdout.read_line(&mut line).unwrap();
    drop(stdin);
    assert_eq!(line, "before\nafter\n");
    assert!(child.wait().unwrap().success());
    let output = world.run(WEBSOCKETS, vec![], &["logs", "p"]).await;
    assert!(output.status.success(), "{output:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_comes_back_with_its_control_plane() {
    let world = World::start().await;
    let mut agent = world.join().await;
    let address = world.plane.address();
    world.plane.stop().await;
    let lost = tokio::time::timeout(Duration::from_secs(10), agent.disconnected()).await;
    assert!(lost.is_ok(), "the agent notices");
    let mut config = minato_control_plane::Config::new("c1", world.directory.path().join("c1"));
    config.listen = address;
    // The last tasks of the old one let go of the store a moment after its stop.
    let deadline = Instant::now() + Duration::from_secs(10);
    let plane = loop {
        match ControlPlane::start(config.clone()).await {
            Ok(plane) => break plane,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    tokio::time::timeout(Duration::from_secs(20), agent.connected())
        .await
        .unwrap();
    let logs = common::until_ok(&world.kubeconfig, &["logs", "p"]).await;
    assert_eq!(logs, "default/p/c?\n");
    world.tasks.stop().await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_pods_is_not_enough_to_run_commands() {
    let world = World::start().await;
    let _agent = world.join().await;
    let role = r#"{"apiVersion": "v1", "kind": "List", "items": [
      {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
       "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log"], "verbs": ["get"]}]},
      {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
       "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
       "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}]}"#;
    let file = world.directory.path().join("role.json");
    std::fs::write(&file, role).unwrap();
    common::until_ok(
        &world.kubeconfig,
        &["create", "--validate=false", "-f", file.to_str().unwrap()],
    )
    .await;
    common::until_ok(&world.kubeconfig, &["logs", "p", "--as=jane"]).await;
    let output = world
        .run(WEBSOCKETS, vec![], &["exec", "p", "--as=jane", "--", "true"])
        .await;
    assert!(!output.status.success());
    let why = "User \"jane\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"default\"";
    assert!(text(&output.stderr).contains(why), "{output:?}");
    world.stop().await;
}
