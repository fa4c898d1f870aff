//! Drivers of volumes, the nodes they run on, the room they have, and what is attached.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-driver-v1/>.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{METADATA, Path, Report as _, SPEC, Seen, quantity};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, fill, sub_mut, texts};

const MOST_DRIVER_BYTES: usize = 63;

/// What Kubernetes is to know of a driver.
#[derive(Default)]
pub(in crate::kinds) struct CsiDriver;

impl Strategy for CsiDriver {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        fill(spec, "attachRequired", true);
        for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
            fill(spec, field, false);
        }
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            crate::tree::put(spec, "volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        driver(
            &mut errors,
            &METADATA.field("name"),
            object.sub("metadata").text("name"),
        );
        for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
            if !spec.has(field) {
                errors.required(&at.field(field), "");
            }
        }
        let policy = spec.text("fsGroupPolicy");
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        errors.one_of_required(&at.field("fsGroupPolicy"), policy, &policies);
        let list = at.field("volumeLifecycleModes");
        for (index, mode) in spec.list("volumeLifecycleModes").iter().enumerate() {
            errors.one_of(&list.index(index), mode.as_text(), &["Ephemeral", "Persistent"]);
        }
        let list = at.field("tokenRequests");
        let mut seen = Seen::default();
        for (index, request) in spec.list("tokenRequests").iter().enumerate() {
            let at = list.index(index);
            seen.note(&mut errors, &at.field("audience"), request.text("audience"));
            if let Some(seconds) = request.int("expirationSeconds") {
                let at = at.field("expirationSeconds");
                if seconds < 600 {
                    errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
                } else if seconds > 1 << 32 {
                    errors.invalid(&at, seconds, "may not specify a duration larger than 2^32 seconds");
                }
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        for field in ["attachRequired", "volumeLifecycleModes"] {
            workload::frozen(&mut errors, object, old, field);
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text(
                "AttachRequired",
                "Whether volumes are attached to nodes before they are mounted.",
            ),
            Col::text("PodInfoOnMount", "Whether the driver learns for which pod it mounts."),
            Col::text("StorageCapacity", "Whether the driver tells how much room it has."),
            Col::text("TokenRequests", "Audiences of the tokens that the driver needs."),
            Col::text(
                "RequiresRepublish",
                "Whether the driver is called again and again while pods run.",
            ),
            Col::text("Modes", "How long volumes may live."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let audiences: Vec<&str> = spec.list("tokenRequests").iter().map(|t| t.text("audience")).collect();
        let modes = texts(spec.list("volumeLifecycleModes")).join(",");
        vec![
            show::name(object),
            json!(!spec.has("attachRequired") || spec.on("attachRequired")),
            json!(spec.on("podInfoOnMount")),
            json!(spec.on("storageCapacity")),
            json!(if audiences.is_empty() {
                show::UNSET.to_owned()
            } else {
                audiences.join(",")
            }),
            json!(spec.on("requiresRepublish")),
            show::or_none(&modes),
            show::age(object, now),
        ]
    }
}

/// The drivers of a node.
#[derive(Default)]
pub(in crate::kinds) struct CsiNode;

impl Strategy for CsiNode {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let list = SPEC.field("drivers");
        let mut seen = Seen::default();
        for (index, item) in object.at("spec.drivers").as_list().iter().enumerate() {
            let at = list.index(index);
            driver(&mut errors, &at.field("name"), item.text("name"));
            seen.note(&mut errors, &at.field("name"), item.text("name"));
            if item.text("nodeID").is_empty() {
                errors.required(&at.field("nodeID"), "");
            } else if item.text("nodeID").len() > 256 {
                errors.invalid(
                    &at.field("nodeID"),
                    item.text("nodeID"),
                    "must be 256 characters or less",
                );
            }
            errors.not_negative(
                &at.field("allocatable").field("count"),
                item.sub("allocatable").int("count"),
            );
            let keys = at.field("topologyKeys");
            for (index, key) in item.list("topologyKeys").iter().enumerate() {
                errors.named_required(&keys.index(index), key.as_text(), names::qualified_name);
            }
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::number("Drivers", "Drivers on the node."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let drivers = object.at("spec.drivers").as_list().len();
        vec![show::name(object), json!(drivers), show::age(object, now)]
    }
}

/// How much room there is in a part of the cluster.
#[derive(Default)]
pub(in crate::kinds) struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let name = object.text("storageClassName");
        errors.named_required(&Path::Root.field("storageClassName"), name, names::dns1123_subdomain);
        for field in ["capacity", "maximumVolumeSize"] {
            let amount = quantity(object.sub(field));
            if amount.is_some_and(|a| a.signum() < 0) {
                errors.invalid(
                    &Path::Root.field(field),
                    object.sub(field).clone(),
                    crate::check::NOT_NEGATIVE,
                );
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        for field in ["nodeTopology", "storageClassName"] {
            errors.unchanged(&Path::Root.field(field), object.sub(field), old.sub(field));
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("StorageClassName", "Class of the volumes that there is room for."),
            Col::text("Capacity", "How much room there is."),
        ])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let capacity = quantity(object.sub("capacity")).map(|q| q.to_string());
        vec![
            show::name(object),
            json!(object.text("storageClassName")),
            json!(capacity.unwrap_or_else(|| show::UNSET.to_owned())),
        ]
    }
}

/// The wish that a volume be attached to a node.
#[derive(Default)]
pub(in crate::kinds) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        driver(&mut errors, &at.field("attacher"), spec.text("attacher"));
        if spec.text("nodeName").is_empty() {
            errors.required(&at.field("nodeName"), "");
        }
        let source = spec.sub("source");
        let inline = source.has("inlineVolumeSpec");
        match (source.text("persistentVolumeName").is_empty(), inline) {
            (true, false) => errors.required(
                &at.field("source"),
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
            (false, true) => errors.forbidden(
                &at.field("source"),
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
            _ => {}
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        errors.unchanged(&SPEC, object.sub("spec"), old.sub("spec"));
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Attacher", "Driver that attaches the volume."),
            Col::text("PV", "The volume."),
            Col::text("Node", "The node."),
            Col::text("Attached", "Whether it is attached."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        vec![
            show::name(object),
            json!(spec.text("attacher")),
            json!(spec.at("source.persistentVolumeName").as_text()),
            json!(spec.text("nodeName")),
            json!(object.sub("status").on("attached")),
            show::age(object, now),
        ]
    }
}

fn driver(errors: &mut FieldErrors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(at, "");
    } else if name.len() > MOST_DRIVER_BYTES {
        errors.too_long(at, MOST_DRIVER_BYTES);
    } else {
        errors.named(at, &name.to_lowercase(), names::dns1123_subdomain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers() {
        let mut object = json!({"metadata": {"name": "csi.example.com"}, "spec": {}});
        CsiDriver.default(&mut object);
        assert_eq!(
            object["spec"],
            json!({"attachRequired": true, "podInfoOnMount": false, "requiresRepublish": false, "seLinuxMount": false,
                "storageCapacity": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]})
        );
        assert!(CsiDriver.validate(&object).is_empty());
        let cells = CsiDriver.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(
            cells[1..7],
            [
                json!(true),
                json!(false),
                json!(false),
                json!("<unset>"),
                json!(false),
                json!("Persistent")
            ]
        );
        let mut other = object.clone();
        other["spec"]["attachRequired"] = json!(false);
        assert_eq!(
            CsiDriver.validate_update(&other, &object).0[0].to_string(),
            "spec.attachRequired: Invalid value: false: field is immutable"
        );
    }

    #[test]
    fn attachments() {
        let object = json!({"spec": {"attacher": "d", "nodeName": "n", "source": {}}});
        assert_eq!(
            VolumeAttachment.validate(&object).0[0].to_string(),
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        );
        assert_eq!(
            CsiStorageCapacity.cells(&json!({"capacity": "1Gi"}), Timestamp::UNIX_EPOCH)[2],
            "1Gi"
        );
    }
}
