//! A quick start of one's own for end-to-end tests: the built programs, run as a person would run them.
//!
//! A dev-dependency in spirit: only tests use it. Needs root and what `tests/install-deps.sh` installs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use minato_provider_mock::state::CloudState;

/// How long anything may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running quick start. Dropping it takes it down.
pub struct QuickStart {
    directory: tempfile::TempDir,
}

/// Programs of the quick start, built beside this test.
fn programs() -> PathBuf {
    static BUILD: Once = Once::new();
    let here = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>
    let directory = here.parent().and_then(Path::parent).unwrap().to_owned();
    BUILD.call_once(|| {
        let packages = [
            "minato",
            "minato-bootstrap",
            "minato-kubelet",
            "minato-kube-proxy",
            "minato-dns",
        ];
        let arguments = packages.iter().flat_map(|package| ["--package", package]);
        let status = Command::new("cargo").args(["build", "--bins"]).args(arguments).status();
        let status = status.expect("cargo runs");
        assert!(status.success(), "building the programs failed");
    });
    directory
}

impl QuickStart {
    /// `minato up` in a directory of its own.
    pub fn up(arguments: &[&str]) -> Self {
        let this = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let output = this.minato("up", arguments);
        assert!(output.status.success(), "{}", said(&output));
        this
    }

    fn minato(&self, command: &str, arguments: &[&str]) -> Output {
        let mut minato = Command::new(programs().join("minato"));
        minato.arg(command).arg("--directory").arg(self.root()).args(arguments);
        minato.stdin(Stdio::null()).output().expect("minato runs")
    }

    /// `minato up` again.
    pub fn up_again(&self) {
        let output = self.minato("up", &[]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// `minato down`.
    pub fn down(&self) {
        let output = self.minato("down", &[]);
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Where everything is kept.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("minato")
    }

    /// Runs kubectl as the tenant's admin, with this as its input; panics unless it succeeds.
    pub fn kubectl_with(&self, input: &[u8], arguments: &[&str]) -> String {
        let output = self.try_kubectl("kubeconfig", input, arguments);
        assert!(output.status.success(), "kubectl {arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same without input.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(&[], arguments)
    }

    /// Runs kubectl with one of the two kubeconfigs.
    pub fn try_kubectl(&self, kubeconfig: &str, input: &[u8], arguments: &[&str]) -> Output {
        use std::io::Write;
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.root().join(kubeconfig))
            .arg("--cache-dir")
            .arg(self.directory.path().join("cache"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl is installed");
        // A command that does not read its input closes it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs kubectl until its output is as wanted.
    pub fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        eventually(&format!("kubectl {arguments:?}"), || {
            let output = self.try_kubectl("kubeconfig", &[], arguments);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && wanted(&text) {
                Ok(text)
            } else {
                Err(said(&output))
            }
        })
    }

    /// What the mock cloud has on disk.
    pub fn cloud(&self) -> CloudState {
        let bytes = std::fs::read(self.root().join("cloud/cloud.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Ids of the instances that are not terminated.
    pub fn instances(&self) -> Vec<String> {
        let log = |id: &String| self.root().join("cloud/instances").join(id).exists();
        self.cloud().instances.into_keys().filter(log).collect()
    }

    /// Network namespaces of the instances, found by the processes that live there.
    pub fn namespaces(&self) -> Vec<String> {
        use std::os::unix::fs::MetadataExt;
        let inode = |path: PathBuf| std::fs::metadata(path).map(|metadata| metadata.ino()).ok();
        let of_instance = |id: &String| {
            let record = self.root().join("cloud/instances").join(id).join("process.json");
            let record: serde_json::Value = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
            inode(PathBuf::from(format!("/proc/{}/ns/net", record["pid"])))
        };
        let ours: Vec<u64> = self.instances().iter().filter_map(of_instance).collect();
        let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let named = all.filter(|entry| inode(entry.path()).is_some_and(|inode| ours.contains(&inode)));
        named
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Numbers of the processes whose command line holds both texts.
    pub fn processes(&self, program: &str) -> Vec<u32> {
        processes_with(&[program, &self.directory.path().display().to_string()])
    }

    /// Processes of instances have paths of their own: these are found by their network namespace's inhabitants.
    pub fn processes_on_nodes(&self, program: &str) -> Vec<u32> {
        let mut found = Vec::new();
        for namespace in self.namespaces() {
            let output = Command::new("ip").args(["netns", "pids", &namespace]).output().unwrap();
            for pid in String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(|line| line.trim().parse::<u32>().ok())
            {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim() == program {
                    found.push(pid);
                }
            }
        }
        found
    }
}

impl Drop for QuickStart {
    fn drop(&mut self) {
        if self.root().exists() {
            let output = self.minato("down", &[]);
            if !output.status.success() {
                eprintln!("taking the quick start down failed: {}", said(&output));
            }
        }
    }
}

/// Processes whose command lines hold all of the texts.
pub fn processes_with(texts: &[&str]) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_string_lossy().parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (pid != std::process::id() && texts.iter().all(|text| line.contains(text))).then_some(pid)
    })
    .collect()
}

/// Ends a process as a crash would.
pub fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success(), "process {pid} is gone already");
}

/// Gets a page over HTTP by curl, from a network namespace if one is named; `None` when there is no answer.
pub fn curl(namespace: Option<&str>, url: &str) -> Option<String> {
    let mut command = match namespace {
        None => Command::new("curl"),
        Some(namespace) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace, "curl"]);
            command
        }
    };
    let output = command
        .args(["-s", "-f", "--max-time", "2", url])
        .output()
        .expect("curl runs");
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Tries until it succeeds; what it is about is other processes, which give no signal.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(why) => assert!(
                Instant::now() < deadline,
                "{what} did not come true in {PATIENCE:?}: {why}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Everything that a command printed.
pub fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
