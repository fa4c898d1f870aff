//! Replication controllers, the forerunners of replica sets.

use jiff::Timestamp;
use minato_meta::{FieldErrors, LabelSelector};
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC, labels};
use crate::kinds::workload;
use crate::pod::validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, put, sub_mut};

/// A number of like pods.
#[derive(Default)]
pub(in crate::kinds) struct ReplicationController;

impl Strategy for ReplicationController {
    fn default(&self, object: &mut Value) {
        let of_template = object.at("spec.template.metadata.labels").clone();
        if let Some(spec) = sub_mut(object, "spec") {
            workload::default_template(spec);
            workload::default_replicas(spec);
            if spec.sub("selector").is_blank() && !of_template.is_blank() {
                put(spec, "selector", of_template.clone());
            }
        }
        if let Some(metadata) = sub_mut(object, "metadata")
            && metadata.sub("labels").is_blank()
            && !of_template.is_blank()
        {
            put(metadata, "labels", of_template);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (SPEC, object.sub("spec"));
        errors.not_negative(&at.field("replicas"), spec.int("replicas"));
        errors.not_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
        let selector = spec.sub("selector");
        if selector.is_blank() {
            errors.required(&at.field("selector"), "");
        }
        labels(&mut errors, &at.field("selector"), selector);
        let (template_at, template) = (at.field("template"), spec.sub("template"));
        if template.is_null() {
            errors.required(&template_at, "");
            return errors;
        }
        let of_template = template.at("metadata.labels");
        let pairs = selector.entries().map(|(k, v)| (k.as_str(), v.as_text()));
        if !LabelSelector::from_pairs(pairs).matches(|key| of_template.sub(key).as_str()) {
            errors.invalid(
                &template_at.field("metadata").field("labels"),
                of_template.clone(),
                "`selector` does not match template `labels`",
            );
        }
        validation::template(&mut errors, &template_at, template);
        let policy = template.at("spec.restartPolicy").as_text();
        if !policy.is_empty() && policy != "Always" {
            errors.unsupported(&template_at.field("spec").field("restartPolicy"), policy, &["Always"]);
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workload::counts(&mut errors, object, &counts);
        workload::parts(&mut errors, object, counts.get(1..).unwrap_or_default(), "replicas");
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn field_labels(&self) -> &[&str] {
        &["status.replicas"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        object.sub("status").count("replicas").to_string()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::number("Desired", "Pods that there should be."),
            Col::number("Current", "Pods that there are."),
            Col::number("Ready", "Pods that are ready."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let [names, images] = show::containers_and_images(spec.at("template.spec"));
        vec![
            show::name(object),
            json!(spec.count("replicas")),
            json!(status.count("replicas")),
            json!(status.count("readyReplicas")),
            show::age(object, now),
            names,
            images,
            show::label_text(spec.sub("selector")),
        ]
    }
}
