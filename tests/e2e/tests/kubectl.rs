//! What tenants do with kubectl, by the machine's kubectl and by the newest, against a cluster with real nodes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command};

use minato_e2e::{Kubectl, QuickStart, curl, eventually, said, until};

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: minato.dev/busybox:1
        command: [httpd, -f, -p, "80", -h, /etc]
        env: [{name: LEVEL, value: one}]
        ports: [{containerPort: 80}]
"#;

/// kubectl in a namespace, with its arguments written as one types them.
struct Tenant {
    kubectl: Kubectl,
    namespace: String,
}

impl Tenant {
    fn arguments<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        ["-n", &self.namespace].into_iter().chain(line.split(' ')).collect()
    }

    fn run(&self, line: &str) -> String {
        eprintln!("kubectl {line}");
        self.kubectl.run(&self.arguments(line))
    }

    fn feed(&self, input: &str, line: &str) -> String {
        self.kubectl.run_with(input.as_bytes(), &self.arguments(line))
    }

    /// What a command that must fail with this exit code says.
    fn fails(&self, code: i32, input: &str, line: &str) -> String {
        let output = self.kubectl.try_run(input.as_bytes(), &self.arguments(line));
        assert_eq!(output.status.code(), Some(code), "kubectl {line}: {}", said(&output));
        said(&output)
    }

    fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> String {
        until(&self.kubectl, &self.arguments(line), wanted)
    }

    fn says(&self, line: &str, wanted: &[&str]) {
        let text = self.run(line);
        for wanted in wanted {
            assert!(text.contains(wanted), "kubectl {line}: {wanted:?} is not in\n{text}");
        }
    }

    fn start(&self, line: &str) -> Running {
        let mut child = self.kubectl.command(&self.arguments(line)).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    fn pod(&self) -> String {
        self.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}")
    }
}

/// A command that goes on until it is dropped; its output is read as it comes.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn finds_its_way(tenant: &Tenant) {
    tenant.says("version", &["Server Version: v1.36."]);
    tenant.says("cluster-info", &["control plane", "is running at"]);
    tenant.says("api-versions", &["apps/v1", "batch/v1", "v1"]);
    tenant.says("api-resources", &["deployments", "deploy", "networkpolicies", "netpol"]);
    tenant.says("explain deployment.spec.replicas", &["FIELD: replicas <integer>"]);
    tenant.says(
        "explain pods --recursive",
        &["terminationGracePeriodSeconds\t<integer>"],
    );
    assert_eq!(tenant.run("auth can-i create pods").trim(), "yes");
    assert_eq!(tenant.fails(1, "", "auth can-i create pods --as=nobody").trim(), "no");
    tenant.says("auth whoami", &["kubernetes-admin"]);
    for line in ["top nodes", "top pods"] {
        let error = tenant.fails(1, "", line);
        assert!(error.contains("Metrics API not available"), "{error}");
    }
}

fn applies(tenant: &Tenant) {
    assert_eq!(tenant.feed(MANIFEST, "apply -f -"), "deployment.apps/web created\n");
    assert_eq!(tenant.feed(MANIFEST, "apply -f -"), "deployment.apps/web unchanged\n");
    let more = MANIFEST.replace("replicas: 2", "replicas: 3");
    let difference = tenant.fails(1, &more, "diff -f -");
    assert!(
        difference.contains("-  replicas: 2") && difference.contains("+  replicas: 3"),
        "{difference}"
    );
    assert_eq!(tenant.feed(MANIFEST, "diff -f -"), "");
    assert_eq!(
        tenant.feed(&more, "apply --dry-run=server -f -"),
        "deployment.apps/web configured (server dry run)\n"
    );
    tenant.run("rollout status deployment/web --timeout=60s");
    assert_eq!(
        tenant.run("get deployment web -o jsonpath={.status.availableReplicas}"),
        "2"
    );

    let theirs = MANIFEST.replace("value: one", "value: theirs");
    let conflict = tenant.fails(1, &theirs, "apply --server-side --field-manager=other -f -");
    assert!(
        conflict.contains("Apply failed with 1 conflict") && conflict.contains(".env[name=\"LEVEL\"].value"),
        "{conflict}"
    );
    tenant.feed(
        &theirs,
        "apply --server-side --field-manager=other --force-conflicts -f -",
    );
    tenant.run("rollout status deployment/web --timeout=60s");
    let level = "get deployment web -o jsonpath={.spec.template.spec.containers[0].env[0].value}";
    assert_eq!(tenant.run(level), "theirs");
    let unknown = MANIFEST.replace("replicas: 2", "replica: 2");
    let error = tenant.fails(1, &unknown, "apply -f -");
    assert!(error.contains("unknown field \"spec.replica\""), "{error}");
}

fn changes(tenant: &Tenant) {
    tenant.run("patch deployment web -p {\"metadata\":{\"labels\":{\"a\":\"strategic\"}}}");
    tenant.run("patch deployment web --type=merge -p {\"metadata\":{\"labels\":{\"b\":\"merge\"}}}");
    tenant.run(
        "patch deployment web --type=json -p [{\"op\":\"add\",\"path\":\"/metadata/labels/c\",\"value\":\"json\"}]",
    );
    let output = Command::new("env")
        .arg("KUBE_EDITOR=sed -i s/strategic/edited/")
        .arg(tenant.kubectl.command::<&str>(&[]).get_program())
        .args(
            tenant
                .kubectl
                .command(&tenant.arguments("edit deployment web"))
                .get_args(),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        tenant.run("get deployment web -o jsonpath={.metadata.labels.a},{.metadata.labels.b},{.metadata.labels.c}"),
        "edited,merge,json"
    );
    tenant.run("label deployment web a-");
    tenant.run("annotate deployment web note=kept");
    tenant.run("set env deployment/web LEVEL=two");
    tenant.run("rollout status deployment/web --timeout=60s");
    let environment = tenant.run(&format!("exec {} -- cat /proc/1/environ", newest_pod(tenant)));
    assert!(environment.contains("LEVEL=two"), "{environment}");
    assert_eq!(
        tenant
            .run("rollout history deployment/web")
            .lines()
            .filter(|line| line.starts_with(['1', '2', '3']))
            .count(),
        3
    );
    tenant.run("rollout undo deployment/web");
    tenant.run("rollout status deployment/web --timeout=60s");
    assert_eq!(
        tenant.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].env[0].value}"),
        "theirs"
    );
    tenant.run("rollout restart deployment/web");
    tenant.run("rollout status deployment/web --timeout=60s");
    tenant.run("scale deployment web --replicas=3");
    tenant.run("wait deployment/web --for=jsonpath={.status.readyReplicas}=3 --timeout=60s");
    tenant.run("wait deployment/web --for=condition=Available --timeout=60s");
    let conflict = tenant.fails(1, "", "scale deployment web --current-replicas=7 --replicas=1");
    assert!(conflict.contains("Expected replicas to be 7, was 3"), "{conflict}");
}

fn newest_pod(tenant: &Tenant) -> String {
    let names = tenant.run("get pods -l app=web --sort-by=.metadata.creationTimestamp -o name");
    names.lines().last().unwrap().to_owned()
}

fn looks(tenant: &Tenant) {
    let pod = tenant.pod();
    tenant.says(
        "describe deployment web",
        &["3 desired | 3 updated | 3 total | 3 available", "Scaled up replica set"],
    );
    tenant.says(
        &format!("describe pod {pod}"),
        &["Successfully assigned", "Started", "Ready             True"],
    );
    tenant.says("describe nodes", &["Allocated resources:", "Capacity:", "PodCIDR:"]);
    tenant.says("get events", &["Scheduled", "ScalingReplicaSet"]);
    tenant.says("get all", &["deployment.apps/web", "replicaset.apps/web-", "pod/web-"]);
    tenant.says("get pods -o wide -l app=web", &["READINESS GATES", "1/1"]);
    assert_eq!(
        tenant.run("get deploy -o custom-columns=N:.metadata.name --no-headers"),
        "web\n"
    );
    assert!(tenant.run("get deployment web -o yaml").contains("\n    note: kept\n"));
}

fn reaches_in(tenant: &Tenant) {
    let pod = tenant.pod();
    tenant.feed(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ticker"},"spec":{"terminationGracePeriodSeconds":0,
            "containers":[{"name":"main","image":"minato.dev/busybox:1",
            "command":["sh","-c","n=0; while true; do echo tick $n; n=$((n+1)); sleep 0.1; done"]}]}}"#,
        "create -f -",
    );
    tenant.run("wait pod/ticker --for=condition=Ready --timeout=60s");
    let mut following = tenant.start("logs -f ticker");
    let lines: Vec<String> = (0..5).map(|_| following.line()).collect();
    assert_eq!(lines, ["tick 0", "tick 1", "tick 2", "tick 3", "tick 4"]);
    drop(following);
    assert_eq!(tenant.run("logs ticker --tail=2").lines().count(), 2);
    tenant.run("logs deploy/web --all-containers --prefix");
    let mut attached = tenant.start("attach ticker");
    assert!(attached.line().starts_with("tick "));
    drop(attached);

    // A terminal: the container sees one.
    let exec = tenant.kubectl.command(&tenant.arguments("exec -it ticker -- tty"));
    let words: Vec<&str> = std::iter::once(exec.get_program())
        .chain(exec.get_args())
        .map(|word| word.to_str().unwrap())
        .collect();
    let output = Command::new("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .output()
        .unwrap();
    assert!(said(&output).contains("/dev/pts/0"), "{}", said(&output));
    let echoed = tenant.feed(
        "said to it\n",
        "run asker --image=minato.dev/busybox:1 -i --rm --quiet --restart=Never -- cat",
    );
    assert_eq!(echoed, "said to it\n");

    let mut forward = tenant.start("port-forward deployment/web :80");
    let line = forward.line();
    let port: u16 = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    let name = eventually("the forwarded port answers", || {
        curl(None, &format!("http://127.0.0.1:{port}/hostname")).ok_or_else(|| "no answer".to_owned())
    });
    assert!(name.starts_with("web-"), "{name}");
    drop(forward);

    let directory = tempfile::tempdir().unwrap();
    let (up, down) = (directory.path().join("up"), directory.path().join("down"));
    std::fs::write(&up, "copied").unwrap();
    tenant.run(&format!("cp {} {pod}:/tmp/file", up.display()));
    tenant.run(&format!("cp {pod}:/tmp/file {}", down.display()));
    assert_eq!(std::fs::read_to_string(down).unwrap(), "copied");
    tenant.run("delete pod ticker --now");
    tenant.run("expose deployment web --port=80");
    tenant.until(
        "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].targetRef.name}",
        |names| names.split_whitespace().count() == 3,
    );
}

fn moves_house(tenant: &Tenant) {
    let node = tenant.run("get pods -l app=web -o jsonpath={.items[0].spec.nodeName}");
    tenant.run(&format!("cordon {node}"));
    tenant.says("get nodes", &["Ready,SchedulingDisabled"]);
    tenant.run(&format!(
        "drain {node} --ignore-daemonsets --delete-emptydir-data --force --timeout=60s"
    ));
    tenant.run("rollout status deployment/web --timeout=60s");
    let hosts = tenant.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
    assert!(
        !hosts.contains(&node) && hosts.split_whitespace().count() == 3,
        "{hosts}"
    );
    tenant.run(&format!("uncordon {node}"));
    tenant.run(&format!("taint node {node} k=v:NoSchedule"));
    tenant.run(&format!("taint node {node} k-"));
}

fn gives_access(tenant: &Tenant) {
    tenant.run("create serviceaccount reader");
    tenant.run("create role reader --verb=get,list --resource=configmaps");
    let account = format!("{}:reader", tenant.namespace);
    tenant.run(&format!(
        "create rolebinding reader --role=reader --serviceaccount={account}"
    ));
    assert_eq!(tenant.run("create token reader").trim().split('.').count(), 3);
    let as_reader = format!("--as=system:serviceaccount:{account}");
    assert_eq!(
        tenant.run(&format!("auth can-i list configmaps {as_reader}")).trim(),
        "yes"
    );
    assert_eq!(
        tenant
            .fails(1, "", &format!("auth can-i list secrets {as_reader}"))
            .trim(),
        "no"
    );
    tenant.run("create secret generic s --from-literal=key=value");
    let error = tenant.fails(1, "", &format!("get secret s {as_reader}"));
    assert!(
        error.contains("Error from server (Forbidden): secrets \"s\" is forbidden"),
        "{error}"
    );
}

fn everything(kubectl: Kubectl, namespace: &str) {
    kubectl.run(&["create", "namespace", namespace]);
    let tenant = Tenant {
        kubectl,
        namespace: namespace.to_owned(),
    };
    finds_its_way(&tenant);
    applies(&tenant);
    changes(&tenant);
    looks(&tenant);
    reaches_in(&tenant);
    moves_house(&tenant);
    gives_access(&tenant);
    tenant.run("delete deployment,service -l app=web --wait");
    tenant.run("wait pod -l app=web --for=delete --timeout=60s");
    tenant.run(&format!("delete namespace {namespace} --timeout=60s"));
}

#[test]
fn what_one_does_with_kubectl() {
    let quick = QuickStart::up(&[]);
    everything(quick.tenant(), "today");
    everything(quick.tenant().newest(), "newest");
    quick.down();
}
