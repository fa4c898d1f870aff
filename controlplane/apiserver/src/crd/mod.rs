//! Kinds that users bring: CustomResourceDefinitions into served kinds.
//!
//! ```text
//! follow.rs  one task: follows the definitions, settles their names, serves them, sees their objects off
//! names.rs   which names a definition gets, and its conditions (pure)
//! kinds.rs   a definition into the descriptors of its versions (pure)   strategy.rs  how such a kind behaves
//! cleanup.rs deletes the objects of a definition that goes              json_path.rs  paths of columns and fields
//! ```
//!
//! What is served is one table that is replaced as a whole (`registry.rs`): there is no moment in which a part of a
//! definition is there. Source:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

mod cleanup;
mod follow;
mod json_path;
mod kinds;
mod names;
mod strategy;

pub(crate) use follow::start;

use minato_meta::{GroupResource, GroupVersionResource};
use serde_json::Value;

/// Where definitions are stored.
fn definitions() -> GroupResource {
    GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions")
}

fn definitions_v1() -> GroupVersionResource {
    GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn is_on(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer) == Some(&Value::Bool(true))
}

/// Whether a condition of a definition is true.
fn is_condition_true(definition: &Value, kind: &str) -> bool {
    let mut conditions = list(definition, "/status/conditions").iter();
    conditions.any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

fn is_terminating(definition: &Value) -> bool {
    !text(definition, "/metadata/deletionTimestamp").is_empty() || is_condition_true(definition, "Terminating")
}
