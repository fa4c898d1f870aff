//! A node on this machine: namespaces and cgroups of its own, with a real containerd as its first process's child.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};

use crate::images;

/// Waits until `probe` gives something; `what` names it when it does not within `limit`.
///
/// # Panics
/// After `limit`.
pub async fn until<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How a node is made.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Names the network namespace and cgroup; unique on this machine, at most 12 characters.
    pub name: String,
    /// Where compiled helpers are kept between runs.
    pub cache: PathBuf,
}

/// A running node. Dropping it ends all its processes and removes what it made.
pub struct TestNode {
    name: String,
    directory: tempfile::TempDir,
    init: Child,
    /// The first process inside, as the host numbers it.
    inner: u32,
}

const CONTAINERD: &str = r#"
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "minato.dev/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#;

/// Joins a cgroup of its own in each hierarchy, then enters the namespaces. Arguments: cgroup, netns, program, argument.
const LAUNCH: &str = r#"
set -eu
group=$1 netns=$2
shift 2
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$group"
  echo $$ > "/sys/fs/cgroup/$group/cgroup.procs"
else
  for c in /sys/fs/cgroup/*/; do
    case $c in */unified/) continue ;; esac
    [ -e "$c/cgroup.procs" ] || continue
    mkdir -p "$c/$group"
    for f in cpuset.cpus cpuset.mems; do
      [ ! -e "$c/$group/$f" ] || cat "$c/$f" > "$c/$group/$f"
    done
    echo $$ > "$c/$group/cgroup.procs"
  done
fi
exec nsenter --net="$netns" unshare --mount --uts --ipc --cgroup --pid --fork --kill-child --mount-proc "$@"
"#;

/// The node's first process. Argument: the node's directory.
const INIT: &str = r#"
set -eu
dir=$1
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/cni /var/lib/kubelet /var/lib/containerd /etc/cni
for d in /var/lib/cni /var/lib/kubelet /var/lib/containerd /var/log /etc/cni; do
  mkdir -p "$dir/root$d"
  mount --bind "$dir/root$d" "$d"
done
mount --make-shared /var/lib/kubelet
mkdir -p /etc/cni/net.d
# Runtimes read the list of mounts: what is only covered would still be in it.
umount -l -R /sys
mount -t sysfs sysfs /sys
if [ -e "$dir/cgroup2" ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs tmpfs /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    case $controllers in '') continue ;; esac
    mkdir -p "/sys/fs/cgroup/${controllers#name=}"
    case $controllers in name=*) options=none,$controllers ;; *) options=$controllers ;; esac
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/${controllers#name=}"
  done < /proc/self/cgroup
fi
hostname "$(basename "$dir")" 2>/dev/null || true
ip link set lo up
ip addr add 192.0.2.10/32 dev lo
echo 1 > /proc/sys/net/ipv4/ip_forward
while :; do
  status=0
  containerd --config "$dir/containerd.toml" >> "$dir/containerd.log" 2>&1 || status=$?
  echo "containerd ended with $status" >> "$dir/containerd.log"
done
"#;

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {text}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl TestNode {
    /// Starts a node with containerd ready and the busybox and pause images in it.
    ///
    /// # Errors
    /// Not root, or a package that `tests/install-deps.sh` installs is missing.
    pub fn start(config: &NodeConfig) -> Result<Self> {
        let NodeConfig { name, cache } = config;
        let directory = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?;
        std::fs::write(directory.path().join("containerd.toml"), CONTAINERD)?;
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            std::fs::write(directory.path().join("cgroup2"), "")?;
        }
        run(Command::new("ip").args(["netns", "add", name]))?;
        let init = Command::new("sh")
            .args([
                "-c",
                LAUNCH,
                "launch",
                &format!("minato-test-{name}"),
                &format!("/run/netns/{name}"),
                "sh",
                "-c",
                INIT,
                "init",
            ])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("init.log"))?)
            .spawn()
            .context("starting the node's processes")?;
        let mut node = Self {
            name: name.clone(),
            directory,
            init,
            inner: 0,
        };
        node.inner = node.wait_for_init()?;
        node.wait_for_containerd()?;
        node.import(&images::pause(images::PAUSE, cache)?)?;
        node.import(&images::busybox(images::BUSYBOX)?)?;
        Ok(node)
    }

    fn log(&self) -> String {
        let read = |name| std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        read("init.log") + &read("containerd.log")
    }

    fn wait_for(&mut self, what: &str, mut probe: impl FnMut(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !probe(self) {
            if self.init.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the node has no {what}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn wait_for_init(&mut self) -> Result<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.init.id());
        let command = format!("/proc/{}/comm", self.init.id());
        let mut inner = None;
        self.wait_for("first process", |_| {
            // Before it becomes `unshare`, the launching shell has other children.
            if std::fs::read_to_string(&command).unwrap_or_default().trim() != "unshare" {
                return false;
            }
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            inner = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            inner.is_some()
        })?;
        inner.context("no first process")
    }

    fn wait_for_containerd(&mut self) -> Result<()> {
        self.wait_for("containerd", |node| {
            let mut command = node.command("ctr");
            command.args(["--connect-timeout", "1s", "plugins", "ls"]);
            let output = command.output();
            output.is_ok_and(|o| o.status.success() && String::from_utf8_lossy(&o.stdout).contains("cri"))
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's own files; its `/var/lib/kubelet` is `root/var/lib/kubelet` below it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The runtime's socket, as seen inside the node.
    pub const SOCKET: &str = "/run/containerd/containerd.sock";

    /// An address of the node, inside it.
    pub const ADDRESS: &str = "192.0.2.10";

    /// A command that runs inside the node: its namespaces, mounts and cgroup.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("sh");
        let join = r#"group=$1 pid=$2; shift 2
            for c in /sys/fs/cgroup /sys/fs/cgroup/*; do [ ! -e "$c/$group/cgroup.procs" ] || echo $$ > "$c/$group/cgroup.procs"; done
            exec nsenter --target="$pid" --mount --uts --ipc --net --pid --cgroup -- "$@""#;
        command
            .args([
                "-c",
                join,
                "enter",
                &format!("minato-test-{}", self.name),
                &self.inner.to_string(),
            ])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Loads an OCI archive into the runtime.
    ///
    /// # Errors
    /// The runtime refuses it.
    pub fn import(&self, archive: &[u8]) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.directory.path())?;
        std::fs::write(file.path(), archive)?;
        run(self
            .command("ctr")
            .args(["-n", "k8s.io", "images", "import"])
            .arg(file.path()))?;
        Ok(())
    }

    /// Runs `make` on a thread that is in the node's network; sockets made there stay there.
    fn in_network<T: Send>(&self, make: impl FnOnce() -> std::io::Result<T> + Send) -> Result<T> {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
                Ok(make()?)
            });
            thread.join().expect("the closure does not panic")
        })
    }

    /// A listener inside the node's network. Needs a tokio runtime.
    ///
    /// # Errors
    /// The address is taken.
    pub fn listen(&self, address: SocketAddr) -> Result<tokio::net::TcpListener> {
        let listener = self.in_network(move || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        Ok(tokio::net::TcpListener::from_std(listener)?)
    }

    /// A connection made from inside the node's network. Needs a tokio runtime.
    ///
    /// # Errors
    /// Nothing listens there.
    pub fn connect(&self, address: SocketAddr) -> Result<tokio::net::TcpStream> {
        let stream = self.in_network(move || {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })?;
        Ok(tokio::net::TcpStream::from_std(stream)?)
    }

    /// Passes connections to `inside` (in the node's network) on to `outside` (in this one), until the runtime ends.
    ///
    /// # Errors
    /// The address is taken.
    pub fn forward(&self, inside: SocketAddr, outside: SocketAddr) -> Result<()> {
        let listener = self.listen(inside)?;
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut server) = tokio::net::TcpStream::connect(outside).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(())
    }

    fn remove_cgroups(&self) {
        let root = Path::new("/sys/fs/cgroup");
        let group = format!("minato-test-{}", self.name);
        let mut bases = vec![root.join(&group)];
        if let Ok(entries) = std::fs::read_dir(root) {
            bases.extend(entries.flatten().map(|entry| entry.path().join(&group)));
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        for base in bases.into_iter().filter(|base| base.is_dir()) {
            while remove_tree(&base).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    std::fs::remove_dir(path)
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("containerd of {}:\n{}", self.name, self.log());
        }
        // Its end ends everything inside: `unshare --kill-child`.
        let _ = self.init.kill();
        let _ = self.init.wait();
        let gone = Instant::now() + Duration::from_secs(10);
        while self.inner != 0 && Path::new(&format!("/proc/{}", self.inner)).exists() && Instant::now() < gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.remove_cgroups();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
