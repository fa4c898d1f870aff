//! Endpoints, the forerunners of endpoint slices.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, non_special_ip};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, each, fill_zero};

/// Addresses shown in a row.
const MOST_SHOWN: usize = 3;

/// Addresses behind a service.
#[derive(Default)]
pub(in crate::kinds) struct Endpoints;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in each(object, "subsets") {
            for port in each(subset, "ports") {
                fill_zero(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let list = Path::Root.field("subsets");
        for (index, subset) in object.list("subsets").iter().enumerate() {
            self::subset(&mut errors, &list.index(index), subset);
        }
        errors
    }

    fn warnings(&self, _: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()]
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("Endpoints", "Addresses and ports that are ready."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![show::name(object), json!(addresses(object)), show::age(object, now)]
    }
}

fn subset(errors: &mut FieldErrors, at: &Path<'_>, subset: &Value) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|l| subset.list(l).is_empty()) {
        errors.required(at, "must specify `addresses` or `notReadyAddresses`");
    }
    for field in lists {
        let list = at.field(field);
        for (index, address) in subset.list(field).iter().enumerate() {
            let at = list.index(index);
            non_special_ip(errors, &at.field("ip"), address.text("ip"));
            for (field, rule) in [
                ("hostname", names::dns1123_label as fn(&str) -> Vec<String>),
                ("nodeName", names::dns1123_subdomain),
            ] {
                if !address.text(field).is_empty() {
                    errors.named(&at.field(field), address.text(field), rule);
                }
            }
        }
    }
    let (list, ports) = (at.field("ports"), subset.list("ports"));
    for (index, port) in ports.iter().enumerate() {
        let at = list.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.named(&at.field("name"), name, names::dns1123_label);
        } else if ports.len() > 1 {
            errors.required(&at.field("name"), "");
        }
        errors.port(&at.field("port"), port.count("port"));
        errors.one_of_required(&at.field("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
        if port.has("appProtocol") {
            errors.named(
                &at.field("appProtocol"),
                port.text("appProtocol"),
                names::qualified_name,
            );
        }
    }
}

fn addresses(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in object.list("subsets") {
        let ports = subset.list("ports");
        let ips = subset.list("addresses").iter().map(|a| a.text("ip"));
        if ports.is_empty() {
            // Nobody has given ports: the addresses alone are what there is.
            all.extend(ips.map(str::to_owned));
            continue;
        }
        for port in ports {
            for ip in ips.clone() {
                let number = port.count("port");
                all.push(if ip.contains(':') {
                    format!("[{ip}]:{number}")
                } else {
                    format!("{ip}:{number}")
                });
            }
        }
    }
    show::shortened(&all, MOST_SHOWN, show::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let of = |subsets: Value| addresses(&json!({"subsets": subsets}));
        assert_eq!(of(json!(null)), "<none>");
        let ips: Vec<Value> = (1..=5).map(|i| json!({"ip": format!("10.0.0.{i}")})).collect();
        assert_eq!(
            of(json!([{"addresses": ips, "ports": [{"port": 80}]}])),
            "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more..."
        );
        assert_eq!(
            of(json!([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}])),
            "[fd00::1]:80"
        );
    }

    #[test]
    fn addresses_must_be_reachable() {
        let object =
            json!({"subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}, {}]});
        let fields: Vec<String> = Endpoints.validate(&object).0.iter().map(|e| e.field.clone()).collect();
        assert_eq!(fields, ["subsets[0].addresses[0].ip", "subsets[1]"]);
    }
}
