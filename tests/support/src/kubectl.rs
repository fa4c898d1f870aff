//! The real kubectl, as a person runs it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// kubectl with a kubeconfig and a discovery cache of its own.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// The machine's kubectl.
    pub fn new(kubeconfig: &Path, cache: &Path) -> Self {
        Self {
            program: "kubectl".into(),
            kubeconfig: kubeconfig.to_owned(),
            cache: cache.to_owned(),
        }
    }

    /// The same with the newest kubectl, which `tests/install-deps.sh` puts beside the checkout's other tools.
    pub fn newest(&self) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/kubectl/bin/kubectl");
        assert!(
            program.exists(),
            "{} is missing: run tests/install-deps.sh",
            program.display()
        );
        Self {
            program,
            cache: self.cache.with_extension("newest"),
            ..self.clone()
        }
    }

    /// The same with another kubeconfig.
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            ..self.clone()
        }
    }

    /// A command to be run, with its input and outputs piped.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end, whatever that is.
    pub fn try_run<S: AsRef<OsStr>>(&self, input: &[u8], arguments: &[S]) -> Output {
        let mut child = self.command(arguments).spawn().expect("kubectl is installed");
        // A command that does not read its input closes it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs a command that must succeed; returns what it printed.
    pub fn run_with<S: AsRef<OsStr> + std::fmt::Debug>(&self, input: &[u8], arguments: &[S]) -> String {
        let output = self.try_run(input, arguments);
        assert!(output.status.success(), "kubectl {arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same without input.
    pub fn run<S: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[S]) -> String {
        self.run_with(&[], arguments)
    }

    /// Runs a command to its end beside the runtime.
    pub async fn output(&self, input: &str, arguments: &[&str]) -> Output {
        let this = self.clone();
        let input = input.to_owned();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let run = tokio::task::spawn_blocking(move || this.try_run(input.as_bytes(), &arguments));
        run.await.unwrap()
    }

    /// Runs a command beside the runtime; returns whether it succeeded, and all that it printed.
    pub async fn said(&self, input: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.output(input, arguments).await;
        (output.status.success(), said(&output))
    }

    /// Runs a command that must succeed beside the runtime; returns its standard output.
    pub async fn ok(&self, input: &str, arguments: &[&str]) -> String {
        let output = self.output(input, arguments).await;
        assert!(output.status.success(), "kubectl {arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Everything that a command printed.
pub fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
