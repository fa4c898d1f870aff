//! What the real kubectl prints of the server's tables.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::kubectl_of;
use minato_control_plane::{Config, ControlPlane};
use minato_test_support::Kubectl;

struct Columns(Kubectl);

impl Columns {
    async fn run(&self, input: &str, arguments: &str) -> String {
        self.0.ok(input, &arguments.split(' ').collect::<Vec<_>>()).await
    }

    /// The cells of what `get` prints, line by line; ages are `AGE`, as they depend on when one asks.
    async fn get(&self, arguments: &str) -> Vec<Vec<String>> {
        let text = self.run("", &format!("get {arguments}")).await;
        let mut lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        let age = lines[0].iter().position(|header| header == "AGE").unwrap();
        for line in &mut lines {
            line[age] = "AGE".to_owned();
        }
        lines
    }
}

/// kubectl puts at least three blanks between columns.
fn cells(line: &str) -> Vec<String> {
    let cells = line.split("   ").map(str::trim).filter(|cell| !cell.is_empty());
    cells.map(str::to_owned).collect()
}

fn table(lines: &[&str]) -> Vec<Vec<String>> {
    let split = |line: &&str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.iter().map(split).collect()
}

const OBJECTS: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: ""}}
spec: {unschedulable: true}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: n1
  initContainers: [{name: setup, image: "i:1"}]
  containers: [{name: a, image: "i:1"}, {name: b, image: "i:1"}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c, image: "shop:2"}, {name: d, image: "log:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: door}
spec: {clusterIP: None, selector: {app: shop}, ports: [{name: web, port: 80}, {name: dns, port: 53, protocol: UDP}]}
"#;

const NODE_STATUS: &str = r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.5"}],"nodeInfo":{"kubeletVersion":"v1.36.0",
"osImage":"Debian GNU/Linux","kernelVersion":"6.1","containerRuntimeVersion":"containerd://2.0","machineID":"","systemUUID":"","bootID":"","kubeProxyVersion":"",
"operatingSystem":"linux","architecture":"amd64"}}}"#;

/// First the init container is at work, then a container crashes.
const POD_STATUSES: [&str; 2] = [
    r#"{"status":{"phase":"Pending","initContainerStatuses":[{"name":"setup","image":"i","imageID":"","ready":false,"restartCount":0,
"state":{"running":{}}}]}}"#,
    r#"{"status":{"phase":"Running","podIP":"10.2.0.9","podIPs":[{"ip":"10.2.0.9"}],"initContainerStatuses":[{"name":"setup","image":"i",
"imageID":"","ready":true,"restartCount":0,"state":{"terminated":{"exitCode":0}}}],"containerStatuses":[{"name":"a","image":"i","imageID":"",
"ready":true,"restartCount":0,"state":{"running":{}}},{"name":"b","image":"i","imageID":"","ready":false,"restartCount":3,
"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_columns_that_users_know() {
    let directory = tempfile::tempdir().unwrap();
    let plane = ControlPlane::start(Config::new("c1", directory.path().join("c1")))
        .await
        .unwrap();
    let kubectl = Columns(kubectl_of(&plane));
    kubectl
        .run("", "wait serviceaccount/default --for=create --timeout=10s")
        .await;
    kubectl.run(OBJECTS, "create -f -").await;
    let patch = |what: &str, patch: &str| {
        let patch = patch.replace(['\n', ' '], "");
        format!("patch {what} --subresource=status --type=merge -p {patch}")
    };
    let status = NODE_STATUS.replace(' ', "\\u0020");
    kubectl.run("", &patch("node/n1", &status)).await;

    kubectl.run("", &patch("pod/web", POD_STATUSES[0])).await;
    assert_eq!(
        kubectl.get("pods").await,
        table(&["NAME|READY|STATUS|RESTARTS|AGE", "web|0/2|Init:0/1|0|AGE"])
    );
    kubectl.run("", &patch("pod/web", POD_STATUSES[1])).await;
    assert_eq!(
        kubectl.get("pods -o wide").await,
        table(&[
            "NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES",
            "web|1/2|CrashLoopBackOff|3|AGE|10.2.0.9|n1|<none>|<none>",
        ])
    );
    assert_eq!(
        kubectl.get("deploy -o wide").await,
        table(&[
            "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR",
            "shop|0/0|0|0|AGE|c,d|shop:2,log:1|app=shop",
        ])
    );
    assert_eq!(
        kubectl.get("svc door -o wide").await,
        table(&[
            "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|SELECTOR",
            "door|ClusterIP|None|<none>|80/TCP,53/UDP|AGE|app=shop",
        ])
    );
    let mut nodes = kubectl.get("nodes -o wide").await;
    // Whether a node without a kubelet is ready depends on how long it has been one.
    nodes[1][1] = nodes[1][1].replace("NotReady", "Unknown");
    assert_eq!(
        nodes,
        table(&[
            "NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|CONTAINER-RUNTIME",
            "n1|Unknown,SchedulingDisabled|worker|AGE|v1.36.0|10.0.0.5|<none>|Debian GNU/Linux|6.1|containerd://2.0",
        ])
    );
    assert_eq!(
        kubectl.get("pods -n default --show-labels -A --no-headers=false").await,
        table(&[
            "NAMESPACE|NAME|READY|STATUS|RESTARTS|AGE|LABELS",
            "default|web|1/2|CrashLoopBackOff|3|AGE|<none>",
        ])
    );
    plane.stop().await;
}
