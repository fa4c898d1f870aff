//! Server-side apply, and the ownership that plain writes gain.
//!
//! An applier owns exactly the fields of its last configuration: leaving one out gives it up, and removes it unless
//! someone else holds it. An updater owns what it changed. A conflict is an applier changing what another manager owns.
//! Sources: <https://kubernetes.io/docs/reference/using-api/server-side-apply/>, KEP-555.
//!
//! Entries of other API versions of the kind are compared path by path, as if their paths were those of this version.

mod managers;
mod walk;

use std::sync::OnceLock;

use jiff::Timestamp;
use minato_meta::{ApiError, Cause, ErrorKind, format_time};
use minato_schema::{Schema, to_go_shape};
use serde_json::{Map, Value};

use crate::field_set::{FieldSet, display_path};
use managers::{Identity, Manager, Managers, Operation, Said};
use walk::{Difference, difference, fields_of, merge, remove_dropped};

/// Owner of what was there before the first apply of an object without managers.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// What `kubectl apply` keeps of its last configuration when it merges on the client's side.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Manager of server-side `kubectl apply`.
const KUBECTL: &str = "kubectl";

/// Who writes, and how ownership is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Field manager: the query parameter, or the user agent up to its first `/`.
    pub manager: &'a str,
    /// Subresource written through; empty for the main one.
    pub subresource: &'a str,
    /// API version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Trees that this endpoint resets, so that nobody gains them here: `status` on the main endpoint.
    pub ignored: &'a FieldSet,
    /// The time of the write.
    pub now: Timestamp,
}

/// A server-side apply.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a> {
    /// The object as it is, in Go's shape; `None` when the apply creates it.
    pub live: Option<&'a Value>,
    /// The configuration: decoded, pruned of unknown fields, not defaulted.
    pub config: &'a Value,
    /// Schema of the kind.
    pub schema: &'a Schema,
    /// Who applies.
    pub writer: Writer<'a>,
    /// Whether to take fields from others.
    pub force: bool,
}

/// One field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, as messages name it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

/// Why a configuration cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields: 409.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration cannot be applied at all: 400.
    #[error("{0}")]
    BadConfig(String),
}

impl ApplyError {
    /// The answer for the client.
    pub fn into_api_error(self) -> ApiError {
        let message = self.to_string();
        match self {
            Self::BadConfig(_) => ApiError::bad_request(message),
            Self::Conflicts(conflicts) => {
                conflicts
                    .into_iter()
                    .fold(ApiError::new(ErrorKind::Conflict, message), |error, conflict| {
                        error.with_cause(Cause {
                            reason: "FieldManagerConflict".to_owned(),
                            message: format!("conflict with {}", conflict.manager),
                            field: conflict.field,
                        })
                    })
            }
        }
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.field
        );
    }
    let mut lines = Vec::new();
    let mut managers: Vec<&str> = conflicts.iter().map(|c| c.manager.as_str()).collect();
    managers.sort_unstable();
    managers.dedup();
    for manager in managers {
        lines.push(format!("conflicts with {manager}:"));
        let theirs = conflicts.iter().filter(|c| c.manager == manager);
        lines.extend(theirs.map(|c| format!("- {}", c.field)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies a configuration and returns the new object, in Go's shape and with its managers. It is not defaulted.
///
/// When nothing changes, the result equals `live`, timestamps included: comparing them tells a write that is none.
///
/// # Errors
/// [`ApplyError::Conflicts`] unless forced; [`ApplyError::BadConfig`] when list items of the configuration cannot be told
/// apart, or it brings `managedFields`.
pub fn apply(request: &Apply<'_>) -> Result<Value, ApplyError> {
    if let Some(Value::Array(list)) = request.config.get("metadata").and_then(|m| m.get("managedFields"))
        && !list.is_empty()
    {
        return Err(ApplyError::BadConfig("metadata.managedFields must be nil".to_owned()));
    }
    match apply_once(request, request.force) {
        Err(ApplyError::Conflicts(conflicts)) if migrates_from_client_side(request, &conflicts) => {
            apply_once(request, true)
        }
        other => other,
    }
}

fn apply_once(request: &Apply<'_>, force: bool) -> Result<Value, ApplyError> {
    let (schema, writer) = (request.schema, &request.writer);
    let empty = Value::Object(Map::new());
    let live_with_managers = request.live.unwrap_or(&empty);
    let live = without_managers(live_with_managers);
    let mut managers = Managers::of(live_with_managers);
    if request.live.is_some() && managers.0.is_empty() {
        own_what_was_there(&mut managers, &live, schema, writer);
    }
    let identity = Identity::new(writer.manager, Operation::Apply, writer.subresource, writer.api_version);
    let last = managers.get(&identity).cloned();

    let mut config = without_managers(request.config);
    update_last_applied(&mut config, &live, writer);
    let mut fields = fields_of(&config, schema)
        .map_err(|e| ApplyError::BadConfig(format!("failed to create typed patch object: {e}")))?;
    fields.subtract_trees(writer.ignored);
    let mut merged = merge(Some(&live), &config, schema)
        .map_err(|e| ApplyError::BadConfig(format!("failed to merge the configuration: {e}")))?;

    if let Some(last) = &last {
        let mut keep = fields.clone();
        for other in managers.0.iter().filter(|m| m.identity != identity) {
            keep.union(&other.fields);
        }
        remove_dropped(&mut merged, schema, &last.fields, &keep);
    }

    // Values that Go leaves out or writes otherwise (`false`, `cpu: 1`) are no changes.
    to_go_shape(&mut merged, schema);
    fields.subtract(server_fields());
    let changes = difference(&live, &merged, schema);
    settle(&mut managers, &identity, &changes, writer, force)?;
    let unchanged = changes.is_empty()
        && last
            .as_ref()
            .is_some_and(|m| m.fields == fields && m.api_version == writer.api_version);
    let time = match last {
        Some(last) if unchanged => last.time,
        _ => Some(format_time(writer.now)),
    };
    managers.set(Manager {
        identity,
        api_version: writer.api_version.to_owned(),
        time,
        fields,
    });
    managers.drop_empty();
    managers.cap();
    managers.write(&mut merged);
    Ok(merged)
}

/// Records in `new` what a create (`old` is `None`), update or patch changed, and writes its list of managers.
///
/// Both objects are in Go's shape. A list that `new` brings replaces the old one (clients may edit it) except through
/// subresources; `[{}]` clears it. An object whose managers were cleared is not tracked again until it is applied.
pub fn track_update(old: Option<&Value>, new: &mut Value, schema: &Schema, writer: &Writer<'_>) {
    let said_by_old = || old.map(Managers::of).unwrap_or_default();
    let mut managers = match Managers::said_by(new) {
        Said::Reset if writer.subresource.is_empty() => Managers::default(),
        Said::List(list) if writer.subresource.is_empty() => list,
        _ => said_by_old(),
    };
    if managers.0.is_empty() && old.is_some() {
        managers.write(new);
        return;
    }
    let empty = Value::Object(Map::new());
    // The lists of managers differ too, but nobody owns those.
    let changes = difference(old.unwrap_or(&empty), new, schema);
    let identity = Identity::new(
        writer.manager,
        Operation::Update,
        writer.subresource,
        writer.api_version,
    );
    // Updates take fields from whomever has them, so there are no conflicts to report.
    let _ = settle(&mut managers, &identity, &changes, writer, true);
    own_changes(&mut managers, identity, &changes, writer);
    managers.drop_empty();
    managers.cap();
    managers.write(new);
}

/// Whether two objects differ in nothing but the times of their managers and `resourceVersion`.
pub fn same_but_for_times(a: &Value, b: &Value) -> bool {
    let same_metadata = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_objects(a, b, &|key, a, b| match key {
            "resourceVersion" => true,
            "managedFields" => same_managers(a, b),
            _ => a == b,
        }),
        _ => a == b,
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_objects(a, b, &|key, a, b| {
            if key == "metadata" { same_metadata(a, b) } else { a == b }
        }),
        _ => a == b,
    }
}

/// Compares member by member; an absent one is `null`.
fn same_objects(a: &Map<String, Value>, b: &Map<String, Value>, same: &dyn Fn(&str, &Value, &Value) -> bool) -> bool {
    let null = Value::Null;
    let only_b = b.iter().filter(|(key, _)| !a.contains_key(*key));
    a.iter()
        .all(|(key, value)| same(key, value, b.get(key).unwrap_or(&null)))
        && only_b.into_iter().all(|(key, value)| same(key, &null, value))
}

/// The order of entries follows their times, so it does not count either.
fn same_managers(a: &Value, b: &Value) -> bool {
    let (Value::Array(a), Value::Array(b)) = (a, b) else {
        return a == b;
    };
    let same_entry = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => same_objects(a, b, &|key, a, b| key == "time" || a == b),
        _ => a == b,
    };
    a.len() == b.len() && a.iter().all(|x| b.iter().any(|y| same_entry(x, y)))
}

/// Takes from the others what they no longer own; tells conflicts unless forced.
fn settle(
    managers: &mut Managers,
    identity: &Identity,
    changes: &Difference,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(), ApplyError> {
    let mut taken = changes.modified.clone();
    taken.union(&changes.added);
    taken.subtract_trees(writer.ignored);
    let mut removed = changes.removed.clone();
    removed.subtract_trees(writer.ignored);
    let mut conflicts = Vec::new();
    for other in managers.0.iter().filter(|m| m.identity != *identity) {
        for path in other.fields.intersection(&taken).paths() {
            conflicts.push(Conflict {
                manager: other.identity.shown(),
                field: display_path(&path),
            });
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    for other in managers.0.iter_mut().filter(|m| m.identity != *identity) {
        other.fields.subtract(&taken);
        other.fields.subtract(&removed);
    }
    Ok(())
}

/// Gives an updater what it changed.
fn own_changes(managers: &mut Managers, identity: Identity, changes: &Difference, writer: &Writer<'_>) {
    let last = managers.get(&identity).cloned();
    let mut fields = last.as_ref().map(|m| m.fields.clone()).unwrap_or_default();
    fields.subtract(&changes.removed);
    fields.union(&changes.modified);
    fields.union(&changes.added);
    fields.subtract_trees(writer.ignored);
    fields.subtract(server_fields());
    let mut touched = changes.modified.clone();
    touched.union(&changes.added);
    touched.union(&changes.removed);
    touched.subtract_trees(writer.ignored);
    touched.subtract(server_fields());
    let time = match last {
        Some(last) if touched.is_empty() && last.fields == fields => last.time,
        _ => Some(format_time(writer.now)),
    };
    managers.set(Manager {
        identity,
        api_version: writer.api_version.to_owned(),
        time,
        fields,
    });
}

fn own_what_was_there(managers: &mut Managers, live: &Value, schema: &Schema, writer: &Writer<'_>) {
    let changes = difference(&Value::Object(Map::new()), live, schema);
    let identity = Identity::new(BEFORE_FIRST_APPLY, Operation::Update, "", writer.api_version);
    own_changes(managers, identity, &changes, writer);
    managers.drop_empty();
}

/// Fields of which the server decides; nobody owns them.
fn server_fields() -> &'static FieldSet {
    static FIELDS: OnceLock<FieldSet> = OnceLock::new();
    FIELDS.get_or_init(|| {
        FieldSet::of_paths(&[
            "apiVersion",
            "kind",
            "metadata",
            "metadata.name",
            "metadata.namespace",
            "metadata.creationTimestamp",
            "metadata.selfLink",
            "metadata.uid",
            "metadata.generation",
            "metadata.managedFields",
            "metadata.resourceVersion",
        ])
    })
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    object
}

fn last_applied(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()
}

/// Keeps the annotation of client-side apply true when the same person applies from the server's side, so that going
/// back does not undo what was applied since.
fn update_last_applied(config: &mut Value, live: &Value, writer: &Writer<'_>) {
    if writer.manager != KUBECTL || !writer.subresource.is_empty() || last_applied(live).is_none() {
        return;
    }
    let mut plain = config.clone();
    if let Some(Value::Object(metadata)) = plain.get_mut("metadata") {
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
        for key in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(key);
        }
    }
    let text = format!("{plain}\n");
    if let Value::Object(config) = config
        && let Value::Object(metadata) = config.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
        && let Value::Object(annotations) = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()))
    {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    }
}

/// Whether `kubectl apply --server-side` only meets itself: all conflicting fields stand as its last client-side apply
/// left them.
fn migrates_from_client_side(request: &Apply<'_>, conflicts: &[Conflict]) -> bool {
    if request.writer.manager != KUBECTL {
        return false;
    }
    let Some(live) = request.live else { return false };
    let Some(Ok(config)) = last_applied(live).map(serde_json::from_str::<Value>) else {
        return false;
    };
    let Ok(mut allowed) = fields_of(&config, request.schema) else {
        return false;
    };
    // Changed by someone since, or never really applied.
    let since = difference(&config, live, request.schema);
    allowed.subtract(&since.modified);
    allowed.subtract(&since.removed);
    let allowed: Vec<String> = allowed.paths().iter().map(|p| display_path(p)).collect();
    conflicts
        .iter()
        .all(|c| allowed.contains(&c.field) || c.field == format!(".metadata.annotations.{LAST_APPLIED}"))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
