//! Persistent volumes.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use super::persistent_volume_claim::access_modes;
use crate::check::{Amount, Path, Report as _, SPEC, quantity, resource_amount, same, subdomain};
use crate::pod::{self, validation};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, fill_zero, put, sub_mut};

/// Fields of the spec that are no volume sources.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// A piece of storage of the cluster.
#[derive(Default)]
pub(in crate::kinds) struct PersistentVolume;

fn sources(spec: &Value) -> impl Iterator<Item = (&String, &Value)> {
    spec.entries()
        .filter(|(key, value)| !NOT_SOURCES.contains(&key.as_str()) && !value.is_null())
}

impl Strategy for PersistentVolume {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            fill_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
            pod::volume_claim_spec(spec);
            pod::persistent_source(spec);
        }
        if let Some(status) = sub_mut(object, "status") {
            fill_zero(status, "phase", "Pending");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let now = object.at("metadata.creationTimestamp").clone();
        let mut status = json!({"phase": "Pending"});
        if !now.is_null() {
            put(&mut status, "lastPhaseTransitionTime", now);
        }
        put(object, "status", status);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (SPEC, object.sub("spec"));
        access_modes(&mut errors, &at.field("accessModes"), spec.list("accessModes"), "");
        capacity(&mut errors, &at.field("capacity"), spec.sub("capacity"));
        source(&mut errors, &at, spec);
        errors.one_of(
            &at.field("persistentVolumeReclaimPolicy"),
            spec.text("persistentVolumeReclaimPolicy"),
            &["Delete", "Recycle", "Retain"],
        );
        errors.one_of(
            &at.field("volumeMode"),
            spec.text("volumeMode"),
            &["Block", "Filesystem"],
        );
        for field in ["storageClassName", "volumeAttributesClassName"] {
            if !spec.text(field).is_empty() {
                errors.named(&at.field(field), spec.text(field), subdomain);
            }
        }
        let affinity_at = at.field("nodeAffinity");
        if spec.has("nodeAffinity") {
            let required_at = affinity_at.field("required");
            match spec.at("nodeAffinity.required") {
                Value::Null => errors.required(&required_at, "must specify required node constraints"),
                required => validation::node_selector(&mut errors, &required_at, required),
            }
        } else if spec.has("local") {
            errors.required(&affinity_at, "Local volume requires node affinity");
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        let at = &SPEC;
        let (new, old) = (object.sub("spec"), old.sub("spec"));
        let unchanged = sources(new).eq(sources(old));
        if !unchanged {
            errors.forbidden(
                &at.field("persistentvolumesource"),
                "spec.persistentvolumesource is immutable after creation",
            );
        }
        errors.unchanged(&at.field("volumeMode"), new.sub("volumeMode"), old.sub("volumeMode"));
        if old.has("nodeAffinity") && !same(new.sub("nodeAffinity"), old.sub("nodeAffinity")) {
            errors.unchanged(
                &at.field("nodeAffinity"),
                new.sub("nodeAffinity"),
                old.sub("nodeAffinity"),
            );
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Capacity", "Size."),
            Col::text("Access Modes", "How it can be mounted."),
            Col::text("Reclaim Policy", "What becomes of it without its claim."),
            Col::text("Status", "Whether it is bound."),
            Col::text("Claim", "Claim that it is bound to."),
            Col::text("StorageClass", "Storage class."),
            Col::text("VolumeAttributesClass", "Volume attributes class."),
            Col::text("Reason", "Why it is in this state."),
            AGE,
            Col::text("VolumeMode", "Whether it is a file system or a device.").wide(),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let phase = if object.sub("metadata").has("deletionTimestamp") {
            "Terminating"
        } else {
            status.text("phase")
        };
        let claim = spec.sub("claimRef");
        let claim = if claim.is_object() {
            format!("{}/{}", claim.text("namespace"), claim.text("name"))
        } else {
            String::new()
        };
        vec![
            show::name(object),
            json!(size(spec.at("capacity.storage"))),
            json!(show::access_modes(spec.list("accessModes"))),
            json!(spec.text("persistentVolumeReclaimPolicy")),
            json!(phase),
            json!(claim),
            json!(spec.text("storageClassName")),
            or_unset(spec.text("volumeAttributesClassName")),
            json!(status.text("reason")),
            show::age(object, now),
            or_unset(spec.text("volumeMode")),
        ]
    }
}

/// The text, or `<unset>`.
pub(super) fn or_unset(text: &str) -> Value {
    json!(if text.is_empty() { show::UNSET } else { text })
}

/// A quantity as text; nothing when there is none.
pub(super) fn size(value: &Value) -> String {
    quantity(value).map(|q| q.to_string()).unwrap_or_default()
}

fn capacity(errors: &mut FieldErrors, at: &Path<'_>, capacity: &Value) {
    if capacity.is_blank() {
        errors.required(at, "");
    }
    if capacity.entries().any(|(name, _)| name != "storage") || capacity.entries().count() > 1 {
        errors.unsupported(at, &capacity.to_string(), &["storage"]);
    }
    for (name, amount) in capacity.entries() {
        resource_amount(errors, &at.key(name), name, amount, Amount::Positive);
    }
}

fn source(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let mut count = 0;
    for (kind, source) in sources(spec) {
        count += 1;
        let at = at.field(kind);
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type");
        } else {
            validation::persistent_source(errors, &at, kind, source);
        }
    }
    if count == 0 {
        errors.required(at, "must specify a volume type");
    }
    if spec.at("hostPath.path").as_text() == "/" && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        errors.forbidden(
            &at.field("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Value {
        let mut object = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
        PersistentVolume.default(&mut object);
        object
    }

    #[test]
    fn a_whole_one_passes_and_its_source_stays() {
        let object = volume();
        assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert!(
            PersistentVolume.validate(&object).is_empty(),
            "{:?}",
            PersistentVolume.validate(&object)
        );
        let mut other = object.clone();
        other["spec"]["hostPath"]["path"] = json!("/y");
        assert_eq!(
            PersistentVolume.validate_update(&other, &object).0[0].field,
            "spec.persistentvolumesource"
        );
    }

    #[test]
    fn what_is_missing_is_told() {
        let fields: Vec<String> = PersistentVolume
            .validate(&json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Block"}}))
            .0
            .iter()
            .map(|e| e.field.clone())
            .collect();
        assert_eq!(fields, ["spec.accessModes", "spec.capacity", "spec"]);
    }

    #[test]
    fn rows() {
        let mut object = volume();
        object["spec"]["claimRef"] = json!({"namespace": "a", "name": "b"});
        object["status"] = json!({"phase": "Bound"});
        let cells = PersistentVolume.cells(&object, Timestamp::UNIX_EPOCH);
        let texts: Vec<&str> = cells.iter().skip(1).map(|c| c.as_str().unwrap()).collect();
        assert_eq!(
            texts,
            [
                "1Gi",
                "RWO",
                "Retain",
                "Bound",
                "a/b",
                "",
                "<unset>",
                "",
                "<unknown>",
                "Filesystem"
            ]
        );
    }
}
