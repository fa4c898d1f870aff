//! The mounts of an instance that shares its machine's file system: what it writes stays in its own directory or memory.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Where an instance sees what it was given, whatever path that has outside.
const STATE: &str = "/run/minato/state";
const IMAGES: &str = "/run/minato/images";
const OVERLAYS: &str = "/run/minato/overlays";

/// Directories that are kept over restarts.
const KEPT: &[&str] = &["/var/lib/cni", "/var/lib/kubelet", "/var/lib/containerd", "/var/log"];

/// The given directories as the instance sees them.
pub(crate) struct Mounted {
    pub(crate) state: PathBuf,
    pub(crate) images: Option<PathBuf>,
}

fn directory(path: impl AsRef<Path>) -> anyhow::Result<()> {
    let path = path.as_ref();
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

fn bind(from: &Path, to: &str) -> anyhow::Result<()> {
    directory(to)?;
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("binding {} to {to}", from.display()))
}

fn fresh(kind: &str, to: &str, options: &str) -> anyhow::Result<()> {
    directory(to)?;
    let options = Some(options).filter(|options| !options.is_empty());
    mount(Some(kind), to, Some(kind), MsFlags::empty(), options).with_context(|| format!("mounting {kind} on {to}"))
}

/// Makes them. The process has its mount, process and cgroup namespaces already, and `/proc` of its own.
pub(crate) fn make(state: &Path, images: Option<&Path>) -> anyhow::Result<Mounted> {
    let everything = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, everything, None::<&str>).context("keeping mounts private")?;
    // The state directory may lie below what is about to be covered.
    let (state, images) = (
        std::fs::File::open(state)?,
        images.map(std::fs::File::open).transpose()?,
    );
    let opened = |file: &std::fs::File| {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    };
    fresh("tmpfs", "/run", "mode=755")?;
    bind(&opened(&state), STATE)?;
    if let Some(images) = &images {
        bind(&opened(images), IMAGES)?;
    }
    for covered in ["/etc", "/var"] {
        let scratch = format!("{OVERLAYS}{covered}");
        let (upper, work) = (format!("{scratch}/upper"), format!("{scratch}/work"));
        directory(&upper)?;
        directory(&work)?;
        fresh(
            "overlay",
            covered,
            &format!("lowerdir={covered},upperdir={upper},workdir={work}"),
        )?;
    }
    for kept in KEPT {
        let own = PathBuf::from(format!("{STATE}/root{kept}"));
        directory(&own)?;
        bind(&own, kept)?;
    }
    let shared = MsFlags::MS_SHARED;
    mount(None::<&str>, "/var/lib/kubelet", None::<&str>, shared, None::<&str>)
        .context("sharing the kubelet's mounts")?;
    // Runtimes find cgroups by the list of mounts, in which what is only covered still is: exec would look for a
    // container's groups where they cannot be seen.
    umount2("/sys", MntFlags::MNT_DETACH).context("detaching /sys")?;
    fresh("sysfs", "/sys", "")?;
    cgroups()?;
    network()?;
    Ok(Mounted {
        state: PathBuf::from(STATE),
        images: images.map(|_| PathBuf::from(IMAGES)),
    })
}

/// The instance's cgroups as if it were alone: the cgroup namespace makes its own group the root of each hierarchy. Of the
/// hybrid layout the second version is hidden: low-level runtimes take it for the only one.
fn cgroups() -> anyhow::Result<()> {
    let own = std::fs::read_to_string("/proc/self/cgroup").context("reading the cgroups")?;
    let first: Vec<&str> = own
        .lines()
        .filter_map(|line| line.split(':').nth(1))
        .filter(|controllers| !controllers.is_empty())
        .collect();
    if first.iter().all(|controllers| controllers.starts_with("name=")) {
        return fresh("cgroup2", "/sys/fs/cgroup", "");
    }
    fresh("tmpfs", "/sys/fs/cgroup", "mode=755")?;
    for controllers in first {
        let name = controllers.strip_prefix("name=");
        let to = format!("/sys/fs/cgroup/{}", name.unwrap_or(controllers));
        let options = name.map_or_else(|| controllers.to_owned(), |name| format!("none,name={name}"));
        directory(&to)?;
        mount(
            Some("cgroup"),
            to.as_str(),
            Some("cgroup"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .with_context(|| format!("mounting the cgroup controllers {controllers}"))?;
    }
    Ok(())
}

fn network() -> anyhow::Result<()> {
    let status = std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    anyhow::ensure!(
        status.context("running ip (package iproute2)")?.success(),
        "bringing up the loopback interface failed"
    );
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("turning on forwarding")
}

/// Sets the host's name, and lets it resolve to itself.
pub(crate) fn name_host(name: &str) -> anyhow::Result<()> {
    nix::unistd::sethostname(name).context("setting the host's name")?;
    let hosts = std::fs::read_to_string("/etc/hosts");
    let hosts = match hosts {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        other => other.context("reading /etc/hosts")?,
    };
    let line = format!("127.0.1.1 {name}\n");
    if !hosts.contains(&line) {
        std::fs::write("/etc/hosts", format!("{hosts}{line}")).context("writing /etc/hosts")?;
        std::fs::set_permissions("/etc/hosts", std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}
