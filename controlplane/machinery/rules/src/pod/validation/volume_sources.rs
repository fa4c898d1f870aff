//! Volume sources that pods and persistent volumes share.

use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::{Path, Report as _, absolute_path, no_backsteps};
use crate::tree::Tree as _;

/// Fields without which a source names nothing.
const NEEDED: &[(&str, &[&str])] = &[
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cinder", &["volumeID"]),
    ("csi", &["driver", "volumeHandle"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("glusterfs", &["endpoints", "path"]),
    ("hostPath", &["path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("local", &["path"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["registry", "volume"]),
    ("rbd", &["image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
];

/// Checks a source by its kind; kinds that are not known pass.
pub(crate) fn persistent_source(errors: &mut FieldErrors, at: &Path<'_>, kind: &str, source: &Value) {
    if let Some((_, needed)) = NEEDED.iter().find(|(k, _)| *k == kind) {
        for field in *needed {
            if source.text(field).is_empty() {
                errors.required(&at.field(field), "");
            }
        }
    }
    match kind {
        "hostPath" => {
            if !source.text("path").is_empty() {
                no_backsteps(errors, &at.field("path"), source.text("path"));
            }
            if source.has("type") {
                errors.one_of(&at.field("type"), source.text("type"), &HOST_PATH_TYPES);
            }
        }
        "local" if !source.text("path").is_empty() => {
            no_backsteps(errors, &at.field("path"), source.text("path"));
        }
        "nfs" => absolute_path(errors, &at.field("path"), source.text("path")),
        "rbd" | "cephfs" if source.list("monitors").is_empty() => {
            errors.required(&at.field("monitors"), "");
        }
        "iscsi" => {
            let iqn = source.text("iqn");
            let known = ["iqn.", "eui.", "naa."].iter().any(|p| iqn.starts_with(p));
            if !iqn.is_empty() && !known {
                errors.invalid(
                    &at.field("iqn"),
                    iqn,
                    "must be valid format starting with iqn, eui, or naa",
                );
            }
            if !(0..=255).contains(&source.count("lun")) {
                errors.within(&at.field("lun"), source.count("lun"), 0, 255);
            }
        }
        "fc" => {
            let (names, wwids) = (source.list("targetWWNs"), source.list("wwids"));
            if names.is_empty() && wwids.is_empty() {
                errors.required(
                    &at.field("targetWWNs"),
                    "must specify either targetWWNs or wwids, but not both",
                );
            }
        }
        _ => {}
    }
}
