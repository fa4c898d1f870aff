//! Endpoint slices.
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>.

use std::net::IpAddr;

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, Seen, non_special_ip};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, each, fill, fill_zero};

const FAMILIES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
/// Ports and addresses shown in a row.
const MOST_SHOWN: usize = 3;

/// A part of what is behind a service.
#[derive(Default)]
pub(in crate::kinds) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in each(object, "ports") {
            fill(port, "name", "");
            fill_zero(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let family = object.text("addressType");
        errors.one_of_required(&Path::Root.field("addressType"), family, &FAMILIES);
        let (list, endpoints) = (Path::Root.field("endpoints"), object.list("endpoints"));
        too_many(&mut errors, &list, endpoints.len(), MOST_ENDPOINTS);
        for (index, endpoint) in endpoints.iter().take(MOST_ENDPOINTS).enumerate() {
            self::endpoint(&mut errors, &list.index(index), endpoint, family);
        }
        let (list, ports) = (Path::Root.field("ports"), object.list("ports"));
        too_many(&mut errors, &list, ports.len(), MOST_PORTS);
        let mut seen = Seen::default();
        for (index, port) in ports.iter().take(MOST_PORTS).enumerate() {
            let at = list.index(index);
            let name = port.text("name");
            if !name.is_empty() {
                errors.named(&at.field("name"), name, names::dns1123_label);
            }
            seen.note(&mut errors, &at.field("name"), name);
            errors.one_of_required(&at.field("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
            if port.has("appProtocol") {
                errors.named(
                    &at.field("appProtocol"),
                    port.text("appProtocol"),
                    names::qualified_name,
                );
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.unchanged(
            &Path::Root.field("addressType"),
            object.sub("addressType"),
            old.sub("addressType"),
        );
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("AddressType", "What the addresses are."),
            Col::text("Ports", "Ports of all endpoints."),
            Col::text("Endpoints", "Addresses."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let ports = object.list("ports").iter().map(|port| match port.int("port") {
            Some(number) => number.to_string(),
            None => "*".to_owned(),
        });
        let ports: Vec<String> = ports.collect();
        let addresses = object.list("endpoints").iter().flat_map(|e| e.list("addresses"));
        let addresses: Vec<String> = addresses.map(|a| a.as_text().to_owned()).collect();
        vec![
            show::name(object),
            json!(object.text("addressType")),
            json!(show::shortened(&ports, MOST_SHOWN, show::UNSET)),
            json!(show::shortened(&addresses, MOST_SHOWN, show::UNSET)),
            show::age(object, now),
        ]
    }
}

fn too_many(errors: &mut FieldErrors, at: &Path<'_>, count: usize, most: usize) {
    if count > most {
        let why = format!("must have at most {most} items");
        errors.push(minato_meta::FieldError::new(
            minato_meta::FieldErrorClass::TooMany,
            at.to_string(),
            count,
            why,
        ));
    }
}

fn endpoint(errors: &mut FieldErrors, at: &Path<'_>, endpoint: &Value, family: &str) {
    let (list, addresses) = (at.field("addresses"), endpoint.list("addresses"));
    if addresses.is_empty() {
        errors.required(&list, "must contain at least 1 address");
    }
    too_many(errors, &list, addresses.len(), MOST_ADDRESSES);
    for (index, address) in addresses.iter().take(MOST_ADDRESSES).enumerate() {
        let (at, text) = (list.index(index), address.as_text());
        let parsed = text.parse::<IpAddr>().ok();
        match family {
            "FQDN" => errors.named(&at, text, names::dns1123_subdomain),
            "IPv4" if !parsed.is_some_and(|ip| ip.is_ipv4()) => {
                errors.invalid(&at, text, "must be a valid IPv4 address");
            }
            "IPv6" if !parsed.is_some_and(|ip| ip.is_ipv6()) => {
                errors.invalid(&at, text, "must be a valid IPv6 address");
            }
            _ => non_special_ip(errors, &at, text),
        }
    }
    for (field, rule) in [
        ("hostname", names::dns1123_label as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain),
    ] {
        if endpoint.has(field) {
            errors.named(&at.field(field), endpoint.text(field), rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices() {
        let mut slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "b"}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}]});
        EndpointSlice.default(&mut slice);
        assert_eq!(slice["ports"][0], json!({"port": 80, "name": "", "protocol": "TCP"}));
        assert!(EndpointSlice.validate(&slice).is_empty());
        let cells = EndpointSlice.cells(&slice, Timestamp::UNIX_EPOCH);
        let expected = ["IPv4", "80,*", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."].map(Value::from);
        assert_eq!(cells[1..4], expected);
        let mut other = slice.clone();
        other["addressType"] = json!("IPv6");
        let found: Vec<String> = EndpointSlice
            .validate_update(&other, &slice)
            .0
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found.len(), 5);
        assert_eq!(
            (found[0].as_str(), found[4].as_str()),
            (
                "endpoints[0].addresses[0]: Invalid value: \"10.0.0.1\": must be a valid IPv6 address",
                "addressType: Invalid value: \"IPv6\": field is immutable"
            )
        );
        let empty = EndpointSlice.cells(&json!({}), Timestamp::UNIX_EPOCH);
        assert_eq!(empty[2..4], [json!("<unset>"), json!("<unset>")]);
    }
}
