//! The network of the instances: one namespace as router, a veth to each instance and one to the host.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net};
use tokio::process::Command;

use super::{LocalError, io};
use crate::state::{CloudState, Instance};

/// Runs a command and returns what it printed.
pub(super) async fn run(program: &str, arguments: &[&str]) -> Result<String, LocalError> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .map_err(io(format!("running {}", command())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LocalError::Command {
        command: command(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Says what this machine lacks for local mode, before anything is touched.
///
/// # Errors
/// [`LocalError::Unsupported`] naming what is missing and how to mend it.
pub fn check_host() -> Result<(), LocalError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LocalError::Unsupported(
            "the local mock cloud makes network namespaces and cgroups: run it as root".to_owned(),
        ));
    }
    let tools = [
        ("ip", "iproute2"),
        ("nft", "nftables"),
        ("nsenter", "util-linux"),
        ("unshare", "util-linux"),
        ("containerd", "containerd"),
        ("runc", "runc"),
    ];
    let missing: Vec<&str> = tools
        .iter()
        .filter(|(tool, _)| !in_path(tool))
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        return Err(LocalError::Unsupported(format!(
            "missing programs: install the packages {}",
            missing.join(", ")
        )));
    }
    for (path, what) in [
        ("/proc/self/ns/net", "network namespaces"),
        ("/proc/self/ns/cgroup", "cgroup namespaces"),
    ] {
        if !Path::new(path).exists() {
            return Err(LocalError::Unsupported(format!("this kernel has no {what}")));
        }
    }
    Ok(())
}

fn in_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).is_file())
}

/// A /16 in private space that no route of this machine touches.
///
/// # Errors
/// The routing table cannot be read, or nothing is free.
pub async fn free_network() -> Result<Ipv4Net, LocalError> {
    let routes = run("ip", &["-4", "-o", "route", "show", "table", "all"]).await?;
    let taken: Vec<Ipv4Net> = routes
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.contains('.')))
        .filter_map(|word| {
            word.parse::<Ipv4Net>()
                .ok()
                .or_else(|| word.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
        })
        .collect();
    (77..=99u8)
        .filter_map(|second| Ipv4Net::new(Ipv4Addr::new(10, second, 0, 0), 16).ok())
        .find(|candidate| {
            !taken
                .iter()
                .any(|t| t.prefix_len() > 0 && (candidate.contains(t) || t.contains(candidate)))
        })
        .ok_or_else(|| LocalError::Unsupported("no free network between 10.77.0.0/16 and 10.99.0.0/16".to_owned()))
}

/// Names and addresses of the network.
#[derive(Debug, Clone)]
pub(super) struct Network {
    prefix: String,
    namespace: String,
    path: PathBuf,
}

impl Network {
    /// Makes the router's namespace, its bridge and the host's link, unless they are there.
    pub(super) async fn ensure(prefix: &str, state: &CloudState) -> Result<Self, LocalError> {
        let namespace = format!("{prefix}-vpc");
        let path = PathBuf::from("/run/netns").join(&namespace);
        let network = Self {
            prefix: prefix.to_owned(),
            namespace,
            path,
        };
        if !network.path.exists() {
            run("ip", &["netns", "add", &network.namespace]).await?;
        }
        let gateway = format!("{}/{}", state.gateway(), state.network.prefix_len());
        if network.inside(&["link", "show", "br0"]).await.is_err() {
            network.inside(&["link", "set", "lo", "up"]).await?;
            network.inside(&["link", "add", "br0", "type", "bridge"]).await?;
            network.inside(&["addr", "add", &gateway, "dev", "br0"]).await?;
            // The metadata service's address, as in real clouds.
            network
                .inside(&["addr", "add", "169.254.169.254/32", "dev", "br0"])
                .await?;
            network.inside(&["link", "set", "br0", "up"]).await?;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter";
        run(
            "nsenter",
            &[&format!("--net={}", network.path.display()), "sh", "-c", forward],
        )
        .await?;
        network.ensure_host_link(state).await?;
        Ok(network)
    }

    async fn ensure_host_link(&self, state: &CloudState) -> Result<(), LocalError> {
        let (outside, inside) = (self.host_link(), format!("{}vh", self.prefix));
        if run("ip", &["link", "show", &outside]).await.is_ok() {
            return Ok(());
        }
        run(
            "ip",
            &[
                "link",
                "add",
                &outside,
                "type",
                "veth",
                "peer",
                "name",
                &inside,
                "netns",
                &self.namespace,
            ],
        )
        .await?;
        self.inside(&["link", "set", &inside, "master", "br0", "up"]).await?;
        let address = format!("{}/{}", state.host_address(), state.network.prefix_len());
        run("ip", &["addr", "add", &address, "dev", &outside]).await?;
        run("ip", &["link", "set", &outside, "up"]).await?;
        Ok(())
    }

    fn host_link(&self) -> String {
        format!("{}h", self.prefix)
    }

    /// Path of the router's namespace.
    pub(super) fn namespace(&self) -> &Path {
        &self.path
    }

    /// Name of an instance's namespace.
    pub(super) fn instance_namespace(&self, id: &str) -> String {
        format!("{}-{id}", self.prefix)
    }

    /// `ip` inside the router's namespace.
    pub(super) async fn inside(&self, arguments: &[&str]) -> Result<String, LocalError> {
        let mut all = vec!["-n", self.namespace.as_str()];
        all.extend_from_slice(arguments);
        run("ip", &all).await
    }

    /// The instance's namespace with `eth0`, its address and its default route.
    pub(super) async fn ensure_instance(&self, state: &CloudState, instance: &Instance) -> Result<(), LocalError> {
        let namespace = self.instance_namespace(&instance.id);
        if !Path::new("/run/netns").join(&namespace).exists() {
            run("ip", &["netns", "add", &namespace]).await?;
        }
        let inside = |arguments: &[&str]| {
            let mut all = vec!["-n".to_owned(), namespace.clone()];
            all.extend(arguments.iter().map(|s| (*s).to_owned()));
            async move { run("ip", &all.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        if inside(&["link", "show", "eth0"]).await.is_err() {
            // Interface names have 15 characters at most: the id's digits suffice.
            let port = format!("v{}", instance.id.trim_start_matches("i-"));
            let _ = self.inside(&["link", "del", &port]).await;
            self.inside(&[
                "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &namespace,
            ])
            .await?;
            self.inside(&["link", "set", &port, "master", "br0", "up"]).await?;
        }
        inside(&["link", "set", "lo", "up"]).await?;
        inside(&[
            "addr",
            "replace",
            &format!("{}/{}", instance.ip, state.network.prefix_len()),
            "dev",
            "eth0",
        ])
        .await?;
        inside(&["link", "set", "eth0", "up"]).await?;
        inside(&["route", "replace", "default", "via", &state.gateway().to_string()]).await?;
        Ok(())
    }

    /// Takes the instance's namespace away.
    pub(super) async fn remove_instance(&self, instance: &Instance) -> Result<(), LocalError> {
        let namespace = self.instance_namespace(&instance.id);
        if Path::new("/run/netns").join(&namespace).exists() {
            run("ip", &["netns", "del", &namespace]).await?;
        }
        Ok(())
    }

    /// Makes the router's table hold exactly the cloud's routes (marked by their protocol number).
    pub(super) async fn apply_routes(&self, state: &CloudState) -> Result<(), LocalError> {
        const PROTOCOL: &str = "77";
        let listed = self.inside(&["-4", "-o", "route", "show", "proto", PROTOCOL]).await?;
        let mut present: Vec<(String, String)> = listed
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words.as_slice() {
                    [destination, "via", hop, ..] => Some(((*destination).to_owned(), (*hop).to_owned())),
                    _ => None,
                }
            })
            .collect();
        for (_, route) in &state.routes {
            let hop = route.target.as_ref().and_then(|target| {
                let id = target.as_str().rsplit('/').next()?;
                state.instances.get(id).map(|i| i.ip)
            });
            let (IpNet::V4(destination), Some(hop)) = (route.destination, hop) else {
                continue;
            };
            let wanted = (destination.to_string(), hop.to_string());
            if let Some(at) = present.iter().position(|p| *p == wanted) {
                present.swap_remove(at);
            } else {
                present.retain(|(destination, _)| *destination != wanted.0);
                self.inside(&["route", "replace", &wanted.0, "via", &wanted.1, "proto", PROTOCOL])
                    .await?;
            }
        }
        for (destination, _) in present {
            self.inside(&["route", "del", &destination, "proto", PROTOCOL]).await?;
        }
        Ok(())
    }
}

/// Removes every namespace and link of this prefix.
pub(super) async fn purge(prefix: &str) -> Result<(), LocalError> {
    let mut first = Ok(());
    let names: Vec<String> = match std::fs::read_dir("/run/netns") {
        Ok(entries) => entries
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect(),
        Err(_) => Vec::new(),
    };
    for name in names.iter().filter(|n| n.starts_with(&format!("{prefix}-"))) {
        first = first.and(run("ip", &["netns", "del", name]).await.map(|_| ()));
    }
    let link = format!("{prefix}h");
    if run("ip", &["link", "show", &link]).await.is_ok() {
        // Gone already when its peer's namespace went first, which may take the kernel a moment.
        match run("ip", &["link", "del", &link]).await {
            Err(error) if run("ip", &["link", "show", &link]).await.is_ok() => first = first.and(Err(error)),
            _ => {}
        }
    }
    first
}
