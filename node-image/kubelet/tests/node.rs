//! What a node gives to pods and keeps from them, and how it bears the loss of what it stands on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Cluster, LIMIT, NODE};
use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_test_support::{images, until};
use serde_json::json;

async fn log_of(cluster: &Cluster, pod: &Pod, end: &str) -> String {
    until("the log is complete", LIMIT, async || {
        let log = cluster.log(pod, "c", 0);
        log.contains(end).then_some(log)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn security_and_volumes_are_as_asked_for() {
    let cluster = Cluster::start("ks").await;
    let script = "id -u; id -g; id -G; touch /no 2>/dev/null || echo read-only; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status;
        grep Seccomp: /proc/self/status; stat -c %a:%g /data; mount | grep ' /ram ' | cut -d' ' -f5; ls /part; cat /one; echo
        echo $CPU $MEMORY; cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; ls /host | head -1; echo end";
    let pod = cluster
        .pod(
            "secure",
            json!({
                "restartPolicy": "Never",
                "securityContext": {"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2000, "supplementalGroups": [3000],
                    "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "initContainers": [{"name": "i", "command": ["sh", "-c", "mkdir /data/sub; echo x > /data/sub/file"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                "containers": [{"name": "c", "command": ["sh", "-c", script],
                    "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"]}},
                    "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
                    "env": [
                        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    ],
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"}, {"name": "ram", "mountPath": "/ram"},
                        {"name": "data", "mountPath": "/part", "subPath": "sub"},
                        {"name": "names", "mountPath": "/one", "subPath": "name"},
                        {"name": "host", "mountPath": "/host", "readOnly": true},
                    ]}],
                "volumes": [
                    {"name": "data", "emptyDir": {}}, {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "names", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"name": "host", "hostPath": {"path": "/etc/cni/net.d", "type": "Directory"}},
                ],
            }),
        )
        .await;
    cluster.until_phase("secure", "Succeeded").await;
    let log = log_of(&cluster, &pod, "end").await;
    let wanted = "1000\n1001\n1001 2000 3000\nread-only\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n2777:2000\ntmpfs\nfile\nsecure\n500 64\n";
    assert!(log.starts_with(wanted), "{log}");
    assert!(log.ends_with("10-minato.conflist\nend\n"), "{log}");

    // Root is refused where root is not wanted; a missing volume source holds the pod until it is there.
    cluster
        .pod(
            "root",
            json!({"containers": [{"name": "c", "securityContext": {"runAsNonRoot": true}}]}),
        )
        .await;
    let refused = |pod: &serde_json::Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    cluster.until_pod("root", "refused", refused).await;
    cluster
        .pod(
            "waiting",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"],
            "envFrom": [{"configMapRef": {"name": "later"}}]}]}),
        )
        .await;
    cluster.until_pod("waiting", "held back", refused).await;
    cluster
        .create::<minato_api::k8s::core::v1::ConfigMap>(
            "default",
            json!({"metadata": {"name": "later"}, "data": {"A": "1"}}),
        )
        .await;
    cluster.until_phase("waiting", "Succeeded").await;

    // A privileged pod of the host's network and processes.
    let pod = cluster
        .pod("host", json!({"restartPolicy": "Never", "hostNetwork": true, "hostPID": true, "containers": [{"name": "c",
            "command": ["sh", "-c", "ip addr | grep -c 192.0.2.10; ps | grep -c [k]ubelet; grep CapEff /proc/self/status; echo end"],
            "securityContext": {"privileged": true}}]}))
        .await;
    let done = cluster.until_phase("host", "Succeeded").await;
    assert_eq!(done["status"]["podIP"], "192.0.2.10");
    let log = log_of(&cluster, &pod, "end").await;
    assert!(log.starts_with("1\n") && !log.contains("0000000000000000"), "{log}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_outlive_the_runtimes_daemon() {
    let cluster = Cluster::start("kc").await;
    cluster
        .pod(
            "kept",
            json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "command": ["sleep", "1000"]}]}),
        )
        .await;
    let running = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let before = cluster.until_pod("kept", "running", running).await;
    let daemon = cluster
        .node
        .command("sh")
        .args(["-c", "pidof containerd"])
        .output()
        .unwrap();
    let daemon = String::from_utf8(daemon.stdout).unwrap().trim().to_owned();
    let killed = cluster.node.command("kill").args(["-9", &daemon]).status().unwrap();
    assert!(killed.success(), "{daemon}");
    // A pod that is made now waits for the runtime, and runs.
    cluster
        .pod(
            "new",
            json!({"containers": [{"name": "c", "command": ["sleep", "1000"]}]}),
        )
        .await;
    cluster.until_pod("new", "running", running).await;
    let after = cluster.get("kept").await;
    assert_eq!(
        before["status"]["containerStatuses"],
        after["status"]["containerStatuses"]
    );
    cluster.wait_ready().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_and_failures_backed_off_from() {
    let cluster = Cluster::start("ki").await;
    // Nothing listens there: the pull fails, is held back, and is tried again.
    cluster
        .pod(
            "absent",
            json!({"containers": [{"name": "c", "image": "127.0.0.1:5999/none:1"}]}),
        )
        .await;
    let reason = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    cluster
        .until_pod("absent", "failing", |pod| reason(pod) == "ErrImagePull")
        .await;
    let held = cluster
        .until_pod("absent", "held back", |pod| reason(pod) == "ImagePullBackOff")
        .await;
    assert_eq!(held["status"]["phase"], "Pending");
    let events = cluster.events("absent").await;
    assert!(
        events.iter().any(|e| e.starts_with("Failed Failed to pull image")),
        "{events:?}"
    );
    // A pod can go while its image does not come.
    cluster.delete("absent", None).await;
    cluster.until_gone("absent").await;
    cluster
        .pod("bad", json!({"containers": [{"name": "c", "image": "Bad Name"}]}))
        .await;
    cluster
        .until_pod("bad", "refused", |pod| reason(pod) == "InvalidImageName")
        .await;
    let registry = registry::serve(&cluster.node, "127.0.0.1:5000".parse().unwrap());
    let pod = cluster
        .pod(
            "pulled",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "127.0.0.1:5000/made/busybox:1",
            "command": ["echo", "pulled"]}]}),
        )
        .await;
    let done = cluster.until_phase("pulled", "Succeeded").await;
    let status = &done["status"]["containerStatuses"][0];
    assert!(status["imageID"].as_str().unwrap().contains("sha256:"), "{status}");
    assert_eq!(status["image"], "127.0.0.1:5000/made/busybox:1");
    assert!(log_of(&cluster, &pod, "pulled").await.starts_with("pulled"));
    drop(registry);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_about_to_end_is_renewed() {
    let mut cluster = Cluster::start("kt").await;
    let path = cluster
        .files()
        .join("root/var/lib/kubelet/pki/kubelet-client-current.pem");
    cluster.kill_kubelet();
    // Two minutes of life, after the five by which certificates are backdated: nine tenths of it are over.
    let pki = minato_pki::ClusterPki::load_or_create(&cluster.plane_directory().join("pki"), "c1").unwrap();
    let user = format!("system:node:{NODE}");
    let short = pki
        .issue_client_for(&user, &["system:nodes"], Duration::from_secs(30))
        .unwrap();
    let short = format!("{}{}", short.certificate, short.key);
    std::fs::write(&path, &short).unwrap();
    cluster.start_kubelet();
    until("the certificate is renewed", LIMIT, async || {
        (std::fs::read_to_string(&path).unwrap() != short).then_some(())
    })
    .await;
    cluster
        .pod(
            "works",
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"]}]}),
        )
        .await;
    cluster.until_phase("works", "Succeeded").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    assert!(nodes.get(NODE).await.is_ok());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_run_and_are_mirrored() {
    let cluster = Cluster::start("kf").await;
    let manifest = |words: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": images::BUSYBOX, "command": ["sleep", words]}]}})
        .to_string()
    };
    let path = cluster.files().join("manifests/web.yaml");
    std::fs::write(&path, manifest("1000")).unwrap();
    let running = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let first = cluster.until_pod("web-n1", "running", running).await;
    assert!(first["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string());
    // Deleting the mirror does not touch the pod: it comes back, showing the same container.
    cluster.delete("web-n1", Some(0)).await;
    let uid = first["metadata"]["uid"].clone();
    let again = cluster
        .until_pod("web-n1", "mirrored again", |pod| {
            running(pod) && pod["metadata"]["uid"] != uid
        })
        .await;
    let container = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(container(&first), container(&again));
    // Another manifest is another pod.
    std::fs::write(&path, manifest("2000")).unwrap();
    cluster
        .until_pod("web-n1", "replaced", |pod| {
            running(pod) && container(pod) != container(&first)
        })
        .await;
    std::fs::remove_file(&path).unwrap();
    cluster.until_gone("web-n1").await;
    cluster.stop().await;
}

mod registry {
    //! A registry with one image, enough for a pull.

    use std::collections::HashMap;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Incoming;
    use minato_test_support::TestNode;

    use super::images;

    /// Files of a tar archive.
    fn unpack(archive: &[u8]) -> HashMap<String, Vec<u8>> {
        let mut files = HashMap::new();
        let mut at = 0;
        while let Some(header) = archive.get(at..at + 512).filter(|header| header[0] != 0) {
            let text = |from: usize, to: usize| {
                let field = &header[from..to];
                String::from_utf8_lossy(field).trim_end_matches('\0').trim().to_owned()
            };
            let size = usize::from_str_radix(&text(124, 136), 8).unwrap();
            files.insert(text(0, 100), archive[at + 512..at + 512 + size].to_vec());
            at += 512 + size.next_multiple_of(512);
        }
        files
    }

    pub(super) fn serve(node: &TestNode, address: SocketAddr) -> tokio::task::JoinHandle<()> {
        let files = Arc::new(unpack(&images::busybox(images::BUSYBOX).unwrap()));
        let listener = node.listen(address).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let files = files.clone();
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let response = answer(&files, request.uri().path());
                    async move { Ok::<_, std::convert::Infallible>(response) }
                });
                let io = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
            }
        })
    }

    fn answer(files: &HashMap<String, Vec<u8>>, path: &str) -> Response<Full<Bytes>> {
        let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest = index["manifests"][0]["digest"].as_str().unwrap();
        let (digest, kind) = match path.rsplit('/').next().unwrap() {
            "1" => (manifest, "application/vnd.oci.image.manifest.v1+json"),
            digest if digest == manifest => (manifest, "application/vnd.oci.image.manifest.v1+json"),
            digest => (digest, "application/octet-stream"),
        };
        let blob = files.get(&format!("blobs/{}", digest.replace(':', "/")));
        let response = Response::builder().header("docker-distribution-api-version", "registry/2.0");
        match blob {
            Some(blob) => response
                .header("content-type", kind)
                .header("docker-content-digest", digest)
                .body(Full::from(blob.clone()))
                .unwrap(),
            None => response
                .status(if path == "/v2/" { 200 } else { 404 })
                .body(Full::default())
                .unwrap(),
        }
    }
}
