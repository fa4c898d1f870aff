//! The cluster's zone: what a name means, from Services and EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, PTR, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::{Endpoint, EndpointSlice};
use minato_runtime::Informer;

/// How long clients may remember an answer, in seconds; as upstream's default configuration.
const TTL: u32 = 30;

/// Answers for one cluster.
pub(crate) struct Zone {
    domain: Name,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

/// What a question in the zone gets.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Records of the asked kind; none when the name exists and has no such records.
    Records(Vec<Record>),
    /// There is no such name.
    NoSuchName,
}

impl Zone {
    pub(crate) fn new(
        domain: &str,
        services: Informer<Service>,
        slices: Informer<EndpointSlice>,
    ) -> anyhow::Result<Self> {
        slices.add_index("service", |slice| {
            let labels = slice.metadata.labels.as_ref();
            let name = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
            name.map(|name| format!("{}/{name}", slice.metadata.namespace.as_deref().unwrap_or_default()))
                .into_iter()
                .collect()
        });
        slices.add_index("address", |slice| {
            slice
                .endpoints
                .iter()
                .flatten()
                .flat_map(|endpoint| endpoint.addresses.iter().cloned())
                .collect()
        });
        services.add_index("address", |service| {
            service
                .spec
                .iter()
                .flat_map(|spec| spec.cluster_ips.iter().flatten().cloned())
                .collect()
        });
        Ok(Self {
            domain: Name::from_ascii(format!("{}.", domain.trim_end_matches('.'))).context("the cluster's domain")?,
            services,
            slices,
        })
    }

    /// The answer, when the name is the cluster's.
    pub(crate) fn answer(&self, name: &Name, kind: RecordType) -> Option<Answer> {
        let name = name.to_lowercase();
        if let Some(address) = reverse(&name) {
            let names = self.names_of(address);
            if names.is_empty() {
                // Not ours: the machine's resolvers may know it.
                return None;
            }
            let pointers = names.into_iter().map(|target| record(&name, RData::PTR(PTR(target))));
            return Some(Answer::Records(pointers.filter(|_| kind == RecordType::PTR).collect()));
        }
        if !self.domain.zone_of(&name) {
            return None;
        }
        let own = usize::from(self.domain.num_labels());
        let labels: Vec<String> = name
            .iter()
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect();
        let below = labels.len().saturating_sub(own);
        let labels: Vec<&str> = labels[..below].iter().map(String::as_str).rev().collect();
        let found = match labels.as_slice() {
            [] => Some(if kind == RecordType::SOA {
                vec![self.authority()]
            } else {
                Vec::new()
            }),
            ["dns-version"] if kind == RecordType::TXT => Some(vec![version(&name)]),
            ["svc"] | ["pod"] | ["dns-version"] => Some(Vec::new()),
            ["svc", namespace] => self.has_services(namespace).then(Vec::new),
            ["svc", namespace, service] => self.service(&name, namespace, service, kind),
            ["svc", namespace, service, rest @ ..] => self.below_service(&name, namespace, service, rest, kind),
            ["pod", _, address] => pod(&name, address, kind),
            _ => None,
        };
        Some(found.map_or(Answer::NoSuchName, Answer::Records))
    }

    /// The record of authority, for answers that hold nothing.
    pub(crate) fn authority(&self) -> Record {
        let below = |label: &str| Name::from_ascii(label).and_then(|name| name.append_domain(&self.domain));
        let server = below("ns.dns").unwrap_or_else(|_| self.domain.clone());
        let contact = below("hostmaster").unwrap_or_else(|_| self.domain.clone());
        record(
            &self.domain,
            RData::SOA(SOA::new(server, contact, 1, 7200, 1800, 86_400, TTL)),
        )
    }

    fn has_services(&self, namespace: &str) -> bool {
        !self.services.list_in(namespace).is_empty()
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices.indexed("service", &format!("{namespace}/{service}"))
    }

    fn service(&self, name: &Name, namespace: &str, service: &str, kind: RecordType) -> Option<Vec<Record>> {
        let found = self.services.get_in(namespace, service)?;
        let spec = found.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            let target = Name::from_ascii(format!("{}.", spec.external_name.as_deref()?.trim_end_matches('.'))).ok()?;
            return Some(vec![record(name, RData::CNAME(CNAME(target)))]);
        }
        if is_headless(&found) {
            let slices = self.slices(namespace, service);
            let addresses = ready(&found, &slices).flat_map(|endpoint| endpoint.addresses.iter());
            let mut records: Vec<Record> = addresses
                .filter_map(|text| address(name, text.parse().ok()?, kind))
                .collect();
            records.dedup();
            return Some(records);
        }
        let addresses = spec.cluster_ips.iter().flatten();
        Some(
            addresses
                .filter_map(|text| address(name, text.parse().ok()?, kind))
                .collect(),
        )
    }

    /// `_port._protocol.service`, and `host.service` of a headless one.
    fn below_service(
        &self,
        name: &Name,
        namespace: &str,
        service: &str,
        rest: &[&str],
        kind: RecordType,
    ) -> Option<Vec<Record>> {
        let found = self.services.get_in(namespace, service)?;
        match rest {
            [protocol, port] => {
                let (protocol, port) = (protocol.strip_prefix('_')?, port.strip_prefix('_')?);
                let records = self.ports(name, &found, namespace, service, protocol, port)?;
                Some(if kind == RecordType::SRV { records } else { Vec::new() })
            }
            [protocol] if protocol.starts_with('_') => Some(Vec::new()),
            [host] if is_headless(&found) => {
                let slices = self.slices(namespace, service);
                let endpoints: Vec<&Endpoint> = ready(&found, &slices)
                    .filter(|endpoint| host_of(endpoint).as_deref() == Some(host))
                    .collect();
                if endpoints.is_empty() {
                    return None;
                }
                let addresses = endpoints.into_iter().flat_map(|endpoint| endpoint.addresses.iter());
                Some(
                    addresses
                        .filter_map(|text| address(name, text.parse().ok()?, kind))
                        .collect(),
                )
            }
            _ => None,
        }
    }

    fn ports(
        &self,
        name: &Name,
        found: &Service,
        namespace: &str,
        service: &str,
        protocol: &str,
        port: &str,
    ) -> Option<Vec<Record>> {
        let target = Name::from_ascii(format!("{service}.{namespace}.svc"))
            .ok()?
            .append_domain(&self.domain)
            .ok()?;
        let same = |p: Option<&str>| p.unwrap_or("TCP").eq_ignore_ascii_case(protocol);
        if !is_headless(found) {
            let spec = found.spec.as_ref()?;
            let ports = spec.ports.iter().flatten();
            let mut ports = ports.filter(|p| p.name.as_deref() == Some(port) && same(p.protocol.as_deref()));
            let number = u16::try_from(ports.next()?.port).ok()?;
            return Some(vec![record(name, RData::SRV(SRV::new(0, 100, number, target)))]);
        }
        let slices = self.slices(namespace, service);
        let mut records = Vec::new();
        for slice in &slices {
            let ports = slice.ports.iter().flatten();
            let mut ports = ports.filter(|p| p.name.as_deref() == Some(port) && same(p.protocol.as_deref()));
            let Some(number) = ports.next().and_then(|p| u16::try_from(p.port?).ok()) else {
                continue;
            };
            for endpoint in ready(found, std::slice::from_ref(slice)) {
                let host = Name::from_ascii(host_of(endpoint)?).ok()?.append_domain(&target).ok()?;
                records.push(record(name, RData::SRV(SRV::new(0, 100, number, host))));
            }
        }
        (!records.is_empty()).then_some(records)
    }

    /// Names of an address: of a Service, or of the pods of headless ones.
    fn names_of(&self, address: IpAddr) -> Vec<Name> {
        let text = address.to_string();
        let full = |name: String| Name::from_ascii(name).ok()?.append_domain(&self.domain).ok();
        let mut names: Vec<Name> = self
            .services
            .indexed("address", &text)
            .iter()
            .filter_map(|service| {
                full(format!(
                    "{}.{}.svc",
                    service.metadata.name.as_deref()?,
                    service.metadata.namespace.as_deref()?
                ))
            })
            .collect();
        for slice in self.slices.indexed("address", &text) {
            let service = slice
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get("kubernetes.io/service-name"));
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            let Some(service) = service.and_then(|name| self.services.get_in(namespace, name)) else {
                continue;
            };
            let endpoints = slice
                .endpoints
                .iter()
                .flatten()
                .filter(|endpoint| endpoint.addresses.contains(&text));
            if is_headless(&service) {
                names.extend(endpoints.filter_map(|endpoint| {
                    full(format!(
                        "{}.{}.{namespace}.svc",
                        host_of(endpoint)?,
                        service.metadata.name.as_deref()?
                    ))
                }));
            }
        }
        names
    }
}

fn record(name: &Name, data: RData) -> Record {
    Record::from_rdata(name.clone(), TTL, data)
}

fn address(name: &Name, address: IpAddr, kind: RecordType) -> Option<Record> {
    match (address, kind) {
        (IpAddr::V4(address), RecordType::A) => Some(record(name, RData::A(A(address)))),
        (IpAddr::V6(address), RecordType::AAAA) => Some(record(name, RData::AAAA(AAAA(address)))),
        _ => None,
    }
}

/// The version of the specification that this follows.
fn version(name: &Name) -> Record {
    record(
        name,
        RData::TXT(hickory_proto::rr::rdata::TXT::new(vec!["1.1.0".to_owned()])),
    )
}

fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Endpoints that are given out: those that are ready, or all if the Service says so.
fn ready<'s>(service: &Service, slices: &'s [Arc<EndpointSlice>]) -> impl Iterator<Item = &'s Endpoint> {
    let all = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints.filter(move |endpoint| {
        let conditions = endpoint.conditions.as_ref();
        all || conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
    })
}

/// The name of an endpoint below its Service: its host name, or its address with dashes.
fn host_of(endpoint: &Endpoint) -> Option<String> {
    let named = endpoint.hostname.as_ref().filter(|name| !name.is_empty());
    named
        .cloned()
        .or_else(|| Some(endpoint.addresses.first()?.replace(['.', ':'], "-")))
}

/// `10-0-0-1.namespace.pod`.
fn pod(name: &Name, label: &str, kind: RecordType) -> Option<Vec<Record>> {
    let parsed = label.replace('-', ".").parse().map(IpAddr::V4);
    let parsed = parsed
        .or_else(|_| label.replace('-', ":").parse().map(IpAddr::V6))
        .ok()?;
    Some(address(name, parsed, kind).into_iter().collect())
}

/// The address in a name of the reverse zones.
fn reverse(name: &Name) -> Option<IpAddr> {
    name.parse_arpa_name().ok().map(|network| network.addr()).filter(|_| {
        let text = name.to_ascii();
        let labels = usize::from(name.num_labels());
        text.ends_with("in-addr.arpa.") && labels == 6 || text.ends_with("ip6.arpa.") && labels == 34
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn zone() -> Zone {
        let services = Informer::detached();
        let slices = Informer::detached();
        let zone = Zone::new("cluster.local", services.clone(), slices.clone());
        let service = |name: &str, spec: Value| {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d"}, "spec": spec}))
                .unwrap_or_default()
        };
        services.feed(vec![
            service(
                "web",
                json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{"name": "http", "port": 80}]}),
            ),
            service(
                "db",
                json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"name": "sql", "port": 5432}]}),
            ),
            service("out", json!({"type": "ExternalName", "externalName": "example.com"})),
        ]);
        let slice = json!({
            "metadata": {"name": "db-1", "namespace": "d", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4",
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.244.0.5"], "hostname": "db-0", "conditions": {"ready": true}},
                {"addresses": ["10.244.1.5"], "conditions": {"ready": true}},
                {"addresses": ["10.244.1.6"], "conditions": {"ready": false}},
            ],
        });
        slices.feed(vec![serde_json::from_value(slice).unwrap_or_default()]);
        zone.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The data of the answer's records as text; `None` for a name that does not exist.
    fn ask(name: &str, kind: RecordType) -> Option<Vec<String>> {
        let name = Name::from_ascii(name).unwrap_or_default();
        match zone().answer(&name, kind) {
            Some(Answer::Records(records)) => Some(records.into_iter().map(|r| r.data.to_string()).collect()),
            _ => None,
        }
    }

    fn texts(list: &[&str]) -> Option<Vec<String>> {
        Some(list.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn services_have_addresses_and_ports() {
        assert_eq!(ask("web.d.svc.cluster.local.", RecordType::A), texts(&["10.96.0.7"]));
        assert_eq!(ask("WEB.d.svc.Cluster.local.", RecordType::A), texts(&["10.96.0.7"]));
        assert_eq!(ask("web.d.svc.cluster.local.", RecordType::AAAA), texts(&[]));
        let srv = ask("_http._tcp.web.d.svc.cluster.local.", RecordType::SRV);
        assert_eq!(srv, texts(&["0 100 80 web.d.svc.cluster.local."]));
        assert_eq!(ask("none.d.svc.cluster.local.", RecordType::A), None);
        assert_eq!(ask("_other._tcp.web.d.svc.cluster.local.", RecordType::SRV), None);
        assert_eq!(
            ask("7.0.96.10.in-addr.arpa.", RecordType::PTR),
            texts(&["web.d.svc.cluster.local."])
        );
        assert_eq!(ask("out.d.svc.cluster.local.", RecordType::A), texts(&["example.com."]));
    }

    #[test]
    fn headless_services_are_their_ready_pods() {
        assert_eq!(
            ask("db.d.svc.cluster.local.", RecordType::A),
            texts(&["10.244.0.5", "10.244.1.5"])
        );
        assert_eq!(
            ask("db-0.db.d.svc.cluster.local.", RecordType::A),
            texts(&["10.244.0.5"])
        );
        assert_eq!(
            ask("10-244-1-5.db.d.svc.cluster.local.", RecordType::A),
            texts(&["10.244.1.5"])
        );
        assert_eq!(ask("10-244-1-6.db.d.svc.cluster.local.", RecordType::A), None);
        let srv = ask("_sql._tcp.db.d.svc.cluster.local.", RecordType::SRV);
        let expected = [
            "0 100 5432 db-0.db.d.svc.cluster.local.",
            "0 100 5432 10-244-1-5.db.d.svc.cluster.local.",
        ];
        assert_eq!(srv, texts(&expected));
        assert_eq!(
            ask("5.0.244.10.in-addr.arpa.", RecordType::PTR),
            texts(&["db-0.db.d.svc.cluster.local."])
        );
    }

    #[test]
    fn pods_by_address_and_what_is_not_ours() {
        assert_eq!(
            ask("10-244-1-9.d.pod.cluster.local.", RecordType::A),
            texts(&["10.244.1.9"])
        );
        assert_eq!(ask("x.d.pod.cluster.local.", RecordType::A), None);
        assert_eq!(ask("dns-version.cluster.local.", RecordType::TXT), texts(&["1.1.0"]));
        let foreign = Name::from_ascii("example.com.").unwrap_or_default();
        assert_eq!(zone().answer(&foreign, RecordType::A), None);
        let foreign = Name::from_ascii("1.2.0.192.in-addr.arpa.").unwrap_or_default();
        assert_eq!(zone().answer(&foreign, RecordType::PTR), None);
    }
}
