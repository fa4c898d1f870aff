//! Classes of ingresses.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, at_mut, fill};

const MOST_CONTROLLER_BYTES: usize = 250;

/// Who serves ingresses.
#[derive(Default)]
pub(in crate::kinds) struct IngressClass;

impl Strategy for IngressClass {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = at_mut(object, "spec.parameters") {
            fill(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        let (controller_at, controller) = (at.field("controller"), spec.text("controller"));
        if controller.is_empty() {
            errors.required(&controller_at, "");
        } else if controller.len() > MOST_CONTROLLER_BYTES {
            errors.too_long(&controller_at, MOST_CONTROLLER_BYTES);
        } else {
            domain_path(&mut errors, &controller_at, controller);
        }
        if spec.has("parameters") {
            parameters(&mut errors, &at.field("parameters"), spec.sub("parameters"));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        workload::frozen(&mut errors, object, old, "controller");
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Controller", "Who serves the ingresses of this class."),
            Col::text("Parameters", "Object with further settings."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let parameters = object.at("spec.parameters");
        let group = parameters.text("apiGroup");
        let dot = if group.is_empty() { "" } else { "." };
        let shown = format!("{}{dot}{group}/{}", parameters.text("kind"), parameters.text("name"));
        vec![
            show::name(object),
            json!(object.sub("spec").text("controller")),
            show::or_none(if parameters.is_null() { "" } else { &shown }),
            show::age(object, now),
        ]
    }
}

/// `example.com/some/path`.
fn domain_path(errors: &mut FieldErrors, at: &Path<'_>, text: &str) {
    match text.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            errors.named(at, domain, names::dns1123_subdomain);
        }
        _ => errors.invalid(at, text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

fn parameters(errors: &mut FieldErrors, at: &Path<'_>, parameters: &Value) {
    for field in ["kind", "name"] {
        errors.named_required(&at.field(field), parameters.text(field), names::path_segment);
    }
    if !parameters.text("apiGroup").is_empty() {
        errors.named(
            &at.field("apiGroup"),
            parameters.text("apiGroup"),
            names::dns1123_subdomain,
        );
    }
    let (namespace_at, namespace) = (at.field("namespace"), parameters.text("namespace"));
    match parameters.text("scope") {
        "Cluster" => {
            if parameters.has("namespace") {
                errors.forbidden(&namespace_at, "`parameters.scope` is set to 'Cluster'");
            }
        }
        "Namespace" => {
            if namespace.is_empty() {
                errors.required(&namespace_at, "`parameters.scope` is set to 'Namespace'");
            } else {
                errors.named(&namespace_at, namespace, names::dns1123_label);
            }
        }
        "" => errors.required(&at.field("scope"), ""),
        other => errors.unsupported(&at.field("scope"), other, &["Cluster", "Namespace"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_and_parameters() {
        let mut object = json!({"spec": {"controller": "k8s.io/nginx",
            "parameters": {"apiGroup": "example.com", "kind": "Settings", "name": "s"}}});
        IngressClass.default(&mut object);
        assert_eq!(object["spec"]["parameters"]["scope"], "Cluster");
        assert!(IngressClass.validate(&object).is_empty());
        let cells = IngressClass.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!("k8s.io/nginx"), json!("Settings.example.com/s")]);
        let mut other = object.clone();
        other["spec"]["controller"] = json!("nginx");
        let found = IngressClass.validate_update(&other, &object).0;
        assert_eq!(
            found[1].to_string(),
            "spec.controller: Invalid value: \"nginx\": field is immutable"
        );
        assert_eq!(found.len(), 2);
    }
}
