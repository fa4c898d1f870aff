//! Logs, commands, copies and forwarded ports, all the way: the real kubectl, the API server, the tunnel, the kubelet, and
//! containerd's streaming server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::Cluster;
use minato_test_support::until;
use serde_json::json;

/// Whether kubectl opens WebSockets or falls back to SPDY.
const WAYS: [&str; 2] = ["true", "false"];
const PATIENCE: Duration = Duration::from_secs(60);

struct Kubectl {
    kubeconfig: PathBuf,
}

impl Kubectl {
    fn wrapped(&self, websockets: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.kubeconfig.with_file_name("kubectl-cache"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn command(&self, websockets: &str, arguments: &[&str]) -> Command {
        self.wrapped(websockets, &program(), arguments)
    }

    async fn run(&self, websockets: &str, input: &[u8], arguments: &[&str]) -> Output {
        finish(self.command(websockets, arguments), input.to_vec()).await
    }
}

fn program() -> String {
    std::env::var("MINATO_TEST_KUBECTL").unwrap_or_else(|_| "kubectl".to_owned())
}

/// Runs a command to its end, off the runtime's threads.
async fn finish(mut command: Command, input: Vec<u8>) -> Output {
    let running = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output
    });
    tokio::time::timeout(PATIENCE, running).await.expect("it ends").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_into_pods() {
    let cluster = Cluster::start("kt").await;
    let kubectl = Kubectl {
        kubeconfig: cluster.plane_directory().join("kubeconfig"),
    };
    let script = "echo started; mkdir /site; echo page > /site/index.html; httpd -p 8080 -h /site; \
                  while read line; do echo got $line; done; echo over; sleep 1000";
    cluster
        .pod(
            "p",
            json!({"containers": [{"name": "c", "stdin": true, "stdinOnce": true, "command": ["sh", "-c", script]}]}),
        )
        .await;
    cluster.until_phase("p", "Running").await;
    logs(&kubectl).await;
    for way in WAYS {
        commands(&kubectl, way).await;
        terminal(&kubectl, way).await;
        copies(&kubectl, way).await;
        ports(&kubectl, way).await;
    }
    attach(&kubectl).await;
    proxied(&kubectl).await;
    cluster.stop().await;
}

async fn logs(kubectl: &Kubectl) {
    let mut child = kubectl.command("true", &["logs", "-f", "p"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    // It follows: what is written later arrives too.
    let say = "echo later > /proc/1/fd/1";
    let output = kubectl.run("true", b"", &["exec", "p", "--", "sh", "-c", say]).await;
    assert!(output.status.success(), "{output:?}");
    line.clear();
    let read = tokio::task::spawn_blocking(move || {
        lines.read_line(&mut line).unwrap();
        line
    });
    let line = tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    assert_eq!(line, "later\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let output = kubectl.run("true", b"", &["logs", "p", "--tail=1"]).await;
    assert_eq!(text(&output.stdout), "later\n", "{output:?}");
    let output = kubectl.run("true", b"", &["logs", "p", "--previous"]).await;
    assert!(
        text(&output.stderr).contains("previous terminated container \"c\" in pod \"p\" not found"),
        "{output:?}"
    );
}

async fn commands(kubectl: &Kubectl, way: &str) {
    let script = "echo out; echo err >&2; exit 7";
    let output = kubectl.run(way, b"", &["exec", "p", "--", "sh", "-c", script]).await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "err\ncommand terminated with exit code 7\n");
    // Five megabytes there and back, and the end of stdin.
    let input: Vec<u8> = (0..1_300_000_u32)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes())
        .collect();
    let output = kubectl.run(way, &input, &["exec", "-i", "p", "--", "cat"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        output.stdout == input,
        "{} of {} bytes",
        output.stdout.len(),
        input.len()
    );
    // A command that does not read all of its input. No more than a pipe holds: with more, containerd 1.6 itself waits for
    // a reader that is gone.
    let some = &input[..20_000];
    let output = kubectl
        .run(way, some, &["exec", "-i", "p", "--", "head", "-c", "4"])
        .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout, input[..4]);
    let output = kubectl.run(way, b"", &["exec", "p", "--", "/no/such"]).await;
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("no such file or directory"), "{output:?}");
    let output = kubectl.run(way, b"", &["exec", "p", "-c", "x", "--", "true"]).await;
    assert!(
        text(&output.stderr).contains("container x is not valid for pod p"),
        "{output:?}"
    );
}

/// Behind a real terminal, whose size reaches the container.
async fn terminal(kubectl: &Kubectl, way: &str) {
    // The size arrives while the command already runs.
    let inside = "until stty size | grep -q '33 77'; do sleep 0.1; done; tty; stty size; exit 5";
    let outside = format!("stty rows 33 cols 77; {} exec -it p -- sh -c \"{inside}\"", program());
    let command = kubectl.wrapped(way, "script", &["-qec", &outside, "/dev/null"]);
    let output = finish(command, Vec::new()).await;
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let shown = text(&output.stdout);
    assert!(
        shown.contains("/dev/pts/0\r\n") && shown.contains("33 77\r\n"),
        "{shown}"
    );
}

async fn copies(kubectl: &Kubectl, way: &str) {
    let directory = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    let (there, back) = (directory.path().join("there"), directory.path().join("back"));
    std::fs::write(&there, &content).unwrap();
    let output = kubectl
        .run(way, b"", &["cp", there.to_str().unwrap(), "p:/copied"])
        .await;
    assert!(output.status.success(), "{output:?}");
    let output = kubectl
        .run(way, b"", &["cp", "p:/copied", back.to_str().unwrap()])
        .await;
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&back).unwrap() == content);
}

async fn ports(kubectl: &Kubectl, way: &str) {
    let mut command = kubectl.command(way, &["port-forward", "pod/p", ":8080"]);
    let exchange = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .strip_prefix("Forwarding from 127.0.0.1:")
            .and_then(|l| l.split(' ').next());
        let port: Option<u16> = port.and_then(|p| p.parse().ok());
        let answers: Vec<String> = (0..3)
            .filter_map(|_| {
                let mut stream = std::net::TcpStream::connect(("127.0.0.1", port?)).ok()?;
                stream.set_read_timeout(Some(PATIENCE)).ok()?;
                stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").ok()?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).ok()?;
                Some(answer)
            })
            .collect();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            answers.len() == 3 && answers.iter().all(|a| a.ends_with("page\n")),
            "{line} {answers:?} {output:?}"
        );
    });
    tokio::time::timeout(PATIENCE, exchange).await.unwrap().unwrap();
}

async fn attach(kubectl: &Kubectl) {
    let mut child = kubectl.command("true", &["attach", "-i", "p"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let conversation = tokio::task::spawn_blocking(move || {
        stdin.write_all(b"a line\n").unwrap();
        let mut got = String::new();
        lines.read_line(&mut got).unwrap();
        // The end of stdin reaches the container's first process.
        drop(stdin);
        lines.read_line(&mut got).unwrap();
        got
    });
    let got = tokio::time::timeout(PATIENCE, conversation).await;
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(got.expect("an answer").unwrap(), "got a line\nover\n", "{output:?}");
}

async fn proxied(kubectl: &Kubectl) {
    let service = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}"#;
    let output = kubectl.run("true", b"", &["label", "pod", "p", "app=web"]).await;
    assert!(output.status.success(), "{output:?}");
    let arguments = ["create", "--validate=false", "-f", "-"];
    let output = kubectl.run("true", service.as_bytes(), &arguments).await;
    assert!(output.status.success(), "{output:?}");
    for (path, wanted) in [
        ("namespaces/default/pods/p:8080/proxy/index.html", "page\n"),
        ("namespaces/default/services/web:http/proxy/index.html", "page\n"),
        ("namespaces/default/services/http:web:80/proxy/", "page\n"),
        ("nodes/n1/proxy/pods", "PodList"),
    ] {
        let path = format!("/api/v1/{path}");
        // A service has its endpoints a moment after it was made.
        until(&path, PATIENCE, async || {
            let output = kubectl.run("true", b"", &["get", "--raw", &path]).await;
            text(&output.stdout).contains(wanted).then_some(())
        })
        .await;
    }
}
