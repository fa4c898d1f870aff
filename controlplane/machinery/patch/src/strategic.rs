//! Strategic merge patch, driven by the patch strategies and merge keys of built-in kinds.
//!
//! Lists with the strategy `merge` merge by one key (or as sets of scalars); all others are replaced. Directives:
//! `$patch: replace | delete | merge`, `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD`, `$retainKeys`.
//! Sources: <https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/>,
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md>.

use std::collections::{HashMap, HashSet};

use minato_schema::{Field, Schema};
use serde_json::{Map, Value};

use crate::PatchError;
use crate::order::{Identity, interleave};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Merges `patch` into `target`, an object of the kind that `schema` describes. `target` is unchanged on error.
///
/// Only built-in kinds have patch strategies: callers answer 415 for custom ones.
///
/// # Errors
/// [`PatchError::Malformed`] for directives of a wrong form, [`PatchError::DoesNotApply`] for unknown directives, lists of
/// lists and list items without their merge key.
pub fn strategic_merge_patch(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed("the patch must be an object".to_owned()));
    };
    let original = match target {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    *target = Value::Object(merge_object(original, patch, schema)?);
    Ok(())
}

fn malformed<T>(text: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Malformed(text.into()))
}

fn does_not_apply<T>(text: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::DoesNotApply(text.into()))
}

fn merge_object(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: &Schema,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(Value::String(directive)) if directive == "replace" => original = Map::new(),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return does_not_apply(format!("unknown patch type found: {other}")),
    }
    retain_keys(&mut original, patch)?;
    for (key, change) in patch {
        if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(ORDER_PREFIX) {
            continue;
        }
        if let Some(name) = key.strip_prefix(DELETE_PREFIX) {
            delete_scalars(&mut original, name, change)?;
            continue;
        }
        if change.is_null() {
            original.remove(key);
            continue;
        }
        let live = original.remove(key);
        let order = element_order(patch, key)?;
        let merged = merge_value(live, change, schema, key, order)?;
        original.insert(key.clone(), merged);
    }
    // An order may come without changes, or with deletions only.
    for (key, order) in patch {
        let Some(name) = key.strip_prefix(ORDER_PREFIX) else {
            continue;
        };
        let Value::Array(order) = order else {
            return malformed("invalid $setElementOrder list");
        };
        if patch.get(name).is_some_and(Value::is_array) {
            continue;
        }
        if let Some(Value::Array(list)) = original.get_mut(name) {
            let identity = Identity::new(merge_key(schema.field(name)));
            let live = list.clone();
            *list = interleave(std::mem::take(list), order, &live, &identity);
        }
    }
    Ok(original)
}

fn merge_key(field: Option<&Field>) -> Option<&str> {
    field.and_then(|f| f.patch.as_ref())?.merge_key.as_deref()
}

fn merge_value(
    live: Option<Value>,
    change: &Value,
    schema: &Schema,
    key: &str,
    order: Option<&Vec<Value>>,
) -> Result<Value, PatchError> {
    let field = schema.field(key);
    match change {
        Value::Object(change) => {
            let live = match live {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            let (child, _) = schema.member(key);
            merge_object(live, change, child).map(Value::Object)
        }
        Value::Array(change) => {
            let live = match live {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            };
            let merges = field.and_then(|f| f.patch.as_ref()).is_some_and(|p| p.merge);
            if let Some(order) = order {
                follows_order(change, order, merge_key(field))?;
            }
            let (child, _) = schema.member(key);
            let items = child.items().unwrap_or(Schema::anything());
            if merges {
                merge_list(live, change, items, merge_key(field), order).map(Value::Array)
            } else {
                change.iter().map(|item| clean(item, items)).collect()
            }
        }
        scalar => Ok(scalar.clone()),
    }
}

/// A value that is taken as it is, without the directives in it.
fn clean(value: &Value, schema: &Schema) -> Result<Value, PatchError> {
    match value {
        Value::Object(map) => merge_object(Map::new(), map, schema).map(Value::Object),
        Value::Array(list) => {
            let items = schema.items().unwrap_or(Schema::anything());
            list.iter().map(|item| clean(item, items)).collect()
        }
        scalar => Ok(scalar.clone()),
    }
}

fn merge_list(
    live: Vec<Value>,
    patch: &[Value],
    items: &Schema,
    key: Option<&str>,
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, PatchError> {
    if live.iter().chain(patch).any(Value::is_array) {
        return does_not_apply("lists of lists are not supported");
    }
    let objects = live.iter().chain(patch).any(Value::is_object);
    if !objects {
        let identity = Identity::new(None);
        let mut seen = HashSet::with_capacity(live.len() + patch.len());
        let merged = live
            .iter()
            .chain(patch)
            .filter(|item| seen.insert(*item))
            .cloned()
            .collect();
        return Ok(interleave(merged, order.map_or(patch, Vec::as_slice), &live, &identity));
    }
    let Some(key) = key else {
        return does_not_apply(format!(
            "cannot merge lists without merge key for {}",
            items.type_name()
        ));
    };
    let mut gone: HashSet<&Value> = HashSet::new();
    let mut changes: Vec<&Map<String, Value>> = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Value::Object(item) = item else {
            return does_not_apply("a list must hold objects or scalars, not both");
        };
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => changes.push(item),
            Some(Some("merge")) => changes.push(item),
            Some(Some("replace")) => {
                replace = true;
                // An item of its own besides the directive is part of the new list.
                if item.len() > 1 {
                    changes.push(item);
                }
            }
            Some(Some("delete")) => {
                gone.insert(item.get(key).ok_or_else(|| no_key(item, key))?);
            }
            Some(_) => return does_not_apply(format!("unknown patch type found: {}", item[DIRECTIVE])),
        }
    }
    if replace {
        return changes
            .into_iter()
            .map(|item| clean(&without_directive(item), items))
            .collect();
    }
    let mut merged = live.clone();
    merged.retain(|item| !item.get(key).is_some_and(|id| gone.contains(id)));
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len());
    for (at, item) in merged.iter().enumerate() {
        if let Some(id) = item.get(key) {
            places.entry(id.clone()).or_insert(at);
        }
    }
    let mut touched = Vec::with_capacity(changes.len());
    for item in changes {
        let value = item.get(key).ok_or_else(|| no_key(item, key))?;
        touched.push(Value::Object(item.clone()));
        if let Some(at) = places.get(value)
            && let Some(Value::Object(live)) = merged.get_mut(*at)
        {
            *live = merge_object(std::mem::take(live), item, items)?;
        } else {
            places.insert(value.clone(), merged.len());
            merged.push(Value::Object(merge_object(Map::new(), item, items)?));
        }
    }
    let identity = Identity::new(Some(key));
    Ok(interleave(
        merged,
        order.map_or(touched.as_slice(), Vec::as_slice),
        &live,
        &identity,
    ))
}

fn without_directive(item: &Map<String, Value>) -> Value {
    let mut item = item.clone();
    item.remove(DIRECTIVE);
    Value::Object(item)
}

fn no_key(item: &Map<String, Value>, key: &str) -> PatchError {
    let item = Value::Object(item.clone());
    PatchError::DoesNotApply(format!("map: {item} does not contain declared merge key: {key}"))
}

/// `$retainKeys` names all keys that may stay; the patch must not set others.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return malformed("bad patch format for $retainKeys: must be a list");
    };
    let kept = |name: &str| keys.iter().any(|k| k.as_str() == Some(name));
    let plain = |name: &str| !name.starts_with('$');
    if patch
        .iter()
        .any(|(name, value)| plain(name) && !value.is_null() && !kept(name))
    {
        return malformed("bad patch format for $retainKeys: the patch sets a key that the list does not name");
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

fn delete_scalars(original: &mut Map<String, Value>, name: &str, gone: &Value) -> Result<(), PatchError> {
    let Value::Array(gone) = gone else {
        return malformed("invalid $deleteFromPrimitiveList: must be a list");
    };
    if let Some(Value::Array(list)) = original.get_mut(name) {
        let gone: HashSet<&Value> = gone.iter().collect();
        list.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// The items that a patch brings must stand in its own stated order.
fn follows_order(items: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    let identity = Identity::new(key);
    let mut rest = order.iter();
    // Items with a directive (deletions) have no place.
    let placed = items.iter().filter(|item| item.get(DIRECTIVE).is_none());
    for id in placed.filter_map(|item| identity.of(item)) {
        if !rest.any(|wanted| identity.of(wanted) == Some(id)) {
            return malformed(format!(
                "The order in patch list doesn't match $setElementOrder list: {id} is missing or out of order"
            ));
        }
    }
    Ok(())
}

/// The order that the patch states for a list.
fn element_order<'p>(patch: &'p Map<String, Value>, key: &str) -> Result<Option<&'p Vec<Value>>, PatchError> {
    match patch.get(&format!("{ORDER_PREFIX}{key}")) {
        None => Ok(None),
        Some(Value::Array(order)) => Ok(Some(order)),
        Some(_) => malformed("invalid $setElementOrder list"),
    }
}
