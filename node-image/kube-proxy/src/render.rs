//! A Service's model as chains and elements, and the table that they hang in.
//!
//! ```text
//! prerouting, output ── service-ips {addr . proto . port} ──> service-… or external-… or firewall-…
//!                    └─ service-nodeports {proto . port} ──> external-…
//! service-…   picks a backend at random, or the one that the client had
//! external-…  marks for masquerading unless the client's address is to be kept
//! endpoint-…  marks a pod that reaches itself, and changes the destination
//! ```

use sha2::{Digest, Sha256};

use crate::model::{Backend, PortModel, ServiceModel};
use crate::table::{Rules, TABLE};

/// What all Services of a node share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// Range of all pods; from elsewhere, connections to cluster addresses are masqueraded.
    pub(crate) cluster_cidr: String,
    /// Addresses that a resolver on this node answers itself.
    pub(crate) local_addresses: Vec<String>,
}

/// Upstream's bit: others on the node know to leave it alone.
const MARK: &str = "0x4000";

/// The empty table with everything that is not about one Service. Replaces a table that is there, in one transaction.
///
/// Refusals come after destinations are changed (on output, priority -100): what still has a Service's address then has
/// no backend.
pub(crate) fn base(shared: &Shared) -> String {
    let local = if shared.local_addresses.is_empty() {
        String::new()
    } else {
        format!("elements = {{ {} }}", shared.local_addresses.join(", "))
    };
    let cluster = &shared.cluster_cidr;
    format!(
        "add table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  set local-addresses {{
    type ipv4_addr
    {local}
  }}
  set cluster-ips {{
    type ipv4_addr
  }}
  map service-ips {{
    type ipv4_addr . inet_proto . inet_service : verdict
  }}
  map service-nodeports {{
    type inet_proto . inet_service : verdict
  }}
  map no-endpoint-services {{
    type ipv4_addr . inet_proto . inet_service : verdict
  }}
  map no-endpoint-nodeports {{
    type inet_proto . inet_service : verdict
  }}
  chain mark-for-masquerade {{
    meta mark set meta mark or {MARK}
  }}
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    reject
  }}
  chain from-outside {{
    ip saddr != {cluster} jump mark-for-masquerade
  }}
  chain services {{
    ip daddr @local-addresses return
    ip daddr . meta l4proto . th dport vmap @service-ips
    fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
  }}
  chain without-endpoints {{
    ip daddr @local-addresses return
    ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
    ip daddr @cluster-ips goto refuse
  }}
  chain nat-prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    jump services
  }}
  chain nat-output {{
    type nat hook output priority -100; policy accept;
    jump services
  }}
  chain nat-postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    meta mark & {MARK} == 0 return
    meta mark set meta mark xor {MARK}
    masquerade fully-random
  }}
  chain filter-input {{
    type filter hook input priority -110; policy accept;
    ct state new jump without-endpoints
  }}
  chain filter-forward {{
    type filter hook forward priority -110; policy accept;
    ct state new jump without-endpoints
  }}
  chain filter-output {{
    type filter hook output priority -90; policy accept;
    ct state new jump without-endpoints
  }}
}}
"
    )
}

/// The rules of one Service.
pub(crate) fn service(model: &ServiceModel) -> Rules {
    let mut rules = Rules::default();
    for port in &model.ports {
        for address in &port.cluster_ips {
            rules.element("cluster-ips", address.to_string(), None);
        }
        internal(port, &mut rules);
        external(port, &mut rules);
    }
    rules
}

/// A short name that is the same for the same thing.
fn name(kind: &str, port: &PortModel, more: &str) -> String {
    let text = format!("{} {} {} {more}", port.id, port.protocol.name(), port.port);
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}-{hex}")
}

fn key(address: &std::net::Ipv4Addr, port: &PortModel) -> String {
    format!("{address} . {} . {}", port.protocol.name(), port.port)
}

/// Connections to the cluster address.
fn internal(port: &PortModel, rules: &mut Rules) {
    let chain = name("service", port, "");
    if port.internal.is_empty() {
        for address in &port.cluster_ips {
            // With backends elsewhere only (policy Local) packets are dropped, as upstream does: others may have them.
            let verdict = if port.anywhere { "drop" } else { "goto refuse" };
            rules.element("no-endpoint-services", key(address, port), Some(verdict.to_owned()));
        }
        return;
    }
    let cluster: Vec<String> = port.cluster_ips.iter().map(ToString::to_string).collect();
    let mut list = Vec::new();
    if !cluster.is_empty() {
        list.push(format!("ip daddr {{ {} }} jump from-outside", cluster.join(", ")));
    }
    list.extend(balance(port, &port.internal, rules));
    rules.chains.insert(chain.clone(), list);
    for address in &port.cluster_ips {
        rules.element("service-ips", key(address, port), Some(format!("goto {chain}")));
    }
}

/// Connections to node ports, external addresses and load balancers' addresses.
fn external(port: &PortModel, rules: &mut Rules) {
    let addresses = port.external_ips.iter().chain(&port.load_balancer_ips);
    if port.node_port.is_none() && addresses.clone().next().is_none() {
        return;
    }
    if port.external.is_empty() {
        let verdict = if port.anywhere { "drop" } else { "goto refuse" }.to_owned();
        for address in addresses {
            rules.element("no-endpoint-services", key(address, port), Some(verdict.clone()));
        }
        if let Some(number) = port.node_port {
            rules.element(
                "no-endpoint-nodeports",
                format!("{} . {number}", port.protocol.name()),
                Some(verdict),
            );
        }
        return;
    }
    let chain = name("external", port, "");
    let mut list = Vec::new();
    if !port.external_local {
        list.push("jump mark-for-masquerade".to_owned());
    }
    if port.external == port.internal {
        list.push(format!("goto {}", name("service", port, "")));
    } else {
        list.extend(balance(port, &port.external, rules));
    }
    rules.chains.insert(chain.clone(), list);
    for address in &port.external_ips {
        rules.element("service-ips", key(address, port), Some(format!("goto {chain}")));
    }
    let balancers = if port.source_ranges.is_empty() {
        chain.clone()
    } else {
        let ranges: Vec<String> = port.source_ranges.iter().map(ToString::to_string).collect();
        let firewall = name("firewall", port, "");
        let list = vec![
            format!("ip saddr {{ {} }} goto {chain}", ranges.join(", ")),
            "drop".to_owned(),
        ];
        rules.chains.insert(firewall.clone(), list);
        firewall
    };
    for address in &port.load_balancer_ips {
        rules.element("service-ips", key(address, port), Some(format!("goto {balancers}")));
    }
    if let Some(number) = port.node_port {
        let key = format!("{} . {number}", port.protocol.name());
        rules.element("service-nodeports", key, Some(format!("goto {chain}")));
    }
}

/// Rules that pick a backend, and the chains of the backends, which are the same whoever picks.
fn balance(port: &PortModel, backends: &[Backend], rules: &mut Rules) -> Vec<String> {
    let mut list = Vec::new();
    let mut picks = Vec::new();
    for (index, backend) in backends.iter().enumerate() {
        let text = format!("{}:{}", backend.address, backend.port);
        let chain = name("endpoint", port, &text);
        let mut steps = vec![format!("ip saddr {} jump mark-for-masquerade", backend.address)];
        if let Some(seconds) = port.affinity {
            let set = name("affinity", port, &text);
            let declaration = format!("{{ type ipv4_addr; flags dynamic,timeout; timeout {seconds}s; }}");
            rules.sets.insert(set.clone(), declaration);
            steps.push(format!("update @{set} {{ ip saddr }}"));
            list.push(format!("ip saddr @{set} goto {chain}"));
        }
        steps.push(format!("meta l4proto {} dnat to {text}", port.protocol.name()));
        rules.chains.insert(chain.clone(), steps);
        picks.push(format!("{index} : goto {chain}"));
    }
    list.push(format!(
        "numgen random mod {} vmap {{ {} }}",
        backends.len(),
        picks.join(", ")
    ));
    list
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Rules, Shared, base};
    use crate::model::of_service;
    use crate::model::tests::{service as new_service, slice};

    #[test]
    fn the_kernel_takes_it_and_every_change_of_it() -> Result<(), Box<dyn std::error::Error>> {
        let shared = Shared {
            cluster_cidr: "10.244.0.0/16".to_owned(),
            local_addresses: vec!["10.96.0.10".to_owned()],
        };
        let spec = |affinity: &str, policy: &str| {
            new_service(json!({
                "clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.1"], "type": "LoadBalancer",
                "sessionAffinity": affinity, "externalTrafficPolicy": policy, "healthCheckNodePort": 31000,
                "loadBalancerSourceRanges": ["198.51.100.0/24", "203.0.113.0/24"],
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
            }))
        };
        let balanced = |mut service: minato_api::k8s::core::v1::Service| -> Result<_, serde_json::Error> {
            service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}))?;
            Ok(service)
        };
        let two =
            json!([{"addresses": ["10.244.0.1"], "nodeName": "n"}, {"addresses": ["10.244.1.1"], "nodeName": "o"}]);
        let states = [
            Rules::default(),
            super::service(&of_service(
                &balanced(spec("None", "Cluster"))?,
                &[slice(two.clone())],
                "n",
            )),
            super::service(&of_service(&balanced(spec("ClientIP", "Local"))?, &[slice(two)], "n")),
            super::service(&of_service(&balanced(spec("None", "Local"))?, &[slice(json!([]))], "n")),
            Rules::default(),
        ];
        // Each state follows from the one before, and all of it can be written anew over what is there.
        let mut scripts = vec![base(&shared)];
        scripts.extend(
            states
                .windows(2)
                .map(|pair| crate::table::difference(&pair[0], &pair[1])),
        );
        scripts.push(base(&shared) + &crate::table::difference(&Rules::default(), &states[2]));
        let directory = tempfile::tempdir()?;
        let mut command = String::from("set -e\n");
        for (index, script) in scripts.iter().enumerate() {
            let path = directory.path().join(index.to_string());
            std::fs::write(&path, script)?;
            command += &format!("nft -f {}\n", path.display());
        }
        command += "nft list table ip minato-proxy";
        let output = std::process::Command::new("unshare")
            .args(["-n", "sh", "-c", &command])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("10.96.0.1 . tcp . 80 : goto service-"), "{text}");
        assert!(text.contains("dnat to 10.244.1.1:8080"), "{text}");
        Ok(())
    }

    #[test]
    fn a_service_is_a_few_elements_and_a_chain_per_backend() {
        let slice = slice(json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]));
        let service = new_service(json!({
            "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort",
        }));
        let rules = super::service(&of_service(&service, &[slice], "n"));
        let keys: Vec<String> = rules.elements.keys().map(|(map, key)| format!("{map} {key}")).collect();
        assert_eq!(
            keys,
            [
                "cluster-ips 10.96.0.1",
                "service-ips 10.96.0.1 . tcp . 80",
                "service-nodeports tcp . 30080"
            ]
        );
        // One to balance, one for the outside, one per backend.
        assert_eq!(rules.chains.len(), 4);
        let balancing = rules
            .chains
            .iter()
            .find(|(name, _)| name.starts_with("service-"))
            .map(|(_, list)| list.join("\n"));
        assert!(
            balancing
                .unwrap_or_default()
                .contains("numgen random mod 2 vmap { 0 : goto endpoint-")
        );
    }

    #[test]
    fn without_backends_it_is_refused() {
        let service = new_service(json!({"clusterIPs": ["10.96.0.1"], "ports": [{"port": 80, "nodePort": 30080}]}));
        let rules = super::service(&of_service(&service, &[slice(json!([]))], "n"));
        assert!(rules.chains.is_empty());
        let refused = |map: &str, key: &str| rules.elements.get(&(map.to_owned(), key.to_owned())).cloned().flatten();
        assert_eq!(
            refused("no-endpoint-services", "10.96.0.1 . tcp . 80").as_deref(),
            Some("goto refuse")
        );
        assert_eq!(
            refused("no-endpoint-nodeports", "tcp . 30080").as_deref(),
            Some("goto refuse")
        );
    }
}
