//! Controller revisions: states of a template to go back to.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Path, Report as _};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::Tree as _;

/// A state of a template.
#[derive(Default)]
pub(in crate::kinds) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        errors.not_negative(&Path::Root.field("revision"), object.int("revision"));
        if object.sub("data").is_null() {
            errors.required(&Path::Root.field("data"), "data is mandatory");
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.unchanged(&Path::Root.field("data"), object.sub("data"), old.sub("data"));
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Controller", "What it is a state of."),
            Col::number("Revision", "Number of the state."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let owners = object.at("metadata.ownerReferences").as_list();
        let controller = owners.iter().find(|o| o.on("controller")).map(|o| {
            let kind = o.text("kind").to_lowercase();
            match o.text("apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}/{}", o.text("name")),
                None => format!("{kind}/{}", o.text("name")),
            }
        });
        vec![
            show::name(object),
            show::or_none(&controller.unwrap_or_default()),
            json!(object.count("revision")),
            show::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_and_the_controller_shows() {
        let object = json!({"data": {"a": 1}, "revision": 2, "metadata": {"ownerReferences": [
            {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "controller": true}]}});
        assert!(ControllerRevision.validate(&object).is_empty());
        assert_eq!(
            ControllerRevision
                .validate_update(&json!({"data": {"a": 2}}), &object)
                .0
                .len(),
            1
        );
        let cells = ControllerRevision.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!("daemonset.apps/d"), json!(2)]);
    }
}
