//! Ingresses.
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/ingress/>.

use std::net::IpAddr;

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{METADATA, Path, Report as _, SPEC, absolute_path};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// The older way to name a class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Hosts shown in a row.
const MOST_SHOWN: usize = 3;
/// Parts of a path that do not mean what they say.
const ODD_PARTS: [&str; 6] = ["//", "/./", "/../", "%2f", "%2F", "/.."];
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// HTTP from outside to services.
#[derive(Default)]
pub(in crate::kinds) struct Ingress;

impl Strategy for Ingress {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let annotated = object.at("metadata.annotations").text(CLASS_ANNOTATION);
        if !annotated.is_empty() && object.sub("spec").has("ingressClassName") {
            errors.invalid(
                &METADATA.field("annotations").field(CLASS_ANNOTATION),
                annotated,
                "can not be set when the class field is also set",
            );
        }
        spec(&mut errors, object.sub("spec"));
        errors
    }

    fn validate_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        spec(&mut errors, object.sub("spec"));
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = crate::check::STATUS;
        let at = at.field("loadBalancer");
        let list = at.field("ingress");
        for (index, way) in object.at("status.loadBalancer.ingress").as_list().iter().enumerate() {
            let at = list.index(index);
            let (ip, host) = (way.text("ip"), way.text("hostname"));
            if !ip.is_empty() {
                crate::check::ip(&mut errors, &at.field("ip"), ip);
            }
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(&at.field("hostname"), host, "must be a DNS name, not an IP address");
            } else if !host.is_empty() {
                errors.named(&at.field("hostname"), host, names::dns1123_subdomain);
            }
        }
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_none() && object.at("metadata.annotations").has(CLASS_ANNOTATION) {
            return vec![format!(
                "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
            )];
        }
        Vec::new()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Class", "Name of the class that serves the ingress."),
            Col::text("Hosts", "Hosts that the ingress is for."),
            Col::text("Address", "Where the ingress is reached."),
            Col::text("Ports", "Ports on which it is reached."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let hosts = spec.list("rules").iter().map(|r| r.text("host").to_owned());
        let hosts: Vec<String> = hosts.filter(|h| !h.is_empty()).collect();
        let ways = object.at("status.loadBalancer.ingress").as_list().iter();
        let ways = ways.map(|way| match way.text("ip") {
            "" => way.text("hostname"),
            ip => ip,
        });
        let ways: Vec<&str> = ways.filter(|way| !way.is_empty()).collect();
        let secure = !spec.list("tls").is_empty();
        vec![
            show::name(object),
            show::or_none(spec.text("ingressClassName")),
            json!(show::shortened(&hosts, MOST_SHOWN, "*")),
            json!(ways.join(",")),
            json!(if secure { "80, 443" } else { "80" }),
            show::age(object, now),
        ]
    }
}

fn spec(errors: &mut FieldErrors, spec: &Value) {
    let at = &SPEC;
    if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(at, spec.clone(), why);
    }
    if spec.has("defaultBackend") {
        backend(errors, &at.field("defaultBackend"), spec.sub("defaultBackend"));
    }
    let list = at.field("rules");
    for (index, rule) in spec.list("rules").iter().enumerate() {
        let at = list.index(index);
        host(errors, &at.field("host"), rule.text("host"));
        if rule.has("http") {
            paths(
                errors,
                &at.field("http").field("paths"),
                rule.at("http.paths").as_list(),
            );
        }
    }
    let list = at.field("tls");
    for (index, tls) in spec.list("tls").iter().enumerate() {
        let hosts = list.index(index);
        let hosts = hosts.field("hosts");
        for (index, name) in tls.list("hosts").iter().enumerate() {
            host(errors, &hosts.index(index), name.as_text());
        }
    }
    if spec.has("ingressClassName") {
        errors.named(
            &at.field("ingressClassName"),
            spec.text("ingressClassName"),
            names::dns1123_subdomain,
        );
    }
}

fn host(errors: &mut FieldErrors, at: &Path<'_>, host: &str) {
    if host.parse::<IpAddr>().is_ok() {
        errors.invalid(at, host, "must be a DNS name, not an IP address");
    } else if host.contains('*') {
        errors.named(at, host, names::wildcard_dns1123_subdomain);
    } else if !host.is_empty() {
        errors.named(at, host, names::dns1123_subdomain);
    }
}

fn paths(errors: &mut FieldErrors, at: &Path<'_>, list: &[Value]) {
    if list.is_empty() {
        errors.required(at, "");
    }
    for (index, item) in list.iter().enumerate() {
        let at = at.index(index);
        let (path_at, path) = (at.field("path"), item.text("path"));
        match item.text("pathType") {
            "" => errors.required(&at.field("pathType"), "pathType must be specified"),
            "Exact" | "Prefix" => {
                absolute_path(errors, &path_at, path);
                for odd in ODD_PARTS {
                    let found = if odd == "/.." {
                        path.ends_with(odd)
                    } else {
                        path.contains(odd)
                    };
                    if found {
                        errors.invalid(&path_at, path, format!("must not contain '{odd}'"));
                    }
                }
                if path.ends_with("/.") {
                    errors.invalid(&path_at, path, "cannot end with '/.'");
                }
            }
            "ImplementationSpecific" => {
                if !path.is_empty() {
                    absolute_path(errors, &path_at, path);
                }
            }
            other => errors.unsupported(&at.field("pathType"), other, &PATH_TYPES),
        }
        backend(errors, &at.field("backend"), item.sub("backend"));
    }
}

fn backend(errors: &mut FieldErrors, at: &Path<'_>, backend: &Value) {
    let (service, resource) = (backend.sub("service"), backend.sub("resource"));
    match (service.is_null(), resource.is_null()) {
        (true, true) => {
            errors.required(at, "resource or service backend is required");
            return;
        }
        (false, false) => {
            errors.invalid(at, Value::from(""), "cannot set both resource and service backends");
            return;
        }
        (true, false) => {
            let at = at.field("resource");
            for field in ["kind", "name"] {
                errors.named_required(&at.field(field), resource.text(field), names::path_segment);
            }
            return;
        }
        (false, true) => {}
    }
    let at = at.field("service");
    errors.named_required(&at.field("name"), service.text("name"), names::dns1035_label);
    let (name, number) = (service.at("port.name").as_text(), service.sub("port").count("number"));
    match (name.is_empty(), number == 0) {
        (true, true) => errors.required(&at, "port name or number is required"),
        (false, false) => errors.invalid(&at, Value::from(""), "cannot set both port name & port number"),
        (false, true) => errors.named(&at.field("port").field("name"), name, names::port_name),
        (true, false) => errors.port(&at.field("port").field("number"), number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingress(path: Value) -> Value {
        json!({"metadata": {"name": "i"}, "spec": {"ingressClassName": "nginx", "rules": [
            {"host": "a.example.com", "http": {"paths": [path]}}]}})
    }

    #[test]
    fn what_is_wrong() {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let fine = ingress(json!({"path": "/", "pathType": "Prefix", "backend": backend}));
        assert!(Ingress.validate(&fine).is_empty(), "{:?}", Ingress.validate(&fine).0);
        for (path, expected) in [
            (
                json!({"path": "x", "pathType": "Exact", "backend": backend}),
                "path: Invalid value: \"x\": must be an absolute path",
            ),
            (
                json!({"path": "/a//b", "pathType": "Prefix", "backend": backend}),
                "path: Invalid value: \"/a//b\": must not contain '//'",
            ),
            (
                json!({"path": "/", "backend": backend}),
                "pathType: Required value: pathType must be specified",
            ),
            (
                json!({"path": "/", "pathType": "Exact", "backend": {"service": {"name": "s"}}}),
                "backend.service: Required value: port name or number is required",
            ),
        ] {
            let errors = Ingress.validate(&ingress(path));
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, [format!("spec.rules[0].http.paths[0].{expected}")]);
        }
        let errors = Ingress.validate(&json!({"spec": {}}));
        assert_eq!(
            errors.0[0].to_string(),
            "spec: Invalid value: {}: either `defaultBackend` or `rules` must be specified"
        );
    }

    #[test]
    fn cells_tell_hosts_and_addresses() {
        let mut object = ingress(json!({}));
        object["spec"]["tls"] = json!([{}]);
        object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"hostname": "lb"}]}});
        let cells = Ingress.cells(&object, Timestamp::UNIX_EPOCH);
        let expected = ["nginx", "a.example.com", "10.0.0.1,lb", "80, 443"].map(Value::from);
        assert_eq!(cells[1..5], expected);
    }
}
