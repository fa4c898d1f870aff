//! Pod templates as objects of their own.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::Path;
use crate::kinds::workload;
use crate::pod::validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, Col, NAME};
use crate::tree::Tree as _;

/// A template that nothing is made of by itself.
#[derive(Default)]
pub(in crate::kinds) struct PodTemplate;

impl Strategy for PodTemplate {
    fn default(&self, object: &mut Value) {
        workload::default_template(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        validation::template(&mut errors, &Path::Root.field("template"), object.sub("template"));
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Containers", "Names of the containers in the template."),
            Col::text("Images", "Images of the containers in the template."),
            Col::text("Pod Labels", "Labels that pods of the template get."),
        ])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let [names, images] = show::containers_and_images(object.at("template.spec"));
        let labels = show::label_text(object.at("template.metadata.labels"));
        vec![show::name(object), names, images, labels]
    }
}
