//! Classes of volumes.
//!
//! Source: <https://kubernetes.io/docs/concepts/storage/storage-classes/>.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, same};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, fill};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const MOST_PARAMETERS: usize = 512;
const MOST_PARAMETER_BYTES: usize = 256 * 1024;

/// How volumes are made.
#[derive(Default)]
pub(in crate::kinds) struct StorageClass;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        fill(object, "reclaimPolicy", "Delete");
        fill(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        driver_name(&mut errors, "provisioner", object);
        parameters(&mut errors, object, true);
        let (at, policy) = (Path::Root.field("reclaimPolicy"), object.text("reclaimPolicy"));
        if !policy.is_empty() {
            errors.one_of(&at, policy, &["Delete", "Retain"]);
        }
        errors.one_of_required(
            &Path::Root.field("volumeBindingMode"),
            object.text("volumeBindingMode"),
            &["Immediate", "WaitForFirstConsumer"],
        );
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        forbid_changes(
            &mut errors,
            object,
            old,
            &["parameters", "provisioner", "reclaimPolicy"],
        );
        let field = "volumeBindingMode";
        errors.unchanged(&Path::Root.field(field), object.sub(field), old.sub(field));
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Provisioner", "Who makes the volumes."),
            Col::text("ReclaimPolicy", "What becomes of a volume that nobody claims any more."),
            Col::text("VolumeBindingMode", "When claims get their volumes."),
            Col::text("AllowVolumeExpansion", "Whether volumes can grow."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let policy = object.text("reclaimPolicy");
        let mode = object.text("volumeBindingMode");
        vec![
            named_default(object),
            json!(object.text("provisioner")),
            json!(if policy.is_empty() { "Delete" } else { policy }),
            if mode.is_empty() {
                json!(show::UNSET)
            } else {
                json!(mode)
            },
            json!(object.on("allowVolumeExpansion")),
            show::age(object, now),
        ]
    }
}

/// What of a volume can be changed later.
#[derive(Default)]
pub(in crate::kinds) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        driver_name(&mut errors, "driverName", object);
        parameters(&mut errors, object, false);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        forbid_changes(&mut errors, object, old, &["driverName", "parameters"]);
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("DriverName", "Driver that changes the volumes."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            show::name(object),
            json!(object.text("driverName")),
            show::age(object, now),
        ]
    }
}

fn named_default(object: &Value) -> Value {
    let metadata = object.sub("metadata");
    let is_default = metadata.sub("annotations").text(DEFAULT_CLASS) == "true";
    json!(format!(
        "{}{}",
        metadata.text("name"),
        if is_default { " (default)" } else { "" }
    ))
}

fn driver_name(errors: &mut FieldErrors, field: &str, object: &Value) {
    let (at, name) = (Path::Root.field(field), object.text(field));
    if name.is_empty() {
        errors.required(&at, "");
        return;
    }
    errors.named(&at, &name.to_lowercase(), names::qualified_name);
}

fn parameters(errors: &mut FieldErrors, object: &Value, may_be_none: bool) {
    let (at, parameters) = (Path::Root.field("parameters"), object.sub("parameters"));
    let count = parameters.entries().count();
    if count == 0 && !may_be_none {
        errors.required(&at, "must contain at least one key/value pair");
    }
    if count > MOST_PARAMETERS {
        errors.too_long(&at, MOST_PARAMETERS);
        return;
    }
    let mut bytes = 0_usize;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            errors.invalid(&at, key.as_str(), "field can not be empty.");
        }
        bytes = bytes.saturating_add(key.len()).saturating_add(value.as_text().len());
    }
    if bytes > MOST_PARAMETER_BYTES {
        errors.too_long(&at, MOST_PARAMETER_BYTES);
    }
}

fn forbid_changes(errors: &mut FieldErrors, object: &Value, old: &Value, fields: &[&str]) {
    for field in fields {
        if !same(object.sub(field), old.sub(field)) {
            errors.forbidden(&Path::Root.field(field), format!("updates to {field} are forbidden."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let mut class = json!({"metadata": {"name": "fast", "annotations": {DEFAULT_CLASS: "true"}},
            "provisioner": "csi.example.com", "parameters": {"type": "ssd"}});
        StorageClass.default(&mut class);
        assert_eq!(
            (&class["reclaimPolicy"], &class["volumeBindingMode"]),
            (&json!("Delete"), &json!("Immediate"))
        );
        assert!(StorageClass.validate(&class).is_empty());
        let cells = StorageClass.cells(&class, Timestamp::UNIX_EPOCH);
        assert_eq!((&cells[0], &cells[4]), (&json!("fast (default)"), &json!(false)));
        let mut other = class.clone();
        other["parameters"]["type"] = json!("hdd");
        other["volumeBindingMode"] = json!("WaitForFirstConsumer");
        other["allowVolumeExpansion"] = json!(true);
        let found: Vec<String> = StorageClass
            .validate_update(&other, &class)
            .0
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "parameters: Forbidden: updates to parameters are forbidden.",
                "volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable"
            ]
        );
        assert_eq!(VolumeAttributesClass.validate(&json!({"driverName": "d"})).0.len(), 1);
    }
}
