//! Claims to persistent volumes.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use super::persistent_volume::{or_unset, size};
use crate::check::{
    Amount, Path, Report as _, SPEC, SelectorRule, quantity, resource_amount, same, selector, subdomain,
};
use crate::pod;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, at_mut, drop_member, fill, fill_zero, put, set_or_drop, sub_mut};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const FROZEN: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

/// A wish for storage.
#[derive(Default)]
pub(in crate::kinds) struct PersistentVolumeClaim;

/// Checks access modes; `missing` is said when there is none.
pub(super) fn access_modes(errors: &mut FieldErrors, at: &Path<'_>, modes: &[Value], missing: &str) {
    if modes.is_empty() {
        errors.required(at, missing);
    }
    for mode in modes {
        errors.one_of(at, mode.as_text(), &MODES);
    }
    if modes.len() > 1 && modes.iter().any(|m| m.as_text() == "ReadWriteOncePod") {
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the spec of a claim, also of one that a pod makes for itself.
pub(crate) fn spec(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    access_modes(
        errors,
        &at.field("accessModes"),
        spec.list("accessModes"),
        "at least 1 access mode is required",
    );
    if spec.has("selector") {
        selector(errors, &at.field("selector"), spec.sub("selector"), SelectorRule::Any);
    }
    let resources_at = at.field("resources");
    let storage_at = resources_at.key("storage");
    match spec.at("resources.requests.storage") {
        Value::Null => errors.required(&storage_at, ""),
        amount => resource_amount(errors, &storage_at, "storage", amount, Amount::Positive),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        if !spec.text(field).is_empty() {
            errors.named(&at.field(field), spec.text(field), subdomain);
        }
    }
    if !spec.text("volumeMode").is_empty() {
        errors.one_of(
            &at.field("volumeMode"),
            spec.text("volumeMode"),
            &["Block", "Filesystem"],
        );
    }
    for field in ["dataSource", "dataSourceRef"] {
        if !spec.has(field) {
            continue;
        }
        let (at, source) = (at.field(field), spec.sub(field));
        for part in ["name", "kind"] {
            if source.text(part).is_empty() {
                errors.required(&at.field(part), "");
            }
        }
        if source.text("apiGroup").is_empty() && !matches!(source.text("kind"), "" | "PersistentVolumeClaim") {
            errors.invalid(
                &at,
                source.text("kind"),
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            );
        }
    }
}

impl Strategy for PersistentVolumeClaim {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            pod::volume_claim_spec(spec);
            // Two ways to say the same, unless the reference crosses namespaces.
            let (source, reference) = (spec.sub("dataSource").clone(), spec.sub("dataSourceRef").clone());
            if !source.is_null() && reference.is_null() {
                put(spec, "dataSourceRef", source);
            } else if source.is_null()
                && !reference.is_null()
                && !reference.has("namespace")
                && matches!(reference.text("kind"), "PersistentVolumeClaim" | "VolumeSnapshot")
            {
                fill(spec, "dataSource", reference);
            }
        }
        if let Some(status) = sub_mut(object, "status") {
            fill_zero(status, "phase", "Pending");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", json!({"phase": "Pending"}));
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        spec(&mut errors, &SPEC, object.sub("spec"));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        let at = &SPEC;
        let (new, before) = (object.sub("spec"), old.sub("spec"));
        let mut allowed = new.clone();
        // The binder names the volume once, and the storage class is decided late.
        for field in ["volumeName", "storageClassName"] {
            if before.text(field).is_empty() {
                set_or_drop(&mut allowed, field, before.sub(field).clone());
            }
        }
        if old.at("status.phase").as_text() == "Bound" {
            set_or_drop(
                &mut allowed,
                "volumeAttributesClassName",
                before.sub("volumeAttributesClassName").clone(),
            );
            if let Some(requests) = at_mut(&mut allowed, "resources.requests") {
                set_or_drop(requests, "storage", before.at("resources.requests.storage").clone());
            }
            shrinking(&mut errors, at, object, old);
        }
        let rest = |spec: &Value| {
            let mut spec = spec.clone();
            if spec.sub("resources").is_blank() {
                drop_member(&mut spec, "resources");
            }
            spec
        };
        if !same(&rest(&allowed), &rest(before)) {
            errors.forbidden(at, FROZEN);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Status", "Whether it is bound."),
            Col::text("Volume", "Volume that it is bound to."),
            Col::text("Capacity", "Size of that volume."),
            Col::text("Access Modes", "How that volume can be mounted."),
            Col::text("StorageClass", "Storage class."),
            Col::text("VolumeAttributesClass", "Volume attributes class."),
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
        let (modes, capacity) = match spec.text("volumeName") {
            "" => (String::new(), String::new()),
            _ => (
                show::access_modes(status.list("accessModes")),
                size(status.at("capacity.storage")),
            ),
        };
        vec![
            show::name(object),
            json!(phase),
            json!(spec.text("volumeName")),
            json!(capacity),
            json!(modes),
            json!(spec.text("storageClassName")),
            or_unset(spec.text("volumeAttributesClassName")),
            show::age(object, now),
            or_unset(spec.text("volumeMode")),
        ]
    }
}

/// A bound claim may grow; after a failed growth it may be cut back, though not below what there is.
fn shrinking(errors: &mut FieldErrors, at: &Path<'_>, new: &Value, old: &Value) {
    let requests_at = at.field("resources").field("requests").to_string();
    let at = Path::Root.field(&requests_at);
    let at = at.field("storage");
    let amount = |object: &Value, path: &str| quantity(object.at(path));
    let wanted = amount(new, "spec.resources.requests.storage");
    let (before, there) = (
        amount(old, "spec.resources.requests.storage"),
        amount(old, "status.capacity.storage"),
    );
    if let (Some(wanted), Some(before)) = (wanted, before)
        && wanted < before
        && there.is_none_or(|there| wanted <= there)
    {
        errors.forbidden(&at, "field can not be less than status.capacity");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(size: &str, phase: &str) -> Value {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeMode": "Filesystem"},
            "status": {"phase": phase, "capacity": {"storage": "1Gi"}}})
    }

    #[test]
    fn claims_grow_when_bound_and_change_in_nothing_else() {
        let update = |new: &Value, old: &Value| PersistentVolumeClaim.validate_update(new, old).0.len();
        assert_eq!(update(&claim("2Gi", "Bound"), &claim("1Gi", "Bound")), 0);
        assert_eq!(update(&claim("2Gi", "Pending"), &claim("1Gi", "Pending")), 1);
        assert_eq!(update(&claim("512Mi", "Bound"), &claim("1Gi", "Bound")), 1);
        let mut bound = claim("1Gi", "Pending");
        bound["spec"]["volumeName"] = json!("v");
        assert_eq!(update(&bound, &claim("1Gi", "Pending")), 0);
        assert_eq!(update(&claim("1Gi", "Pending"), &bound), 1);
    }

    #[test]
    fn what_is_missing_is_told() {
        let errors: Vec<String> = PersistentVolumeClaim
            .validate(&json!({}))
            .0
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            errors,
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ]
        );
    }
}
