//! Pods on a real node: a real kubelet, a real containerd, a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Cluster, NODE};
use minato_api::k8s::coordination::v1::Lease;
use minato_api::k8s::core::v1::{ConfigMap, Node, Secret};
use minato_api::kube::Api;
use serde_json::json;

/// A kubelet that is killed and started again changes nothing for its pods; what was deleted meanwhile ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_kubelet_finds_its_pods_again() {
    let mut cluster = Cluster::start("kr").await;
    let sleeper = json!({"containers": [{"name": "c", "command": ["sleep", "1000"],
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}], "terminationGracePeriodSeconds": 1});
    for name in ["kept", "deleted", "forced"] {
        cluster.pod(name, sleeper.clone()).await;
    }
    let ready = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let before = cluster.until_pod("kept", "ready", ready).await;
    let forced = cluster.until_pod("forced", "ready", ready).await;
    cluster.until_pod("deleted", "ready", ready).await;
    cluster.kill_kubelet();
    cluster.delete("deleted", None).await;
    cluster.delete("forced", Some(0)).await;
    cluster.until_gone("forced").await;
    cluster.start_kubelet();
    cluster.until_gone("deleted").await;
    let uid = forced["metadata"]["uid"].as_str().unwrap();
    let directory = cluster.files().join(format!("root/var/lib/kubelet/pods/{uid}"));
    minato_test_support::until("the forgotten pod is swept away", common::LIMIT, async || {
        (!directory.exists()).then_some(())
    })
    .await;
    // A new pod shows that the new kubelet works on all of them.
    cluster.pod("new", sleeper).await;
    cluster.until_pod("new", "ready", ready).await;
    let after = cluster.get("kept").await;
    let facts = |pod: &serde_json::Value| {
        let status = &pod["status"];
        let container = &status["containerStatuses"][0];
        json!([
            container["containerID"],
            container["restartCount"],
            container["state"],
            status["podIP"],
            status["conditions"]
        ])
    };
    assert_eq!(facts(&before), facts(&after));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_sidecars_and_deadlines() {
    let cluster = Cluster::start("kq").await;
    // Alive for a while: the probe's command fails once the file is gone.
    let script = "touch /tmp/alive /tmp/ready; while :; do sleep 0.2; done";
    let probe =
        |file: &str| json!({"exec": {"command": ["test", "-e", file]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster
        .pod(
            "live",
            json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "command": ["sh", "-c", script],
            "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1},
            "livenessProbe": probe("/tmp/alive"), "readinessProbe": probe("/tmp/ready")}]}),
        )
        .await;
    let ready = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    cluster.until_pod("live", "ready", ready).await;
    let client = cluster.kubelet_client(true);
    let run = async |command: &str| {
        let command = command.replace(' ', "+");
        cluster
            .fetch(&client, "POST", &format!("/run/default/live/c?cmd={command}"))
            .await
    };
    assert_eq!(run("rm /tmp/ready").await.0, 200);
    cluster.until_pod("live", "unready", |pod| !ready(pod)).await;
    assert_eq!(
        cluster.get("live").await["status"]["containerStatuses"][0]["restartCount"],
        0
    );
    assert_eq!(run("rm /tmp/alive").await.0, 200);
    let restarted = cluster
        .until_pod("live", "restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == 1 && ready(pod)
        })
        .await;
    assert_eq!(
        restarted["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        137
    );
    let events = cluster.events("live").await;
    assert!(
        events.iter().any(|e| e.starts_with("Unhealthy Liveness probe failed")),
        "{events:?}"
    );
    assert!(
        events
            .iter()
            .any(|e| e.contains("failed liveness probe, will be restarted")),
        "{events:?}"
    );

    // A sidecar does not keep a finished pod alive.
    let sleeper = json!({"name": "s", "restartPolicy": "Always", "command": ["sleep", "1000"]});
    cluster
        .pod(
            "job",
            json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "initContainers": [sleeper],
            "containers": [{"name": "c", "command": ["true"]}]}),
        )
        .await;
    let done = cluster.until_phase("job", "Succeeded").await;
    assert!(
        done["status"]["initContainerStatuses"][0]["state"]["terminated"].is_object(),
        "{done}"
    );
    // A deadline ends what would run for ever.
    cluster
        .pod(
            "late",
            json!({"activeDeadlineSeconds": 2, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "command": ["sleep", "1000"]}]}),
        )
        .await;
    let late = cluster.until_phase("late", "Failed").await;
    assert_eq!(late["status"]["reason"], "DeadlineExceeded");
    // A pod that asks for what the node has not is refused.
    cluster
        .pod(
            "huge",
            json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "1Ti"}}}]}),
        )
        .await;
    let huge = cluster.until_phase("huge", "Failed").await;
    assert_eq!(huge["status"]["reason"], "OutOfmemory");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_serves_logs_and_streams_to_those_who_may() {
    use http_body_util::BodyExt;
    let cluster = Cluster::start("kl").await;
    let script = "echo one; echo two; echo three; read line < /tmp/go; echo $line; exec sleep 1000";
    cluster
        .pod(
            "talk",
            json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c",
            "command": ["sh", "-c", format!("mkfifo /tmp/go; {script}")]}]}),
        )
        .await;
    cluster.until_phase("talk", "Running").await;
    let admin = cluster.kubelet_client(true);
    let stranger = cluster.kubelet_client(false);
    let logs = "/containerLogs/default/talk/c";
    assert_eq!(cluster.fetch(&stranger, "GET", logs).await.0, 401);
    assert_eq!(
        cluster.fetch(&stranger, "GET", "/healthz").await,
        (200, "ok".to_owned())
    );
    minato_test_support::until("the log", common::LIMIT, async || {
        (cluster.fetch(&admin, "GET", logs).await == (200, "one\ntwo\nthree\n".to_owned())).then_some(())
    })
    .await;
    assert_eq!(
        cluster.fetch(&admin, "GET", &format!("{logs}?tailLines=1")).await.1,
        "three\n"
    );
    assert_eq!(
        cluster.fetch(&admin, "GET", &format!("{logs}?tailLines=x")).await.0,
        400
    );
    assert_eq!(
        cluster.fetch(&admin, "GET", &format!("{logs}?previous=true")).await.0,
        400
    );
    assert_eq!(
        cluster.fetch(&admin, "GET", "/containerLogs/default/none/c").await.0,
        404
    );
    let (_, pods) = cluster.fetch(&admin, "GET", "/pods").await;
    assert!(pods.contains(r#""name":"talk""#), "{pods}");
    let (_, metrics) = cluster.fetch(&admin, "GET", "/metrics").await;
    assert!(metrics.contains("kubelet_running_pods 1\n"), "{metrics}");
    assert!(
        metrics.contains("kubelet_running_containers{container_state=\"running\"} 1\n"),
        "{metrics}"
    );
    let (status, summary) = cluster.fetch(&admin, "GET", "/stats/summary").await;
    assert!(status == 200 && summary.contains("workingSetBytes"), "{summary}");

    // The API server reaches all of it through the tunnel that the node keeps.
    let kubectl = async |arguments: &[&str]| cluster.kubectl(arguments).await;
    minato_test_support::until("the tunnel is up", common::LIMIT, async || {
        (kubectl(&["logs", "talk", "--tail=2"]).await == (true, "two\nthree\n".to_owned())).then_some(())
    })
    .await;
    let (good, text) = kubectl(&["exec", "talk", "--", "sh", "-c", "echo through; echo bad >&2; exit 7"]).await;
    assert!(
        !good && text.contains("through\n") && text.contains("bad\n") && text.contains("exit code 7"),
        "{text}"
    );
    let (good, text) = kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/healthz")]).await;
    assert_eq!((good, text.as_str()), (true, "ok"));

    let (status, mut followed) = cluster
        .request(&admin, "GET", &format!("{logs}?follow=true&tailLines=0"))
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        exec(
            &cluster,
            &admin,
            "talk",
            &["sh", "-c", "echo hello > /tmp/go; echo done"]
        )
        .await,
        "done\n"
    );
    let frame = tokio::time::timeout(common::LIMIT, followed.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(frame.into_data().unwrap().as_ref(), b"hello\n");
    follows_over_rotations(&cluster, &admin).await;
    // The log ends with its container.
    cluster.delete("talk", None).await;
    let rest = tokio::time::timeout(common::LIMIT, followed.collect()).await.unwrap();
    assert!(rest.unwrap().to_bytes().is_empty());
    cluster.stop().await;
}

/// No line is lost or comes twice while the file is moved away under its reader.
async fn follows_over_rotations(cluster: &Cluster, client: &common::KubeletClient) {
    use http_body_util::BodyExt;
    let script = "i=0; while :; do echo line-$i; i=$((i+1)); [ $((i % 20)) != 0 ] || sleep 0.05; done";
    let pod = cluster
        .pod(
            "chatty",
            json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "command": ["sh", "-c", script]}]}),
        )
        .await;
    cluster.until_phase("chatty", "Running").await;
    let uid = pod.metadata.uid.unwrap();
    let directory = cluster
        .files()
        .join(format!("root/var/log/pods/default_chatty_{uid}/c"));
    let rotated = || std::fs::read_dir(&directory).unwrap().flatten().count();
    let (status, mut body) = cluster
        .request(client, "GET", "/containerLogs/default/chatty/c?follow=true")
        .await;
    assert_eq!(status, 200);
    let mut text = String::new();
    let followed = async {
        let mut enough = usize::MAX;
        while text.len() < enough {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            // Some more after the third rotation.
            if enough == usize::MAX && rotated() >= 4 {
                enough = text.len() + 2000;
            }
        }
    };
    tokio::time::timeout(common::LIMIT, followed)
        .await
        .expect("the log goes on");
    let numbers: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("line-")?.parse().ok())
        .collect();
    assert!(numbers.len() > 1000);
    // The first lines may have been rotated away; the last may be cut.
    let first = numbers[0];
    let complete = &numbers[..numbers.len() - 1];
    assert!(complete.iter().zip(first..).all(|(got, wanted)| *got == wanted));
    cluster.delete("chatty", None).await;
    cluster.until_gone("chatty").await;
}

/// The rest of what kubectl does to a running pod, and probes over the network.
#[tokio::test(flavor = "multi_thread")]
async fn a_web_pod_is_probed_forwarded_attached_and_copied_to() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start("kw").await;
    let script = "echo welcome > /www/index.html; exec httpd -f -p 8080 -h /www";
    cluster
        .pod("web", json!({"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "c", "command": ["sh", "-c", script],
                "ports": [{"name": "http", "containerPort": 8080, "hostPort": 8081}],
                "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                "readinessProbe": {"httpGet": {"path": "/index.html", "port": "http"}, "periodSeconds": 1},
                "livenessProbe": {"httpGet": {"path": "/index.html", "port": "http"}, "periodSeconds": 1},
                "lifecycle": {"postStart": {"exec": {"command": ["touch", "/tmp/started"]}}, "preStop": {"sleep": {"seconds": 1}}}},
            {"name": "cat", "command": ["cat"], "stdin": true},
        ]}))
        .await;
    let ready = |pod: &serde_json::Value| {
        let statuses = pod["status"]["containerStatuses"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        statuses.len() == 2 && statuses.iter().all(|s| s["ready"] == true)
    };
    let pod = cluster.until_pod("web", "ready", ready).await;
    let get = async |address: String| {
        let mut stream = cluster.node.connect(address.parse().unwrap()).ok()?;
        stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        text.contains("welcome").then_some(())
    };
    let ip = pod["status"]["podIP"].as_str().unwrap();
    get(format!("{ip}:8080")).await.expect("the pod answers at its address");
    get("192.0.2.10:8081".to_owned())
        .await
        .expect("the pod answers at its host port");

    let mut forward = tokio::process::Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(cluster.plane.kubeconfig())
        .args(["port-forward", "pod/web", ":8080"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(common::LIMIT, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let port = line
        .trim_start_matches("Forwarding from 127.0.0.1:")
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    for _ in 0..3 {
        let mut stream = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}"))
            .await
            .unwrap();
        stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        tokio::time::timeout(common::LIMIT, stream.read_to_string(&mut text))
            .await
            .unwrap()
            .unwrap();
        assert!(text.contains("welcome"), "{text}");
    }
    forward.kill().await.unwrap();

    // What is typed at an attached `cat` comes back.
    let mut attached = tokio::process::Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(cluster.plane.kubeconfig())
        .args(["attach", "-i", "web", "-c", "cat"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    attached.stdin.as_mut().unwrap().write_all(b"typed\n").await.unwrap();
    let mut lines = tokio::io::BufReader::new(attached.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(common::LIMIT, lines.next_line())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(line.as_deref(), Some("typed"));
    attached.kill().await.unwrap();

    let file = cluster.files().join("copied");
    std::fs::write(&file, "copied\n").unwrap();
    let (good, text) = cluster
        .kubectl(&["cp", "-c", "c", file.to_str().unwrap(), "web:/tmp/copied"])
        .await;
    assert!(good, "{text}");
    let (good, text) = cluster
        .kubectl(&[
            "exec",
            "web",
            "-c",
            "c",
            "--",
            "sh",
            "-c",
            "cat /tmp/copied; ls /tmp/started",
        ])
        .await;
    assert_eq!((good, text.as_str()), (true, "copied\n/tmp/started\n"));
    // A container that is added sees the processes of its target.
    let debug = [
        "debug",
        "web",
        "-c",
        "look",
        "--target=c",
        "--image",
        minato_test_support::images::BUSYBOX,
        "--",
        "sh",
        "-c",
    ];
    let (good, text) = cluster
        .kubectl(&[&debug[..], &["ps | grep -c [h]ttpd; echo seen"]].concat())
        .await;
    assert!(good, "{text}");
    let looked = cluster
        .until_pod("web", "looked into", |pod| {
            pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"].is_object()
        })
        .await;
    assert!(ready(&looked));
    let (good, text) = cluster.kubectl(&["logs", "web", "-c", "look"]).await;
    assert!(good && text.ends_with("seen\n") && !text.starts_with('0'), "{text}");
    // Its page gone, it is neither ready nor alive.
    let (good, text) = cluster
        .kubectl(&["exec", "web", "-c", "c", "--", "rm", "/www/index.html"])
        .await;
    assert!(good, "{text}");
    cluster
        .until_pod("web", "restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == 1 && ready(pod)
        })
        .await;
    cluster.stop().await;
}

/// Standard output of a command, through the WebSocket that API servers use.
async fn exec(cluster: &Cluster, client: &common::KubeletClient, pod: &str, command: &[&str]) -> String {
    use futures::StreamExt;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    let query: String = command
        .iter()
        .map(|word| {
            format!(
                "&command={}",
                word.replace(' ', "%20").replace(';', "%3B").replace('>', "%3E")
            )
        })
        .collect();
    let url = format!("ws://kubelet/exec/default/{pod}/c?output=1&error=1{query}");
    let mut request = url.into_client_request().unwrap();
    let protocols = "v5.channel.k8s.io, v4.channel.k8s.io".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocols);
    let stream = cluster.connect(client).await;
    let (mut socket, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "v4.channel.k8s.io");
    let mut output = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        let data = message.into_data();
        if let Some((1, rest)) = data.split_first() {
            output.extend_from_slice(rest);
        }
    }
    String::from_utf8(output).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_runs_pods() {
    let cluster = Cluster::start("kp").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = serde_json::to_value(nodes.get(NODE).await.unwrap()).unwrap();
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
    assert!(
        node["status"]["nodeInfo"]["containerRuntimeVersion"]
            .as_str()
            .unwrap()
            .starts_with("containerd://")
    );
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    assert!(leases.get(NODE).await.unwrap().spec.unwrap().renew_time.is_some());

    everything_a_pod_may_ask_for(&cluster).await;
    restarts_and_ends(&cluster).await;
    graceful_deletion(&cluster).await;
    cluster.stop().await;
}

async fn everything_a_pod_may_ask_for(cluster: &Cluster) {
    cluster
        .create::<ConfigMap>(
            "default",
            json!({"metadata": {"name": "cm"}, "data": {"key": "from-map", "file": "text"}}),
        )
        .await;
    cluster
        .create::<Secret>(
            "default",
            json!({"metadata": {"name": "s"}, "stringData": {"password": "hush"}}),
        )
        .await;
    let script = "cat /shared/made; echo env=$KEY-$PASSWORD-$POD-$COMBINED; cat /cm/file; echo; cat /s/password; echo;
        cat /var/run/secrets/t/token | cut -d. -f1 | base64 -d 2>/dev/null | grep -o ES256; hostname; id -u;
        cat /labels/all; echo; grep cluster.local /etc/resolv.conf; grep -c kubernetes /etc/hosts; echo out >&2; exec sleep 1000";
    let pod = cluster
        .pod(
            "rich",
            json!({
                "securityContext": {"fsGroup": 2000},
                "initContainers": [{"name": "i", "command": ["sh", "-c", "echo init > /shared/made"],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
                "containers": [{"name": "c", "command": ["sh", "-c", script],
                    "env": [
                        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key"}}},
                        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "COMBINED", "value": "$(POD)/$(KEY)"},
                    ],
                    "volumeMounts": [
                        {"name": "shared", "mountPath": "/shared"}, {"name": "cm", "mountPath": "/cm"},
                        {"name": "s", "mountPath": "/s"}, {"name": "t", "mountPath": "/var/run/secrets/t"},
                        {"name": "labels", "mountPath": "/labels"},
                    ]}],
                "volumes": [
                    {"name": "shared", "emptyDir": {}}, {"name": "cm", "configMap": {"name": "cm"}},
                    {"name": "s", "secret": {"secretName": "s"}},
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "me"}}]}},
                    {"name": "labels", "downwardAPI": {"items": [{"path": "all", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                ],
            }),
        )
        .await;
    let running = cluster
        .until_pod("rich", "ready", |pod| {
            pod["status"]["containerStatuses"][0]["ready"] == true
        })
        .await;
    let status = &running["status"];
    assert_eq!(status["phase"], "Running");
    assert!(status["podIP"].as_str().unwrap().starts_with("10.244."), "{status}");
    assert_eq!(
        status["initContainerStatuses"][0]["state"]["terminated"]["reason"],
        "Completed"
    );
    let condition = |name: &str| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == name).unwrap()["status"].clone()
    };
    for name in [
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
    ] {
        assert_eq!(condition(name), "True", "{name}");
    }
    let wanted = "init\nenv=from-map-hush-rich-rich/from-map\ntext\nhush\nES256\nrich\n0\ndefault\n\
        search default.svc.cluster.local svc.cluster.local cluster.local\n";
    let log = minato_test_support::until("the log is complete", common::LIMIT, async || {
        let log = cluster.log(&pod, "c", 0);
        log.contains("out").then_some(log)
    })
    .await;
    assert!(log.contains(wanted), "{log}");
    // Others may find the pod unready while its node is away; the kubelet knows better.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let patch = minato_api::kube::api::Patch::Strategic(unready);
    cluster
        .pods()
        .patch_status("rich", &Default::default(), &patch)
        .await
        .unwrap();
    cluster
        .until_pod("rich", "ready again", |pod| {
            let conditions = pod["status"]["conditions"].as_array().unwrap();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
        .await;
    // A changed ConfigMap reaches the files of the running pod.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let patch = json!({"data": {"file": "changed"}});
    maps.patch("cm", &Default::default(), &minato_api::kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    let path = cluster.files().join(format!(
        "root/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/cm/file"
    ));
    minato_test_support::until("the file changes", common::LIMIT, async || {
        (std::fs::read_to_string(&path).ok()? == "changed").then_some(())
    })
    .await;
    cluster.delete("rich", Some(1)).await;
    cluster.until_gone("rich").await;
    assert!(
        !cluster
            .files()
            .join(format!("root/var/lib/kubelet/pods/{uid}"))
            .exists()
    );
}

async fn restarts_and_ends(cluster: &Cluster) {
    // Ends well, ends badly, is killed for its memory, is restarted with back-off.
    cluster
        .pod(
            "well",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"]}]}),
        )
        .await;
    let script = "echo last words > /dev/termination-log; exit 3";
    cluster
        .pod(
            "badly",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["sh", "-c", script]}]}),
        )
        .await;
    cluster
        .pod(
            "oom",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["sh", "-c", "x=a; while :; do x=$x$x; done"],
                "resources": {"limits": {"memory": "20Mi"}}}]}),
        )
        .await;
    cluster
        .pod("crash", json!({"containers": [{"name": "c", "command": ["false"]}]}))
        .await;
    cluster.until_phase("well", "Succeeded").await;
    let badly = cluster.until_phase("badly", "Failed").await;
    let terminated = &badly["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["reason"]),
        (&json!(3), &json!("Error"))
    );
    assert_eq!(terminated["message"], "last words\n");
    cluster
        .until_pod("oom", "killed for its memory", |pod| {
            let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            pod["status"]["phase"] == "Failed" && terminated["reason"] == "OOMKilled" && terminated["exitCode"] == 137
        })
        .await;
    let crash = cluster
        .until_pod("crash", "backing off", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let status = &crash["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(crash["status"]["phase"], "Running");
    for name in ["well", "badly", "oom", "crash"] {
        cluster.delete(name, None).await;
        cluster.until_gone(name).await;
    }
    cluster
        .pod(
            "nowhere",
            json!({"containers": [{"name": "c", "image": "minato.test/none:1", "imagePullPolicy": "Never"}]}),
        )
        .await;
    cluster
        .until_pod("nowhere", "without its image", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImageNeverPull"
        })
        .await;
    cluster.delete("nowhere", None).await;
    cluster.until_gone("nowhere").await;
}

async fn graceful_deletion(cluster: &Cluster) {
    let script = "trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let pod = cluster
        .pod(
            "graceful",
            json!({"containers": [{"name": "c", "command": ["sh", "-c", script],
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}}}]}),
        )
        .await;
    cluster.until_phase("graceful", "Running").await;
    minato_test_support::until("it is up", common::LIMIT, async || {
        cluster.log(&pod, "c", 0).contains("up").then_some(())
    })
    .await;
    // Its last words are read through a descriptor: the file goes with the pod.
    let uid = pod.metadata.uid.clone().unwrap();
    let log = cluster
        .files()
        .join(format!("root/var/log/pods/default_graceful_{uid}/c/0.log"));
    let mut file = std::fs::File::open(log).unwrap();
    cluster.delete("graceful", None).await;
    cluster.until_gone("graceful").await;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    let events = cluster.events("graceful").await;
    let (hook, term) = (text.find("hook"), text.find("got TERM"));
    assert!(hook.is_some() && term > hook, "{text} {events:?}");
    assert!(events.iter().any(|e| e.starts_with("Killing")), "{events:?}");

    // Patience can be cut short: this one ignores TERM.
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    cluster
        .pod(
            "stubborn",
            json!({"terminationGracePeriodSeconds": 600, "containers": [{"name": "c", "command": ["sh", "-c", script]}]}),
        )
        .await;
    cluster.until_phase("stubborn", "Running").await;
    cluster.delete("stubborn", None).await;
    minato_test_support::until("it is being killed", common::LIMIT, async || {
        let events = cluster.events("stubborn").await;
        events.iter().any(|e| e.starts_with("Killing")).then_some(())
    })
    .await;
    cluster.delete("stubborn", Some(1)).await;
    cluster.until_gone("stubborn").await;
}
