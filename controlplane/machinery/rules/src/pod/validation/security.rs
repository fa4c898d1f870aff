//! Security contexts of pods and containers.

use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::{Path, Report as _, Seen, relative_path};
use crate::tree::Tree as _;

fn identities(errors: &mut FieldErrors, at: &Path<'_>, context: &Value, fields: &[&'static str]) {
    for field in fields {
        if let Some(id) = context.int(field) {
            errors.within(&at.field(field), id, 0, i64::from(i32::MAX));
        }
    }
}

/// Checks the security context of a pod spec.
pub(super) fn pod_context(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let (at, context) = (at.field("securityContext"), spec.sub("securityContext"));
    identities(errors, &at, context, &["runAsUser", "runAsGroup", "fsGroup"]);
    let groups = at.field("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        errors.within(
            &groups.index(index),
            group.as_i64().unwrap_or(0),
            0,
            i64::from(i32::MAX),
        );
    }
    for (field, allowed) in [
        ("fsGroupChangePolicy", ["OnRootMismatch", "Always"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if context.has(field) {
            errors.one_of(&at.field(field), context.text(field), &allowed);
        }
    }
    if spec.on("shareProcessNamespace") && spec.on("hostPID") {
        errors.invalid(
            &at.field("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    let mut names = Seen::default();
    let list = at.field("sysctls");
    for (index, sysctl) in context.list("sysctls").iter().enumerate() {
        let at = list.index(index).field("name").to_string();
        let at = Path::Root.field(&at);
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl(name) {
            errors.invalid(
                &at,
                name,
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else {
            names.note(errors, &at, name);
        }
    }
    profiles(errors, &at, context);
}

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            ends(part.bytes().next())
                && ends(part.bytes().last())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        })
}

/// Checks the security context of a container.
pub(super) fn container_context(errors: &mut FieldErrors, at: &Path<'_>, context: &Value) {
    if context.is_null() {
        return;
    }
    identities(errors, at, context, &["runAsUser", "runAsGroup"]);
    if context.has("procMount") {
        errors.one_of(
            &at.field("procMount"),
            context.text("procMount"),
            &["Default", "Unmasked"],
        );
    }
    profiles(errors, at, context);
    if context.sub("allowPrivilegeEscalation").as_bool() == Some(false) {
        if context.on("privileged") {
            errors.invalid(
                at,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        let added = context.at("capabilities.add").as_list();
        if added.iter().any(|c| c.as_text() == "CAP_SYS_ADMIN") {
            errors.invalid(
                at,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
}

/// Profiles of seccomp and AppArmor.
fn profiles(errors: &mut FieldErrors, at: &Path<'_>, context: &Value) {
    for (field, what) in [("seccompProfile", "seccomp type"), ("appArmorProfile", "AppArmor type")] {
        let profile = context.sub(field);
        if profile.is_null() {
            continue;
        }
        let at = at.field(field);
        let local_at = at.field("localhostProfile");
        let kind = profile.text("type");
        errors.one_of_required(&at.field("type"), kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
        let local = profile.sub("localhostProfile");
        if kind == "Localhost" {
            match local.as_text() {
                "" => errors.required(&local_at, &format!("must be set when {what} is Localhost ")),
                path if field == "seccompProfile" => relative_path(errors, &local_at, path),
                name if name.trim() != name => {
                    errors.invalid(&local_at, name, "must not be padded with whitespace");
                }
                _ => {}
            }
        } else if !local.is_null() {
            errors.invalid(
                &local_at,
                local.clone(),
                format!("can only be set when {what} is Localhost"),
            );
        }
    }
}
