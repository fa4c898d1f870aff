//! Namespaces.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC, STATUS};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, ensure, put, sub_mut};

/// The label by which selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Removed when all that is in the namespace is gone.
const FINALIZER: &str = "kubernetes";

/// A room for names.
#[derive(Default)]
pub(in crate::kinds) struct Namespace;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        let name = object.sub("metadata").text("name").to_owned();
        if !name.is_empty()
            && let Some(labels) = sub_mut(object, "metadata").and_then(|m| ensure(m, "labels"))
        {
            put(labels, NAME_LABEL, name);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        // A generated name is known only now.
        self.default(object);
        put(object, "status", json!({"phase": "Active"}));
        if let Some(spec) = ensure(object, "spec")
            && !spec.list("finalizers").iter().any(|f| f.as_text() == FINALIZER)
        {
            let mut all = spec.list("finalizers").to_vec();
            all.push(json!(FINALIZER));
            put(spec, "finalizers", all);
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        let finalizers = old.at("spec.finalizers").clone();
        if let Some(spec) = ensure(object, "spec") {
            crate::tree::set_or_drop(spec, "finalizers", finalizers);
        }
    }

    fn prepare_for_subresource_update(&self, _: &str, _: &mut Value, _: &Value) {}

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let list = SPEC.field("finalizers");
        for (index, finalizer) in object.at("spec.finalizers").as_list().iter().enumerate() {
            let at = list.index(index);
            let name = finalizer.as_text();
            errors.named(&at, name, names::qualified_name);
            if !name.contains('/') && name != FINALIZER && name != "orphan" && name != "foregroundDeletion" {
                errors.invalid(
                    &at,
                    name,
                    "name is neither a standard finalizer name nor is it fully qualified",
                );
            }
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = STATUS.field("Phase");
        let phase = object.at("status.phase").as_text();
        let going = object.sub("metadata").has("deletionTimestamp");
        if !going && phase != "Active" {
            errors.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        } else if going && phase != "Terminating" {
            errors.invalid(
                &at,
                phase,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            );
        }
        errors
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::dns1123_label(name)
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn field_labels(&self) -> &[&str] {
        &["name", "status.phase"]
    }

    fn field(&self, object: &Value, label: &str) -> String {
        let value = if label == "name" { "metadata.name" } else { label };
        object.at(value).as_text().to_owned()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Status", "Whether the namespace is in use or going."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let phase = object.at("status.phase").as_text();
        vec![show::name(object), json!(phase), show::age(object, now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_is_active_and_finds_itself() {
        let mut object = json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "b"}}, "spec": {}});
        Namespace.prepare_for_create(&mut object);
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        );
        assert!(Namespace.validate(&object).is_empty());
        object["spec"]["finalizers"] = json!(["mine"]);
        assert_eq!(Namespace.validate(&object).0[0].field, "spec.finalizers[0]");
    }

    #[test]
    fn finalizers_go_only_through_finalize() {
        let old = json!({"spec": {"finalizers": ["kubernetes"]}});
        let mut new = json!({"spec": {}});
        Namespace.prepare_for_update(&mut new, &old);
        assert_eq!(new, old);
        let mut new = json!({"spec": {}});
        Namespace.prepare_for_subresource_update("finalize", &mut new, &old);
        assert_eq!(new, json!({"spec": {}}));
    }
}
