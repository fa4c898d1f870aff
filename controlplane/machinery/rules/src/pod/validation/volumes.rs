//! Volumes of pods.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use super::environment::{FILE_FIELDS, field_reference, resource_reference};
use super::mounts::Volumes;
use super::volume_sources::persistent_source;
use crate::check::{Amount, Path, Report as _, Seen, relative_path, resource_amount};
use crate::tree::Tree as _;

const MOST_MODE: i64 = 0o777;
const MODE_RANGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// Tokens live ten minutes at least, and no longer than 2^32 seconds.
const LEAST_TOKEN_SECONDS: i64 = 600;
const MOST_TOKEN_SECONDS: i64 = 1 << 32;

/// Checks `volumes`, and returns them by name.
pub(super) fn volumes<'v>(errors: &mut FieldErrors, list: &Path<'_>, spec: &'v Value) -> Volumes<'v> {
    let mut by_name = Volumes::new();
    let mut names_seen = Seen::default();
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        let at = list.index(index);
        let name = volume.text("name");
        let before = errors.0.len();
        source(errors, &at, volume);
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            errors.named(&at.field("name"), name, names::dns1123_label);
        }
        let fine = errors.0.len() == before;
        names_seen.note(errors, &at.field("name"), name);
        // What is wrong with a volume is told once, not again by its mounts.
        if fine || !name.is_empty() {
            by_name.insert(name, volume);
        }
    }
    by_name
}

fn source(errors: &mut FieldErrors, at: &Path<'_>, volume: &Value) {
    let mut count = 0;
    for (kind, source) in volume.entries() {
        if kind == "name" || source.is_null() {
            continue;
        }
        count += 1;
        let at = at.field(kind);
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        one_source(errors, &at, kind, source);
    }
    if count == 0 {
        errors.required(at, "must specify a volume type");
    }
}

fn one_source(errors: &mut FieldErrors, at: &Path<'_>, kind: &str, source: &Value) {
    match kind {
        "emptyDir" => empty_dir(errors, at, source),
        "secret" => {
            if source.text("secretName").is_empty() {
                errors.required(&at.field("secretName"), "");
            }
            files(errors, at, source);
        }
        "configMap" => {
            if source.text("name").is_empty() {
                errors.required(&at.field("name"), "");
            }
            files(errors, at, source);
        }
        "downwardAPI" => downward(errors, at, source),
        "projected" => projected(errors, at, source),
        "persistentVolumeClaim" => {
            if source.text("claimName").is_empty() {
                errors.required(&at.field("claimName"), "");
            }
        }
        "gitRepo" => {
            if source.text("repository").is_empty() {
                errors.required(&at.field("repository"), "");
            }
            let directory = source.text("directory");
            if !directory.is_empty() {
                relative_path(errors, &at.field("directory"), directory);
            }
        }
        "ephemeral" => ephemeral(errors, at, source),
        "image" => {
            if source.text("reference").is_empty() {
                errors.required(&at.field("reference"), "");
            }
            errors.one_of_required(
                &at.field("pullPolicy"),
                source.text("pullPolicy"),
                &["Always", "IfNotPresent", "Never"],
            );
        }
        "csi" => csi(errors, at, source),
        other => persistent_source(errors, at, other, source),
    }
}

fn empty_dir(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    if source.has("sizeLimit") {
        let limit = source.sub("sizeLimit");
        let mut found = FieldErrors::default();
        resource_amount(&mut found, &at.field("sizeLimit"), "memory", limit, Amount::NotNegative);
        if !found.is_empty() {
            errors.forbidden(
                &at.field("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
    }
    let medium = source.text("medium");
    if !matches!(medium, "" | "Memory" | "HugePages") && !medium.starts_with("HugePages-") {
        errors.unsupported(&at.field("medium"), medium, &["", "HugePages", "Memory"]);
    }
}

fn csi(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    let driver = source.text("driver");
    if driver.is_empty() {
        errors.required(&at.field("driver"), "");
    } else {
        errors.named(&at.field("driver"), &driver.to_lowercase(), names::dns1123_subdomain);
    }
    if source.has("nodePublishSecretRef") && source.at("nodePublishSecretRef.name").as_text().is_empty() {
        errors.required(&at.field("nodePublishSecretRef").field("name"), "");
    }
}

fn ephemeral(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    let at = at.field("volumeClaimTemplate");
    if !source.has("volumeClaimTemplate") {
        errors.required(&at, "");
        return;
    }
    let spec = source.at("volumeClaimTemplate.spec");
    crate::kinds::core::claim_spec(errors, &at.field("spec"), spec);
}

fn mode(errors: &mut FieldErrors, at: &Path<'_>, value: &Value) {
    if let Some(mode) = value.as_i64()
        && !(0..=MOST_MODE).contains(&mode)
    {
        errors.invalid(at, mode, MODE_RANGE);
    }
}

/// `defaultMode` and `items` of secrets and config maps.
fn files(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    mode(errors, &at.field("defaultMode"), source.sub("defaultMode"));
    let list = at.field("items");
    for (index, item) in source.list("items").iter().enumerate() {
        let at = list.index(index);
        if item.text("key").is_empty() {
            errors.required(&at.field("key"), "");
        }
        file_path(errors, &at, item);
        mode(errors, &at.field("mode"), item.sub("mode"));
    }
}

fn file_path(errors: &mut FieldErrors, at: &Path<'_>, item: &Value) {
    let (at, path) = (at.field("path"), item.text("path"));
    if path.is_empty() {
        errors.required(&at, "");
    }
    relative_path(errors, &at, path);
    if path.starts_with("..") && !path.starts_with("../") && path != ".." {
        errors.invalid(&at, path, "must not start with '..'");
    }
}

fn downward(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    mode(errors, &at.field("defaultMode"), source.sub("defaultMode"));
    let list = at.field("items");
    for (index, item) in source.list("items").iter().enumerate() {
        let at = list.index(index);
        file_path(errors, &at, item);
        match (item.has("fieldRef"), item.has("resourceFieldRef")) {
            (true, true) => errors.invalid(
                &at,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            ),
            (true, false) => field_reference(errors, &at.field("fieldRef"), item.sub("fieldRef"), FILE_FIELDS),
            (false, true) => resource_reference(
                errors,
                &at.field("resourceFieldRef"),
                item.sub("resourceFieldRef"),
                true,
            ),
            (false, false) => errors.required(&at, "one of fieldRef and resourceFieldRef is required"),
        }
        mode(errors, &at.field("mode"), item.sub("mode"));
    }
}

fn projected(errors: &mut FieldErrors, at: &Path<'_>, source: &Value) {
    mode(errors, &at.field("defaultMode"), source.sub("defaultMode"));
    let list = at.field("sources");
    for (index, part) in source.list("sources").iter().enumerate() {
        let at = list.index(index);
        let mut count = 0;
        for (kind, value) in part.entries().filter(|(_, value)| !value.is_null()) {
            count += 1;
            let at = at.field(kind);
            if count > 1 {
                errors.forbidden(&at, "may not specify more than 1 volume type per source");
                continue;
            }
            match kind.as_str() {
                "secret" | "configMap" => {
                    if value.text("name").is_empty() {
                        errors.required(&at.field("name"), "");
                    }
                    files(errors, &at, value);
                }
                "downwardAPI" => downward(errors, &at, value),
                "serviceAccountToken" => token(errors, &at, value),
                "clusterTrustBundle" | "podCertificate" => {}
                _ => {}
            }
        }
        if count == 0 {
            errors.required(&at, "must specify a volume source");
        }
    }
}

fn token(errors: &mut FieldErrors, at: &Path<'_>, value: &Value) {
    let seconds = value.count("expirationSeconds");
    let seconds_at = at.field("expirationSeconds");
    if seconds < LEAST_TOKEN_SECONDS {
        errors.invalid(&seconds_at, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > MOST_TOKEN_SECONDS {
        errors.invalid(
            &seconds_at,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if value.text("path").is_empty() {
        errors.required(&at.field("path"), "");
    } else {
        file_path(errors, at, value);
    }
}
