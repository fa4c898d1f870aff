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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::config::KubeletConfiguration;
    use crate::options::Options;

    fn settings(resolv_conf: &Path) -> Settings {
        let options = Options::parse_from(["kubelet", "--hostname-override", "n1"]);
        let config = KubeletConfiguration {
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: resolv_conf.to_owned(),
            ..KubeletConfiguration::default()
        };
        Settings::new(options, config).unwrap()
    }

    fn pod(mut spec: serde_json::Value) -> Pod {
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[test]
    fn policies_choose_the_resolver() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        std::fs::write(&path, "search example.com\nnameserver 192.0.2.1\noptions edns0\n").unwrap();
        let settings = settings(&path);
        let cluster = dns(&pod(json!({})), &settings);
        assert_eq!(cluster.servers, ["10.96.0.10"]);
        assert_eq!(
            cluster.searches,
            [
                "ns.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
                "example.com"
            ]
        );
        assert_eq!(cluster.options, ["ndots:5"]);
        for spec in [
            json!({"dnsPolicy": "Default"}),
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirst"}),
        ] {
            assert_eq!(dns(&pod(spec), &settings).servers, ["192.0.2.1"]);
        }
        let host = pod(json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}));
        assert_eq!(dns(&host, &settings).servers, ["10.96.0.10"]);
        let own = json!({"nameservers": ["192.0.2.9"], "searches": ["x"], "options": [{"name": "ndots", "value": "1"}, {"name": "debug"}]});
        let none = dns(&pod(json!({"dnsPolicy": "None", "dnsConfig": own})), &settings);
        assert_eq!(
            (none.servers, none.searches),
            (vec!["192.0.2.9".to_owned()], vec!["x".to_owned()])
        );
        let merged = dns(&pod(json!({"dnsConfig": own})), &settings);
        assert_eq!(merged.options, ["ndots:1", "debug"]);
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let settings = settings(Path::new("/nonexistent"));
        let spec = json!({"hostname": "web-0", "subdomain": "web", "hostAliases": [{"ip": "192.0.2.5", "hostnames": ["a", "b"]}]});
        let text = hosts(&pod(spec), &settings, &["10.0.0.3".to_owned()]);
        assert!(
            text.contains("10.0.0.3\tweb-0.web.ns.svc.cluster.local\tweb-0\n"),
            "{text}"
        );
        assert!(text.ends_with("192.0.2.5\ta\tb\n"), "{text}");
        let plain = hosts(&pod(json!({})), &settings, &["10.0.0.3".to_owned()]);
        assert!(plain.ends_with("10.0.0.3\tp\n"), "{plain}");
    }

    #[test]
    fn host_names_fit_the_kernel() {
        let settings = settings(Path::new("/nonexistent"));
        let mut long = pod(json!({}));
        long.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(20)));
        assert_eq!(names(&long, &settings).0, "a".repeat(62));
        let full = pod(json!({"subdomain": "s", "setHostnameAsFQDN": true}));
        assert_eq!(names(&full, &settings).0, "p.s.ns.svc.cluster.local");
        assert_eq!(names(&pod(json!({"hostNetwork": true})), &settings).0, "n1");
    }
}
