//! Network policies.
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/network-policies/>.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, SelectorRule, cidr, port_number_or_name, selector};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, each, fill_zero, put, sub_mut};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Who may talk to pods, and to whom pods may talk.
#[derive(Default)]
pub(in crate::kinds) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        for direction in ["ingress", "egress"] {
            for rule in each(spec, direction) {
                for port in each(rule, "ports") {
                    fill_zero(port, "protocol", "TCP");
                }
            }
        }
        if spec.list("policyTypes").is_empty() {
            let egress = !spec.list("egress").is_empty();
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            put(spec, "policyTypes", types);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        selector(
            &mut errors,
            &at.field("podSelector"),
            spec.sub("podSelector"),
            SelectorRule::Any,
        );
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            let list = at.field(direction);
            for (index, rule) in spec.list(direction).iter().enumerate() {
                let at = list.index(index);
                let ports_at = at.field("ports");
                for (index, port) in rule.list("ports").iter().enumerate() {
                    self::port(&mut errors, &ports_at.index(index), port);
                }
                let peers_at = at.field(peers);
                for (index, peer) in rule.list(peers).iter().enumerate() {
                    self::peer(&mut errors, &peers_at.index(index), peer);
                }
            }
        }
        let (types_at, types) = (at.field("policyTypes"), spec.list("policyTypes"));
        if types.len() > 2 {
            errors.invalid(
                &types_at,
                spec.sub("policyTypes").clone(),
                "may not specify more than two policyTypes",
            );
        } else {
            for (index, kind) in types.iter().enumerate() {
                errors.one_of(&types_at.index(index), kind.as_text(), &["Egress", "Ingress"]);
            }
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("Pod-Selector", "Pods that the policy is about."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            show::name(object),
            show::selector_text(object.at("spec.podSelector")),
            show::age(object, now),
        ]
    }
}

fn port(errors: &mut FieldErrors, at: &Path<'_>, port: &Value) {
    let protocol = port.text("protocol");
    if !protocol.is_empty() && !PROTOCOLS.contains(&protocol) {
        errors.unsupported(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
    let (number, end) = (port.sub("port"), port.int("endPort"));
    if !number.is_null() {
        port_number_or_name(errors, &at.field("port"), number);
    }
    let Some(end) = end else { return };
    let end_at = at.field("endPort");
    match number {
        Value::Null => errors.required(&at.field("port"), "must be specified when `endPort` is specified"),
        Value::String(_) => errors.invalid(&end_at, end, "may not be specified when `port` is non-numeric"),
        _ => {
            if end < port.count("port") {
                errors.invalid(&end_at, end, "must be greater than or equal to `port`");
            }
            errors.port(&end_at, end);
        }
    }
}

fn peer(errors: &mut FieldErrors, at: &Path<'_>, peer: &Value) {
    let selectors = ["podSelector", "namespaceSelector"];
    let mut found = 0;
    for field in selectors {
        if peer.has(field) {
            found += 1;
            selector(errors, &at.field(field), peer.sub(field), SelectorRule::Any);
        }
    }
    if !peer.has("ipBlock") {
        if found == 0 {
            errors.required(at, "must specify a peer");
        }
        return;
    }
    let block_at = at.field("ipBlock");
    if found > 0 {
        errors.forbidden(at, "may not specify both ipBlock and another peer");
    }
    let block = peer.sub("ipBlock");
    let whole = match block.text("cidr") {
        "" => {
            errors.required(&block_at.field("cidr"), "");
            return;
        }
        text => cidr(errors, &block_at.field("cidr"), text),
    };
    let list = block_at.field("except");
    for (index, except) in block.list("except").iter().enumerate() {
        let (at, text) = (list.index(index), except.as_text());
        let (Some(whole), Some(part)) = (whole, cidr(errors, &at, text)) else {
            continue;
        };
        if !is_inside(part, whole) {
            let why = "must be a strict subset of `cidr`";
            errors.invalid(&at, text, why);
        }
    }
}

type Network = (std::net::IpAddr, u8);

fn is_inside(part: Network, whole: Network) -> bool {
    use std::net::IpAddr::{V4, V6};
    let shift = |bits: u32| bits.saturating_sub(u32::from(whole.1));
    let head = |address: u128, bits: u32| address.checked_shr(shift(bits)).unwrap_or(0);
    let same = match (part.0, whole.0) {
        (V4(a), V4(b)) => head(u128::from(u32::from(a)), 32) == head(u128::from(u32::from(b)), 32),
        (V6(a), V6(b)) => head(u128::from(a), 128) == head(u128::from(b), 128),
        _ => false,
    };
    same && part.1 > whole.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_errors() {
        let mut object = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "egress": [
            {"ports": [{"port": 80}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}]}});
        NetworkPolicy.default(&mut object);
        assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        assert!(NetworkPolicy.validate(&object).is_empty());
        assert_eq!(NetworkPolicy.cells(&object, Timestamp::UNIX_EPOCH)[1], "a=b");
        for (path, value, expected) in [
            (
                "/ports/0/endPort",
                json!(70),
                "ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`",
            ),
            (
                "/to/0/ipBlock/except",
                json!(["10.0.0.0/8"]),
                "to[0].ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
            ),
            ("/to/0", json!({}), "to[0]: Required value: must specify a peer"),
        ] {
            let mut wrong = object.clone();
            wrong["spec"]["egress"][0]["ports"][0]["endPort"] = json!(90);
            *wrong.pointer_mut(&format!("/spec/egress/0{path}")).unwrap() = value;
            let found = NetworkPolicy.validate(&wrong).0;
            assert_eq!(found[0].to_string(), format!("spec.egress[0].{expected}"));
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    fn subsets() {
        let net = |text| cidr(&mut FieldErrors::default(), &Path::Root, text).unwrap();
        assert!(is_inside(net("10.1.2.0/24"), net("10.1.0.0/16")));
        assert!(!is_inside(net("10.2.0.0/24"), net("10.1.0.0/16")));
        assert!(!is_inside(net("10.1.0.0/16"), net("10.1.0.0/16")));
        assert!(is_inside(net("10.1.0.0/16"), net("0.0.0.0/0")));
        assert!(!is_inside(net("::1/128"), net("0.0.0.0/0")));
        assert!(is_inside(net("2001:db8::/64"), net("::/0")));
    }
}
