//! Names: the pod's host name, its /etc/hosts and its resolver. Pure, but for reading the host's own files.
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/>.

use std::path::Path;

use minato_api::k8s::core::v1::Pod;
use minato_cri::v1::DnsConfig;

use crate::pods::{PodId, is_host_network, spec};
use crate::settings::Settings;

/// Longest host name that the kernel takes.
const LONGEST_NAME: usize = 63;
/// The resolver reads this many servers.
const SERVERS: usize = 3;

/// The pod's host name, and the domain below which it is known, if it has one.
pub(crate) fn names(pod: &Pod, settings: &Settings) -> (String, Option<String>) {
    let spec = spec(pod);
    if is_host_network(pod) && spec.hostname_override.is_none() {
        return (settings.node_name.clone(), None);
    }
    let id = PodId::of(pod);
    if let Some(name) = &spec.hostname_override {
        return (name.clone(), None);
    }
    let mut name = spec.hostname.clone().filter(|name| !name.is_empty()).unwrap_or(id.name);
    name.truncate(LONGEST_NAME);
    let name = name.trim_end_matches(['-', '.']).to_owned();
    let subdomain = spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty());
    let domain = subdomain.map(|subdomain| {
        let domain = format!("{subdomain}.{}.svc.{}", id.namespace, settings.cluster_domain);
        domain.trim_end_matches('.').to_owned()
    });
    if spec.set_hostname_as_fqdn == Some(true)
        && let Some(domain) = &domain
    {
        return (format!("{name}.{domain}"), Some(domain.clone()));
    }
    (name, domain)
}

/// The content of the pod's /etc/hosts.
pub(crate) fn hosts(pod: &Pod, settings: &Settings, ips: &[String]) -> String {
    let mut text = if is_host_network(pod) {
        std::fs::read_to_string("/etc/hosts").unwrap_or_default()
    } else {
        let (name, domain) = names(pod, settings);
        let mut text = String::from(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
        );
        for ip in ips {
            match &domain {
                Some(domain) if !name.contains('.') => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
                _ => text.push_str(&format!("{ip}\t{name}\n")),
            }
        }
        text
    };
    let aliases = spec(pod).host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
    }
    text
}

/// Reads a resolver configuration.
fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let keyword = words.next();
        let words = words.map(str::to_owned);
        match keyword {
            Some("nameserver") => config.servers.extend(words.take(1)),
            Some("search") => config.searches = words.collect(),
            Some("options") => config.options = words.collect(),
            _ => {}
        }
    }
    config
}

fn of_host(path: &Path) -> DnsConfig {
    parse_resolv_conf(&std::fs::read_to_string(path).unwrap_or_default())
}

/// The pod's resolver configuration.
pub(crate) fn dns(pod: &Pod, settings: &Settings) -> DnsConfig {
    let id = PodId::of(pod);
    let spec = spec(pod);
    let has_cluster_dns = !settings.cluster_dns.is_empty();
    let in_cluster = match spec.dns_policy.as_deref() {
        Some("None") => None,
        Some("Default") => Some(false),
        Some("ClusterFirstWithHostNet") => Some(has_cluster_dns),
        _ => Some(has_cluster_dns && !is_host_network(pod)),
    };
    let mut config = match in_cluster {
        None => DnsConfig::default(),
        Some(false) => of_host(&settings.resolv_conf),
        Some(true) => {
            let domain = &settings.cluster_domain;
            let mut searches = Vec::new();
            if !domain.is_empty() {
                searches = vec![
                    format!("{}.svc.{domain}", id.namespace),
                    format!("svc.{domain}"),
                    domain.clone(),
                ];
            }
            searches.extend(of_host(&settings.resolv_conf).searches);
            DnsConfig {
                servers: settings.cluster_dns.iter().map(ToString::to_string).collect(),
                searches,
                options: vec!["ndots:5".to_owned()],
            }
        }
    };
    if let Some(own) = &spec.dns_config {
        config.servers.extend(own.nameservers.iter().flatten().cloned());
        config.searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            config
                .options
                .retain(|old| old.split(':').next() != Some(name.as_str()));
            config.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name,
            });
        }
    }
    for list in [&mut config.servers, &mut config.searches] {
        let mut seen = std::collections::HashSet::new();
        list.retain(|item| seen.insert(item.clone()));
    }
    config.servers.truncate(SERVERS);
    config
}
