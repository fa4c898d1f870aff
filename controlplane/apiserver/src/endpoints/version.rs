//! Objects between the version of the request and the version of the store.

use minato_meta::GroupVersion;
use minato_rules::ResourceInfo;
use serde_json::Value;

/// Whether a kind is stored in the version in which it is served here.
pub(crate) fn is_stored_version(resource: &ResourceInfo) -> bool {
    resource.gvr.group == resource.storage.group && resource.gvr.version == resource.storage_version
}

/// Turns an object of the request's version into one of the stored version.
pub(crate) fn to_storage(resource: &ResourceInfo, object: &mut Value) {
    if !is_stored_version(resource) {
        stamp(
            object,
            &GroupVersion::new(&resource.storage.group, &resource.storage_version),
        );
    }
}

/// Turns a stored object into one of the request's version.
pub(crate) fn from_storage(resource: &ResourceInfo, object: &mut Value) {
    if !is_stored_version(resource) {
        stamp(object, &resource.gvk.group_version());
    }
}

fn stamp(object: &mut Value, version: &GroupVersion) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), Value::String(version.to_string()));
    }
}
