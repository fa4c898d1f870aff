//! Replica sets.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, sub_mut};

/// A number of like pods.
#[derive(Default)]
pub(in crate::kinds) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            workload::default_template(spec);
            workload::default_replicas(spec);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.not_negative(&at.field("replicas"), spec.int("replicas"));
        errors.not_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
        workload::needed_selector(&mut errors, at, spec, "deployment");
        workload::lasting_template(&mut errors, at, spec, "ReplicaSet");
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        workload::frozen(&mut errors, object, old, "selector");
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workload::counts(
            &mut errors,
            object,
            &["replicas", "observedGeneration", "terminatingReplicas"],
        );
        workload::counts(&mut errors, object, &parts);
        workload::parts(&mut errors, object, &parts, "replicas");
        workload::parts(&mut errors, object, &["availableReplicas"], "readyReplicas");
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
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
            show::selector_text(spec.sub("selector")),
        ]
    }
}
