//! Who manages which field: what the write path tells `minato-patch`, and what it gets back.

use std::sync::LazyLock;

use jiff::Timestamp;
use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind};
use minato_patch::{Apply, FieldSet, Writer};
use minato_rules::ResourceInfo;
use serde_json::Value;

use super::options::WriteOptions;
use crate::registry::Registry;

/// Fields that nobody gains through the main endpoint, and those through the status endpoint. Constants.
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(&["status"]));
static SPEC: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(&["spec", "metadata.ownerReferences"]));
static NONE: LazyLock<FieldSet> = LazyLock::new(FieldSet::default);

fn ignored(resource: &ResourceInfo, subresource: &str) -> &'static FieldSet {
    match subresource {
        "status" => &SPEC,
        "" if resource.has_status() => &STATUS,
        _ => &NONE,
    }
}

/// Books the difference between `old` and `new` to the request's manager, in `new`'s `metadata.managedFields`.
pub(crate) fn record(
    registry: &Registry,
    resource: &ResourceInfo,
    subresource: &str,
    old: Option<&Value>,
    new: &mut Value,
    options: &WriteOptions,
) {
    let Some(schema) = registry.schema(resource) else {
        return;
    };
    let api_version = resource.gvk.group_version().to_string();
    let writer = Writer {
        manager: &options.field_manager,
        subresource,
        api_version: &api_version,
        ignored: ignored(resource, subresource),
        now: Timestamp::now(),
    };
    minato_patch::track_update(old, new, &schema, &writer);
}

/// Merges an applied configuration into the live object, or makes the object when there is none.
///
/// # Errors
/// 409 with the conflicts unless forced, 400 for configurations that cannot be merged, 422 without a manager.
pub(crate) fn apply(
    registry: &Registry,
    resource: &ResourceInfo,
    subresource: &str,
    live: Option<&Value>,
    config: &Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    if !options.manager_named {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        let kind = GroupKind::new("meta.k8s.io", "PatchOptions");
        return Err(ApiError::invalid(&kind, "", FieldErrors(vec![error])));
    }
    let schema = registry
        .schema(resource)
        .ok_or_else(|| ApiError::internal("the kind has no schema"))?;
    let api_version = resource.gvk.group_version().to_string();
    minato_patch::apply(&Apply {
        live,
        config,
        schema: &schema,
        writer: Writer {
            manager: &options.field_manager,
            subresource,
            api_version: &api_version,
            ignored: ignored(resource, subresource),
            now: Timestamp::now(),
        },
        force: options.force,
    })
    .map_err(minato_patch::ApplyError::into_api_error)
}
