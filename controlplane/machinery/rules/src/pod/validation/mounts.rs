//! Where volumes appear in containers.

use std::collections::BTreeMap;

use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::{Path, Report as _, Seen, relative_path};
use crate::tree::Tree as _;

/// The volumes of a pod by name.
pub(super) type Volumes<'v> = BTreeMap<&'v str, &'v Value>;

/// Checks `volumeMounts`.
pub(super) fn mounts(errors: &mut FieldErrors, list: &Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    let mut places = Seen::default();
    let device = |name: &str| container.list("volumeDevices").iter().any(|d| d.text("name") == name);
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let at = list.index(index);
        let (name, place) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(&at.field("name"), name);
        }
        if place.is_empty() {
            errors.required(&at.field("mountPath"), "");
        }
        if !places.add(place) {
            errors.invalid(&at.field("mountPath"), place, "must be unique");
        }
        if device(name) {
            errors.invalid(&at.field("name"), name, "must not already exist in volumeDevices");
        }
        sub_path(errors, &at, mount);
        propagation(errors, &at, mount, container);
        read_only(errors, &at, mount);
    }
}

fn sub_path(errors: &mut FieldErrors, at: &Path<'_>, mount: &Value) {
    for field in ["subPath", "subPathExpr"] {
        let path = mount.text(field);
        if !path.is_empty() {
            relative_path(errors, &at.field(field), path);
        }
    }
    let expression = mount.text("subPathExpr");
    if !expression.is_empty() && !mount.text("subPath").is_empty() {
        errors.invalid(
            &at.field("subPathExpr"),
            expression,
            "subPathExpr and subPath are mutually exclusive",
        );
    }
}

fn propagation(errors: &mut FieldErrors, at: &Path<'_>, mount: &Value, container: &Value) {
    let Some(mode) = mount.sub("mountPropagation").as_str() else {
        return;
    };
    let at = at.field("mountPropagation");
    errors.one_of(&at, mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode == "Bidirectional" && !container.sub("securityContext").on("privileged") {
        errors.forbidden(
            &at,
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
}

fn read_only(errors: &mut FieldErrors, at: &Path<'_>, mount: &Value) {
    let Some(recursive) = mount.sub("recursiveReadOnly").as_str() else {
        return;
    };
    let at = at.field("recursiveReadOnly");
    match recursive {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.on("readOnly") {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if !matches!(mount.text("mountPropagation"), "" | "None") {
                errors.forbidden(
                    &at,
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
        other => errors.unsupported(&at, other, &["Disabled", "IfPossible", "Enabled"]),
    }
}

/// Checks `volumeDevices`.
pub(super) fn devices(errors: &mut FieldErrors, list: &Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    let (mut names, mut places) = (Seen::default(), Seen::default());
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let at = list.index(index);
        let (name, place) = (device.text("name"), device.text("devicePath"));
        let name_at = at.field("name");
        if name.is_empty() {
            errors.required(&name_at, "");
        }
        if !names.add(name) {
            errors.invalid(&name_at, name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(&name_at, name),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                errors.invalid(
                    &name_at,
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
        }
        let place_at = at.field("devicePath");
        if place.is_empty() {
            errors.required(&place_at, "");
        }
        if !places.add(place) {
            errors.invalid(&place_at, place, "must be unique");
        }
        if place.split('/').any(|part| part == "..") {
            errors.invalid(&place_at, place, "can not contain backsteps ('..')");
        }
    }
}
