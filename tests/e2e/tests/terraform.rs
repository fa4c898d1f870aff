//! The way of somebody who writes everything down: the real Terraform, the example, and what comes after.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use minato_e2e::{Kubectl, QuickStart, eventually, processes_with};

/// Nothing is to be done.
const EMPTY: i32 = 0;
/// Something is to be done.
const CHANGES: i32 = 2;

/// All words that Terraform printed: it breaks lines and aligns.
fn said(output: &Output) -> String {
    let text = minato_e2e::said(output);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Terraform in a copy of the example.
struct Terraform {
    directory: tempfile::TempDir,
    root: PathBuf,
}

impl Terraform {
    fn new(quick: &QuickStart) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../terraform/examples/quickstart");
        for entry in std::fs::read_dir(example).unwrap().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "tf") {
                std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
            }
        }
        Self {
            directory,
            root: quick.root(),
        }
    }

    fn try_run(&self, arguments: &[&str]) -> Output {
        Command::new("terraform")
            .args(arguments)
            .current_dir(self.directory.path())
            .env("TF_CLI_CONFIG_FILE", self.root.join("terraform.rc"))
            .env("MINATO_KUBECONFIG", self.root.join("fleet.kubeconfig"))
            .env("TF_LOG", "TRACE")
            .env("TF_LOG_PATH", self.directory.path().join("log"))
            .env("TF_IN_AUTOMATION", "1")
            .env("CHECKPOINT_DISABLE", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        assert!(output.status.success(), "terraform {arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn apply(&self, variables: &[&str]) {
        let mut arguments = vec!["apply", "-auto-approve", "-no-color"];
        arguments.extend(variables);
        self.run(&arguments);
    }

    /// A plan must end like this; what it says.
    fn plan(&self, wanted: i32, variables: &[&str]) -> String {
        let mut arguments = vec!["plan", "-detailed-exitcode", "-no-color"];
        arguments.extend(variables);
        let output = self.try_run(&arguments);
        assert_eq!(output.status.code(), Some(wanted), "{}", said(&output));
        said(&output)
    }

    /// Everything that the two processes have told each other's logs.
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

fn node_names(kubectl: &Kubectl) -> Vec<String> {
    let names = kubectl.run(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]);
    names.split_whitespace().map(str::to_owned).collect()
}

/// The tenant's kubectl, by the kubeconfig that Terraform gives out.
fn tenant(terraform: &Terraform, quick: &QuickStart) -> Kubectl {
    let kubeconfig = terraform.run(&["output", "-raw", "kubeconfig"]);
    let path = terraform.directory.path().join("kubeconfig");
    std::fs::write(&path, &kubeconfig).unwrap();
    quick.tenant().with_kubeconfig(&path)
}

fn network_namespaces(prefix: &str) -> Vec<String> {
    let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn a_cluster_lives_and_dies_by_terraform() {
    let quick = QuickStart::up(&["--bare"]);
    assert_eq!(quick.fleet().run(&["get", "clusters,nodepools", "-o", "name"]), "");
    let before = network_namespaces("");
    let terraform = Terraform::new(&quick);
    terraform.apply(&[]);
    let kubectl = tenant(&terraform, &quick);
    let nodes = kubectl.run(&["get", "nodes", "--no-headers"]);
    assert_eq!(nodes.matches(" Ready ").count(), 2, "{nodes}");
    let labelled = kubectl.run(&["get", "nodes", "-l", "example.com/pool=workers", "-o", "name"]);
    assert_eq!(labelled.lines().count(), 2, "{labelled}");
    terraform.plan(EMPTY, &[]);

    scale(&terraform, &kubectl);
    drift(&terraform, &quick);
    import(&terraform);
    refusals(&terraform);

    let uid = quick
        .fleet()
        .run(&["get", "cluster", "example", "-o", "jsonpath={.metadata.uid}"]);
    assert_eq!(processes_with(&["control-plane", &uid]).len(), 1);
    terraform.run(&["destroy", "-auto-approve", "-no-color"]);
    assert_eq!(
        quick.fleet().run(&["get", "clusters,nodepools,secrets", "-o", "name"]),
        ""
    );
    assert_eq!(terraform.run(&["state", "list"]), "");
    assert_eq!(processes_with(&["control-plane", &uid]), Vec::<u32>::new());
    assert_eq!(quick.instances(), Vec::<String>::new());
    eventually("the machines' network namespaces are gone", || {
        let mut left = network_namespaces("");
        left.retain(|name| !before.contains(name) && !name.ends_with("-vpc"));
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    assert_eq!(processes_with(&["terraform-provider-minato"]), Vec::<u32>::new());
    let log = terraform.log();
    assert!(log.contains("minato_cluster"), "the log is empty");
    for secret in ["PRIVATE KEY", "client-key-data"] {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
    quick.down();
    assert!(!quick.root().exists());
}

fn scale(terraform: &Terraform, kubectl: &Kubectl) {
    let two = node_names(kubectl);
    terraform.apply(&["-var", "nodes=3"]);
    let three = node_names(kubectl);
    assert_eq!(three.len(), 3, "{three:?}");
    assert!(two.iter().all(|node| three.contains(node)), "{two:?}, {three:?}");
    terraform.plan(EMPTY, &["-var", "nodes=3"]);
    terraform.apply(&["-var", "nodes=1"]);
    eventually("one node is left", || match node_names(kubectl).as_slice() {
        [node] if three.contains(node) => Ok(()),
        nodes => Err(format!("{nodes:?}")),
    });
    terraform.plan(EMPTY, &["-var", "nodes=1"]);
}

/// What others change is seen and put right.
fn drift(terraform: &Terraform, quick: &QuickStart) {
    quick.fleet().run(&["scale", "nodepool", "workers", "--replicas=2"]);
    let plan = terraform.plan(CHANGES, &["-var", "nodes=1"]);
    assert!(plan.contains("~ replicas = 2 -> 1"), "{plan}");
    quick.fleet().run(&["label", "cluster", "example", "by=hand"]);
    let plan = terraform.plan(CHANGES, &["-var", "nodes=1"]);
    assert!(plan.contains(r#"- "by" = "hand" -> null"#), "{plan}");
    terraform.apply(&["-var", "nodes=1", "-var", "labels={team=\"a\"}"]);
    let labels = quick
        .fleet()
        .run(&["get", "cluster", "example", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels, r#"{"team":"a"}"#);
    terraform.apply(&["-var", "nodes=1"]);
    terraform.plan(EMPTY, &["-var", "nodes=1"]);
    // What others delete is made again.
    quick.fleet().run(&["delete", "nodepool", "workers"]);
    let plan = terraform.plan(CHANGES, &["-var", "nodes=1"]);
    assert!(plan.contains("Plan: 1 to add, 0 to change, 0 to destroy."), "{plan}");
    terraform.apply(&["-var", "nodes=1"]);
}

/// What is forgotten is found again, by its name or its id.
fn import(terraform: &Terraform) {
    terraform.run(&["state", "rm", "minato_node_pool.workers", "minato_cluster.this"]);
    let output = terraform.try_run(&["apply", "-auto-approve", "-no-color", "-var", "nodes=1"]);
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("import it under the id default/example"),
        "{text}"
    );
    terraform.run(&["import", "-no-color", "minato_cluster.this", "default/example"]);
    terraform.run(&["import", "-no-color", "minato_node_pool.workers", "workers"]);
    terraform.plan(EMPTY, &["-var", "nodes=1"]);
    let output = terraform.try_run(&["import", "-no-color", "minato_cluster.other", "nowhere"]);
    assert!(!output.status.success(), "{}", said(&output));
}

/// What cannot be is told before anything is done, and where it is asked for.
fn refusals(terraform: &Terraform) {
    let plan = terraform.plan(1, &["-var", "nodes=1", "-var", "kubernetes_version=1.12"]);
    assert!(
        plan.contains("spec.version") && plan.contains("version = var.kubernetes_version"),
        "{plan}"
    );
    let plan = terraform.plan(1, &["-var", "nodes=-1"]);
    assert!(
        plan.contains("whole number") && plan.contains("replicas = var.nodes"),
        "{plan}"
    );
    // Names cannot change: another cluster and another pool.
    let plan = terraform.plan(CHANGES, &["-var", "nodes=1", "-var", "name=other"]);
    assert!(plan.contains("Plan: 2 to add, 0 to change, 2 to destroy."), "{plan}");
    // What does not become ready is told with its reasons, and made anew next time.
    let lonely = terraform.directory.path().join("lonely.tf");
    let text = r#"resource "minato_node_pool" "lonely" {
      cluster  = "nowhere"
      name     = "lonely"
      replicas = 1
      timeouts = { create = "2s" }
    }"#;
    std::fs::write(&lonely, text).unwrap();
    let output = terraform.try_run(&["apply", "-auto-approve", "-no-color", "-var", "nodes=1"]);
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("there is no Cluster \"nowhere\""),
        "{text}"
    );
    std::fs::remove_file(&lonely).unwrap();
    terraform.apply(&["-var", "nodes=1"]);
}
