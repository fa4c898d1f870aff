//! A real etcd on loopback.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An etcd of one member with a directory of its own; dropping it ends it.
#[derive(Debug)]
pub struct Etcd {
    directory: tempfile::TempDir,
    ports: [u16; 2],
    certificates: Option<Certificates>,
    child: Option<Child>,
}

/// Files for TLS, all PEM. Clients must show a certificate by the same authority.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// Of the authority.
    pub authority: PathBuf,
    /// Of the server, good for `127.0.0.1`.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Etcd {
    /// Starts one without TLS, and waits until it serves.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Starts one that speaks TLS only.
    pub fn start_tls(certificates: Certificates) -> Self {
        Self::with(Some(certificates))
    }

    fn with(certificates: Option<Certificates>) -> Self {
        // Both held at once, so that they differ.
        let free = [0, 0].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
        let ports = free.map(|listener| listener.local_addr().unwrap().port());
        let mut this = Self {
            directory: tempfile::tempdir().unwrap(),
            ports,
            certificates,
            child: None,
        };
        this.run();
        this
    }

    /// Where clients connect.
    pub fn endpoint(&self) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    /// Starts it again after [`Etcd::kill`], with what it had on disk.
    pub fn run(&mut self) {
        let [client, peer] = self.ports;
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(self.directory.path().join("data"))
            .args(["--listen-client-urls", &self.endpoint()])
            .args(["--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.directory.path().join("log")).unwrap());
        if let Some(files) = &self.certificates {
            command.arg("--client-cert-auth");
            command.arg("--trusted-ca-file").arg(&files.authority);
            command.arg("--cert-file").arg(&files.certificate);
            command.arg("--key-file").arg(&files.key);
        }
        self.child = Some(command.spawn().expect("etcd is installed"));
        // It listens for clients once it serves them.
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", client)).is_err() {
            let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "etcd does not serve: {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
