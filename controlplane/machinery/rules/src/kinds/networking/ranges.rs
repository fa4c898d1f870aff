//! Ranges that services get their addresses from, and the addresses that are taken.

use std::net::IpAddr;

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC, cidr, same};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, texts};

/// An address that is taken.
#[derive(Default)]
pub(in crate::kinds) struct IpAddress;

impl Strategy for IpAddress {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let parent = object.at("spec.parentRef");
        let at = SPEC.field("parentRef");
        if parent.is_null() {
            errors.required(&at, "");
            return errors;
        }
        for field in ["resource", "name"] {
            if parent.text(field).is_empty() {
                errors.required(&at.field(field), "");
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.unchanged(
            &SPEC.field("parentRef"),
            object.at("spec.parentRef"),
            old.at("spec.parentRef"),
        );
        errors
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        // One address has one name: the form that addresses are printed in.
        match name.parse::<IpAddr>() {
            Ok(address) if address.to_string() == name => Vec::new(),
            _ => vec!["must be a valid IP address in canonical form".to_owned()],
        }
    }

    fn field_labels(&self) -> &[&str] {
        &["spec.parentRef.resource", "spec.parentRef.name"]
    }

    fn field(&self, object: &Value, label: &str) -> String {
        object.at(label).as_text().to_owned()
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("ParentRef", "Whose address it is."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let parent = object.at("spec.parentRef");
        let (resource, name) = (parent.text("resource"), parent.text("name"));
        let shown = match (parent.text("group"), parent.text("namespace")) {
            ("", "") => format!("{resource}/{name}"),
            ("", namespace) => format!("{resource}/{namespace}/{name}"),
            (group, "") => format!("{resource}.{group}/{name}"),
            (group, namespace) => format!("{resource}.{group}/{namespace}/{name}"),
        };
        vec![
            show::name(object),
            if parent.is_null() {
                show::or_none("")
            } else {
                json!(shown)
            },
            show::age(object, now),
        ]
    }
}

/// A range of addresses for services.
#[derive(Default)]
pub(in crate::kinds) struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, list) = (SPEC.field("cidrs"), object.at("spec.cidrs").as_list());
        if list.is_empty() {
            errors.required(&at, "at least one CIDR required");
        }
        if list.len() > 2 {
            let value = object.at("spec.cidrs").clone();
            errors.invalid(&at, value, "may only hold up to 2 values");
            return errors;
        }
        let ranges: Vec<_> = list
            .iter()
            .enumerate()
            .filter_map(|(index, item)| cidr(&mut errors, &at.index(index), item.as_text()))
            .collect();
        if let [(one, _), (two, _)] = ranges[..]
            && one.is_ipv4() == two.is_ipv4()
        {
            let value = object.at("spec.cidrs").clone();
            errors.invalid(
                &at,
                value,
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            );
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (new, before) = (object.at("spec.cidrs"), old.at("spec.cidrs"));
        let at = SPEC.field("cidrs");
        let grown = new.as_list().len() == 2 && before.as_list().len() == 1;
        let kept = new.as_list().first() == before.as_list().first();
        if same(new, before) || (grown && kept) {
            errors.0.extend(self.validate(object).0);
        } else {
            errors.invalid(&at, new.clone(), crate::check::IMMUTABLE);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("CIDRs", "The ranges, in the order of preference."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let ranges = texts(object.at("spec.cidrs").as_list());
        vec![show::name(object), json!(ranges.join(",")), show::age(object, now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ranges() {
        assert!(IpAddress.validate_name("2001:db8::1").is_empty());
        assert!(!IpAddress.validate_name("2001:DB8:0::1").is_empty());
        let one = json!({"spec": {"cidrs": ["10.0.0.0/16"]}});
        let two = json!({"spec": {"cidrs": ["10.0.0.0/16", "fd00::/112"]}});
        assert!(ServiceCidr.validate(&two).is_empty() && ServiceCidr.validate_update(&two, &one).is_empty());
        assert_eq!(ServiceCidr.validate_update(&one, &two).0.len(), 1);
        let alike = json!({"spec": {"cidrs": ["10.0.0.0/16", "10.1.0.0/16"]}});
        assert_eq!(ServiceCidr.validate(&alike).0.len(), 1);
        let address = json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}});
        assert_eq!(
            IpAddress.cells(&address, Timestamp::UNIX_EPOCH)[1],
            "services/default/s"
        );
    }
}
