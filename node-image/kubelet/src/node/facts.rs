//! What the machine is and has, read from the kernel.

use std::path::Path;

use minato_api::k8s::core::v1::NodeSystemInfo;
use nix::sys::statvfs::statvfs;

/// What the node has for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) milli_cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
    /// Bytes.
    pub(crate) storage: i64,
    pub(crate) pods: u32,
}

/// Facts that do not change while the kubelet runs.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) capacity: Capacity,
    pub(crate) info: NodeSystemInfo,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Bytes of memory: the machine's, or less if the node is confined to less.
fn memory() -> i64 {
    let meminfo = read("/proc/meminfo");
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<i64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024));
    let confined = [
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max",
    ]
    .iter()
    .filter_map(|path| read(path).parse::<i64>().ok());
    confined.fold(total, i64::min)
}

fn storage(root: &Path) -> i64 {
    let Ok(stat) = statvfs(root) else { return 0 };
    i64::try_from(stat.blocks().saturating_mul(stat.fragment_size())).unwrap_or(i64::MAX)
}

fn os_image() -> String {
    let release = read("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

impl Facts {
    /// Reads them; `root` is where pods' files go.
    pub(crate) fn read(root: &Path, pods: u32, runtime: &str) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let machine_id = read("/etc/machine-id");
        let system_uuid = read("/sys/class/dmi/id/product_uuid");
        let info = NodeSystemInfo {
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64".to_owned(),
                "aarch64" => "arm64".to_owned(),
                other => other.to_owned(),
            },
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            container_runtime_version: runtime.to_owned(),
            kernel_version: read("/proc/sys/kernel/osrelease"),
            kube_proxy_version: String::new(),
            kubelet_version: minato_api::GIT_VERSION.to_owned(),
            operating_system: "linux".to_owned(),
            os_image: os_image(),
            system_uuid: if system_uuid.is_empty() {
                machine_id.clone()
            } else {
                system_uuid
            },
            machine_id,
            ..NodeSystemInfo::default()
        };
        let capacity = Capacity {
            milli_cpu: i64::try_from(cpus).unwrap_or(1).saturating_mul(1000),
            memory: memory(),
            storage: storage(root),
            pods,
        };
        Self { capacity, info }
    }
}
