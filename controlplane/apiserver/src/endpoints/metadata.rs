//! Object metadata: what the server decides, what clients may change, and what is wrong with it.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/>.

use jiff::Timestamp;
use minato_meta::{ApiError, FieldError, FieldErrorClass, FieldErrors, format_time, names};
use minato_rules::ResourceInfo;
use rand::Rng;
use serde_json::{Map, Value};

use super::Target;
use super::transaction::Stored;

/// Letters of generated suffixes: no vowels and no look-alikes, so that no words come out.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const LONGEST_GENERATED_NAME: usize = 63;
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The metadata of a tree that has passed `intake`.
///
/// # Errors
/// 400 when it is no object.
pub(crate) fn of(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| ApiError::bad_request("metadata must be an object"))
}

/// A text field of the metadata; empty when absent.
pub(crate) fn text<'o>(object: &'o Value, field: &str) -> &'o str {
    object
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces the finalizers.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), finalizers.into());
        }
    }
}

/// Whether deletion has begun.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Fills in or checks the namespace.
///
/// # Errors
/// 400 when the body names another one than the path, or names one for a cluster-scoped kind.
pub(crate) fn settle_namespace(object: &mut Value, target: &Target) -> Result<(), ApiError> {
    let metadata = of(object)?;
    let named = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match &target.namespace {
        Some(namespace) if named.is_empty() => {
            metadata.insert("namespace".to_owned(), Value::String(namespace.clone()));
            Ok(())
        }
        Some(namespace) if named == namespace => Ok(()),
        None if named.is_empty() => {
            metadata.remove("namespace");
            Ok(())
        }
        _ => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// What the server alone decides on create; whatever the client sent is dropped.
///
/// # Errors
/// 400 when the client sent a resourceVersion.
pub(crate) fn begin_create(object: &mut Value) -> Result<(), ApiError> {
    let metadata = of(object)?;
    match metadata.remove("resourceVersion") {
        None | Some(Value::Null) => {}
        Some(Value::String(version)) if version.is_empty() || version == "0" => {}
        Some(_) => {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
    }
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), Value::String(uuid::Uuid::new_v4().to_string()));
    metadata.insert(
        "creationTimestamp".to_owned(),
        Value::String(format_time(Timestamp::now())),
    );
    Ok(())
}

/// Makes a name of `generateName` where none is given. Returns whether it did.
pub(crate) fn generate_name(object: &mut Value) -> bool {
    let base = text(object, "generateName");
    if base.is_empty() || !text(object, "name").is_empty() {
        return false;
    }
    let name = suffixed(base);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), Value::String(name));
    }
    true
}

/// The base, cut to what fits, with a random suffix.
pub(crate) fn suffixed(base: &str) -> String {
    let mut end = base.len().min(LONGEST_GENERATED_NAME - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    let mut random = rand::rng();
    for _ in 0..SUFFIX_LENGTH {
        name.push(char::from(
            SUFFIX_ALPHABET[random.random_range(0..SUFFIX_ALPHABET.len())],
        ));
    }
    name
}

/// Brings an update's metadata in line with what is stored: checks the identity, keeps what clients may not change.
///
/// # Errors
/// 400 for another name, 409 for another uid or a stale resourceVersion.
pub(crate) fn begin_update(object: &mut Value, current: &Stored, target: &Target) -> Result<(), ApiError> {
    settle_namespace(object, target)?;
    let group_resource = target.resource.gvr.group_resource();
    let name = text(object, "name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let old_uid = text(&current.object, "uid");
    let uid = text(object, "uid");
    if !uid.is_empty() && uid != old_uid {
        return Err(ApiError::conflict(
            &group_resource,
            &target.name,
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}"),
        ));
    }
    let revision = text(object, "resourceVersion");
    if !matches!(revision, "" | "0") && revision != current.revision.to_string() {
        return Err(match revision.parse::<u64>() {
            Ok(_) => ApiError::stale(&group_resource, &target.name),
            Err(_) => ApiError::invalid(
                &target.resource.gvk.group_kind(),
                &target.name,
                FieldErrors(vec![FieldError::invalid(
                    "metadata.resourceVersion",
                    revision,
                    "must be a number",
                )]),
            ),
        });
    }
    let old = current.object.get("metadata").and_then(Value::as_object);
    let metadata = of(object)?;
    metadata.remove("selfLink");
    metadata.insert("name".to_owned(), Value::String(target.name.clone()));
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
        match old.and_then(|old| old.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

/// Raises the generation when anything but metadata and status has changed.
pub(crate) fn bump_generation(object: &mut Value, old: &Value) {
    let changed = {
        let rest = |o: &Value| -> Map<String, Value> {
            let fields = o.as_object().into_iter().flatten();
            fields
                .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        rest(object) != rest(old)
    };
    if changed {
        raise_generation(object);
    }
}

/// Adds one to the generation.
pub(crate) fn raise_generation(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".to_owned(), Value::from(generation.saturating_add(1)));
    }
}

/// Drops repeated owner references, as upstream does with a warning. Returns the uids that were repeated.
pub(crate) fn deduplicate_owners(object: &mut Value) -> Vec<String> {
    let mut repeated = Vec::new();
    let owners = object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut);
    if let Some(owners) = owners {
        let mut seen: Vec<Value> = Vec::new();
        owners.retain(|owner| {
            if seen.contains(owner) {
                repeated.push(owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
                return false;
            }
            seen.push(owner.clone());
            true
        });
    }
    repeated
}

/// What is wrong with the metadata of an object that is to be stored.
pub(crate) fn validate(object: &Value, resource: &ResourceInfo, errors: &mut FieldErrors) {
    let name = text(object, "name");
    let generate_name = text(object, "generateName");
    if !generate_name.is_empty() {
        // A prefix is right when it is right with a suffix.
        for problem in resource.strategy.validate_name(&suffixed(generate_name)) {
            errors.push(FieldError::invalid("metadata.generateName", generate_name, problem));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for problem in resource.strategy.validate_name(name) {
            errors.push(FieldError::invalid("metadata.name", name, problem));
        }
    }
    let map = |field: &str| {
        object
            .get("metadata")
            .and_then(|m| m.get(field))
            .and_then(Value::as_object)
    };
    if let Some(labels) = map("labels") {
        validate_labels(labels, "metadata.labels", errors);
    }
    if let Some(annotations) = map("annotations") {
        validate_annotations(annotations, errors);
    }
    for finalizer in finalizers(object) {
        for problem in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, problem));
        }
    }
    validate_owners(object, errors);
}

/// What is wrong with a change of metadata.
pub(crate) fn validate_update(object: &Value, old: &Value, resource: &ResourceInfo, errors: &mut FieldErrors) {
    validate(object, resource, errors);
    if is_deleting(old) {
        let before = finalizers(old);
        let added: Vec<&str> = finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    list.join(", ")
                ),
            ));
        }
    }
}

fn validate_labels(labels: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for (key, value) in labels {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

fn validate_annotations(annotations: &Map<String, Value>, errors: &mut FieldErrors) {
    let mut total = 0;
    for (key, value) in annotations {
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key.as_str(), problem));
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_LIMIT {
        errors.push(FieldError::new(
            FieldErrorClass::TooLong,
            "metadata.annotations",
            "",
            format!("may not be more than {ANNOTATIONS_LIMIT} bytes"),
        ));
    }
}

fn validate_owners(object: &Value, errors: &mut FieldErrors) {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut controllers = 0;
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    "",
                    if field == "apiVersion" {
                        "version must not be empty"
                    } else {
                        "must not be empty"
                    },
                ));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers += 1;
        }
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            owners.map_or(Value::Null, |o| Value::Array(o.clone())),
            "Only one reference can have Controller set to true",
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_names_are_cut_and_suffixed() {
        let name = suffixed("web-");
        assert_eq!(name.len(), 9);
        assert!(name.starts_with("web-"));
        assert!(name[4..].bytes().all(|b| SUFFIX_ALPHABET.contains(&b)));
        assert_eq!(suffixed(&"a".repeat(80)).len(), 63);
        let mut named = json!({"metadata": {"name": "x", "generateName": "y"}});
        assert!(!generate_name(&mut named));
    }

    #[test]
    fn generation_follows_the_spec_alone() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"b": 1}});
        let mut status_only =
            json!({"metadata": {"generation": 3, "labels": {"x": "y"}}, "spec": {"a": 1}, "status": {"b": 2}});
        bump_generation(&mut status_only, &old);
        assert_eq!(status_only["metadata"]["generation"], 3);
        let mut spec = json!({"metadata": {"generation": 3}, "spec": {"a": 2}});
        bump_generation(&mut spec, &old);
        assert_eq!(spec["metadata"]["generation"], 4);
    }
}
