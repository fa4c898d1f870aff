//! A newcomer's way: up, pods, Services, crashes, down.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use minato_e2e::{QuickStart, curl, eventually, kill, processes_with};

const IMAGE: &str = "minato.dev/busybox:1";

fn web(quick: &QuickStart) {
    // Each pod serves its own name.
    quick.kubectl(&[
        "create",
        "deployment",
        "web",
        "--image",
        IMAGE,
        "--replicas=3",
        "--",
        "httpd",
        "-f",
        "-p",
        "80",
        "-h",
        "/etc",
    ]);
    quick.kubectl(&["expose", "deployment", "web", "--port=80", "--type=LoadBalancer"]);
    quick.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
}

fn field(quick: &QuickStart, what: &[&str], path: &str) -> String {
    let mut arguments = vec!["get"];
    arguments.extend(what);
    let output = format!("jsonpath={path}");
    arguments.extend(["-o", &output]);
    quick.kubectl(&arguments)
}

/// Collects answers until every one of `pods` has given one.
fn everyone_answers(namespace: Option<&str>, url: &str, pods: &BTreeSet<String>) {
    let mut heard = BTreeSet::new();
    eventually(&format!("answers of all pods at {url}"), || {
        heard.extend(curl(namespace, url));
        if heard.is_superset(pods) {
            Ok(())
        } else {
            Err(format!("{heard:?} of {pods:?}"))
        }
    });
}

fn pods(quick: &QuickStart) -> BTreeSet<String> {
    let names = field(quick, &["pods", "-l", "app=web"], "{.items[*].metadata.name}");
    names.split_whitespace().map(str::to_owned).collect()
}

/// Name, number of restarts and start of every container: the same as long as none was started again.
fn lives(quick: &QuickStart) -> String {
    let path = "{range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} \
                {.status.containerStatuses[0].state.running.startedAt}{\"\\n\"}{end}";
    field(quick, &["pods", "-l", "app=web"], path)
}

#[test]
fn a_newcomer_runs_pods_and_services_and_leaves_nothing() {
    let quick = QuickStart::up(&[]);
    let nodes = quick.kubectl(&["get", "nodes", "--no-headers"]);
    assert_eq!(
        nodes.lines().filter(|line| line.contains(" Ready ")).count(),
        2,
        "{nodes}"
    );
    web(&quick);
    let all = pods(&quick);
    let hosts = field(&quick, &["pods", "-l", "app=web"], "{.items[*].spec.nodeName}");
    assert_eq!(hosts.split_whitespace().collect::<BTreeSet<_>>().len(), 2, "{hosts}");

    // Through the cluster's address on a node, the node's port, and the load balancer.
    let namespace = quick.namespaces().into_iter().next().unwrap();
    let cluster_ip = field(&quick, &["service", "web"], "{.spec.clusterIP}");
    everyone_answers(Some(&namespace), &format!("http://{cluster_ip}/hostname"), &all);
    let node_port = field(&quick, &["service", "web"], "{.spec.ports[0].nodePort}");
    let node = field(
        &quick,
        &["nodes"],
        "{.items[0].status.addresses[?(@.type=='InternalIP')].address}",
    );
    everyone_answers(None, &format!("http://{node}:{node_port}/hostname"), &all);
    let address = quick.until(
        &[
            "get",
            "service",
            "web",
            "-o",
            "jsonpath={.status.loadBalancer.ingress[0].ip}",
        ],
        |ip| !ip.is_empty(),
    );
    everyone_answers(None, &format!("http://{address}/hostname"), &all);

    // Into a pod: commands, input, files, logs.
    let pod = all.first().unwrap();
    assert_eq!(quick.kubectl(&["exec", pod, "--", "cat", "/etc/hostname"]).trim(), pod);
    assert_eq!(
        quick.tenant().run_with(b"to it", &["exec", "-i", pod, "--", "cat"]),
        "to it"
    );
    let failed = quick.tenant().try_run(&[], &["exec", pod, "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    let file = quick.root().join("kubeconfig");
    quick.kubectl(&["cp", &file.display().to_string(), &format!("{pod}:/tmp/copy")]);
    assert_eq!(
        quick.kubectl(&["exec", pod, "--", "cat", "/tmp/copy"]),
        std::fs::read_to_string(&file).unwrap()
    );
    let token = quick.kubectl(&[
        "exec",
        pod,
        "--",
        "cat",
        "/var/run/secrets/kubernetes.io/serviceaccount/namespace",
    ]);
    assert_eq!(token, "default");
    quick.kubectl(&[
        "run",
        "speaker",
        "--image",
        IMAGE,
        "--restart=Never",
        "--",
        "echo",
        "spoken",
    ]);
    quick.until(&["logs", "speaker"], |log| log == "spoken\n");
    quick.until(&["get", "pod", "speaker", "-o", "jsonpath={.status.phase}"], |phase| {
        phase == "Succeeded"
    });

    // Endpoints follow a pod that goes.
    quick.kubectl(&["delete", "pod", pod, "--wait=false"]);
    quick.until(
        &[
            "get",
            "endpointslices",
            "-l",
            "kubernetes.io/service-name=web",
            "-o",
            "jsonpath={.items[*].endpoints[*].targetRef.name}",
        ],
        |names| !names.contains(pod.as_str()) && names.split_whitespace().count() == 3,
    );

    // The load balancer goes with its Service, in the cloud too.
    quick.kubectl(&["delete", "service", "web"]);
    eventually("the load balancer is gone", || {
        let left = quick.cloud().load_balancers.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    });
    assert_eq!(curl(None, &format!("http://{address}/hostname")), None);

    let prefix = namespace.split('-').next().unwrap().to_owned();
    let directory = quick.root().display().to_string();
    quick.down();
    assert!(!quick.root().exists());
    let left: Vec<String> = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_with(&[&directory]), Vec::<u32>::new());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&directory), "{mounts}");
    for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        let groups = std::fs::read_dir(controller.path()).into_iter().flatten().flatten();
        let ours: Vec<_> = groups
            .filter(|g| g.file_name().to_string_lossy().starts_with(&prefix))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

#[test]
fn any_one_process_may_be_killed() {
    let quick = QuickStart::up(&[]);
    web(&quick);
    let before = lives(&quick);
    let address = quick.until(
        &[
            "get",
            "service",
            "web",
            "-o",
            "jsonpath={.status.loadBalancer.ingress[0].ip}",
        ],
        |ip| !ip.is_empty(),
    );
    let page = format!("http://{address}/hostname");
    everyone_answers(None, &page, &pods(&quick));

    for program in ["minato manager", "minato mock-cloud", "minato supervise"] {
        let pids = quick.processes(program);
        assert_eq!(pids.len(), 1, "{program}: {pids:?}");
        kill(pids[0]);
        if program == "minato supervise" {
            // Nobody watches over the supervisor; `up` starts it again and takes over what runs.
            quick.up_again();
        }
        eventually(&format!("{program} runs again"), || {
            let pids = quick.processes(program);
            if pids.len() == 1 {
                Ok(())
            } else {
                Err(format!("{pids:?}"))
            }
        });
    }
    // Tenants' control planes know their directory by its relative name: they are found by the cluster's id.
    let id = quick
        .fleet()
        .run(&["get", "cluster", "demo", "-o", "jsonpath={.metadata.uid}"]);
    let planes = processes_with(&["control-plane", &id]);
    assert_eq!(planes.len(), 1);
    kill(planes[0]);
    quick.until(&["get", "--raw", "/readyz"], |text| text == "ok");
    for program in ["kubelet", "kube-proxy", "minato-dns", "containerd"] {
        let pids = quick.processes_on_nodes(program);
        assert_eq!(pids.len(), 2, "{program}: {pids:?}");
        kill(pids[0]);
        eventually(&format!("{program} runs again"), || {
            let now = quick.processes_on_nodes(program);
            if now.len() == 2 && !now.contains(&pids[0]) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
    }
    // All of it works again, and no container was started anew.
    quick.kubectl(&["scale", "deployment", "web", "--replicas=4"]);
    quick.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    everyone_answers(None, &page, &pods(&quick));
    let after = lives(&quick);
    for life in before.lines() {
        assert!(after.contains(life), "{life} is not in {after}");
    }
    quick.down();
}
