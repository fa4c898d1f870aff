//! The node's pod network: a CNI configuration made of the range that the control plane gave the node.
//!
//! Each pod gets a point-to-point link (`ptp`) and an address of the node's range (`host-local`); `portmap` serves
//! hostPorts. Other nodes' pods are reached by the cloud's routes, and masquerading is the service proxy's.
//! Source: <https://www.cni.dev/docs/spec/>.

use std::io::Write;
use std::path::Path;

use ipnet::IpNet;
use minato_api::k8s::core::v1::Node;
use serde_json::json;

const FILE: &str = "10-minato.conflist";

/// The ranges of addresses for the node's pods, at most one per address family.
pub(crate) fn pod_ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    let mut ranges: Vec<IpNet> = Vec::new();
    for range in all.filter_map(|text| text.parse::<IpNet>().ok()) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

fn config(ranges: &[IpNet]) -> String {
    let sets: Vec<_> = ranges
        .iter()
        .map(|range| json!([{"subnet": range.to_string()}]))
        .collect();
    let default_route = |range: &IpNet| match range {
        IpNet::V4(_) => json!({"dst": "0.0.0.0/0"}),
        IpNet::V6(_) => json!({"dst": "::/0"}),
    };
    let routes: Vec<_> = ranges.iter().map(default_route).collect();
    let config = json!({
        "cniVersion": "0.4.0",
        "name": "minato",
        "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": sets, "routes": routes}},
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    });
    format!("{config:#}\n")
}

/// Writes the configuration, unless there is no range yet or it is there already.
pub(crate) fn write(directory: &Path, ranges: &[IpNet]) -> std::io::Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let text = config(ranges);
    let path = directory.join(FILE);
    if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(&path).map_err(|error| error.error)?;
    tracing::info!(path = %path.display(), ?ranges, "wrote the CNI configuration");
    Ok(())
}
