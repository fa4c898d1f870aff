//! A quick start of one's own for end-to-end tests: the built programs, run as a person would run them.
//!
//! A dev-dependency in spirit: only tests use it. Needs root and what `tests/install-deps.sh` installs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use minato_provider_interface::ClusterId;
use minato_provider_mock::call::{Call, Endpoint as _, Reply};
use minato_provider_mock::remote::RemoteCloud;
use minato_provider_mock::state::CloudState;
pub use minato_test_support::{Kubectl, said};

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
            "terraform-provider-minato",
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

    /// kubectl as the tenant's admin.
    pub fn tenant(&self) -> Kubectl {
        Kubectl::new(&self.root().join("kubeconfig"), &self.directory.path().join("cache"))
    }

    /// kubectl as the operator of the management plane.
    pub fn fleet(&self) -> Kubectl {
        Kubectl::new(
            &self.root().join("fleet.kubeconfig"),
            &self.directory.path().join("cache"),
        )
    }

    /// Runs kubectl as the tenant's admin; panics unless it succeeds.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.tenant().run(arguments)
    }

    /// Runs kubectl as the tenant's admin until its output is as wanted.
    pub fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        until(&self.tenant(), arguments, wanted)
    }

    /// What the mock cloud has on disk.
    pub fn cloud(&self) -> CloudState {
        let bytes = std::fs::read(self.root().join("cloud/cloud.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Asks something of the mock cloud, as a person at its console would.
    pub fn at_the_console(&self, cluster: &ClusterId, call: Call) -> Reply {
        let cloud = self.root().join("cloud");
        let token = std::fs::read_to_string(cloud.join("token")).unwrap();
        let remote = RemoteCloud::new(cloud.join("api.sock"), token.trim());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(remote.call(cluster, call)).unwrap()
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
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the process still runs");
}

/// Runs kubectl until its output is as wanted.
pub fn until(kubectl: &Kubectl, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    eventually(&format!("kubectl {arguments:?}"), || {
        let output = kubectl.try_run(&[], arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && wanted(&text) {
            Ok(text)
        } else {
            Err(said(&output))
        }
    })
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
pub fn eventually<T>(what: &str, attempt: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(PATIENCE, what, attempt)
}

/// The same with another patience, for what takes its time by design.
pub fn eventually_within<T>(patience: Duration, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(why) => assert!(
                Instant::now() < deadline,
                "{what} did not come true in {patience:?}: {why}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
