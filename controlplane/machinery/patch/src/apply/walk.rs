//! Walks over trees with their schema: which fields a tree has, what differs between two, merging, removing.

use std::collections::{BTreeMap, HashMap, HashSet};

use minato_schema::{ListType, Schema, Shape};
use serde_json::{Map, Value};

use crate::field_set::{Entry, FieldSet, Step, field_step, key_step, value_step};

/// How a value is owned.
enum Node<'v> {
    /// As a whole.
    Leaf,
    /// Key by key.
    Map(&'v Map<String, Value>),
    /// Item by item.
    List(&'v [Value]),
}

fn node<'v>(value: &'v Value, schema: &Schema) -> Node<'v> {
    match (value, &schema.shape) {
        (Value::Object(map), Shape::Object(_) | Shape::Map(_) | Shape::Any | Shape::Raw | Shape::FieldsV1)
            if !schema.atomic =>
        {
            Node::Map(map)
        }
        (Value::Array(list), Shape::List(_)) if schema.list_type != ListType::Atomic => Node::List(list),
        _ => Node::Leaf,
    }
}

fn item_schema(schema: &Schema) -> &Schema {
    schema.items().unwrap_or(Schema::anything())
}

/// The step to an item of a list.
///
/// # Errors
/// When the item has not what tells it apart from others.
fn item_step(item: &Value, schema: &Schema) -> Result<Step, String> {
    match &schema.list_type {
        ListType::Atomic => Err("the list is atomic".to_owned()),
        ListType::Set => match item {
            Value::Null => Err("associative list without keys has a null element".to_owned()),
            Value::Object(_) | Value::Array(_) => {
                Err("associative list without keys has an element that's a map or list type".to_owned())
            }
            scalar => Ok(value_step(scalar)),
        },
        ListType::Map(keys) => {
            let Value::Object(map) = item else {
                return Err("associative list with keys may not have non-map elements".to_owned());
            };
            let items = item_schema(schema);
            let mut values = Map::new();
            for key in keys {
                let value = match map.get(key.as_ref()) {
                    Some(value) if !value.is_null() => Some(value.clone()),
                    _ => items.field(key).and_then(minato_schema::Field::key_default),
                };
                // An item without one of the keys is another one than those that have it.
                if let Some(value) = value {
                    values.insert(key.to_string(), value);
                }
            }
            if values.is_empty() {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                     values for any key fields)",
                    keys.join(" ")
                ));
            }
            Ok(key_step(&values))
        }
    }
}

/// Steps to all items, or why one has none. Items of one step are told by `duplicates`.
fn steps(list: &[Value], schema: &Schema) -> Result<Vec<Step>, String> {
    list.iter().map(|item| item_step(item, schema)).collect()
}

/// All fields that a tree sets, as the applier of the tree owns them.
///
/// # Errors
/// When list items cannot be told apart; begins with the path.
pub(crate) fn fields_of(value: &Value, schema: &Schema) -> Result<FieldSet, String> {
    fields_below(value, schema, &mut String::new()).map(|entry| entry.below)
}

fn fields_below(value: &Value, schema: &Schema, path: &mut String) -> Result<Entry, String> {
    let mut entry = Entry::default();
    match node(value, schema) {
        Node::Leaf => entry.member = true,
        Node::Map(map) => {
            for (key, child) in map {
                let (child_schema, named) = schema.member(key);
                let length = path.len();
                path.push('.');
                path.push_str(key);
                let mut below = fields_below(child, child_schema, path)?;
                path.truncate(length);
                let hollow = child.is_null() || child.as_object().is_some_and(Map::is_empty);
                below.member |= hollow || !named;
                entry.below.put(field_step(key), below);
            }
        }
        Node::List(list) => {
            let steps = steps(list, schema).map_err(|e| format!("{path}: {e}"))?;
            let mut seen = HashSet::new();
            for (item, step) in list.iter().zip(steps) {
                if !seen.insert(step.clone()) {
                    let key = crate::field_set::display_path(std::slice::from_ref(&step));
                    return Err(format!("{path}: duplicate entries for key {key}"));
                }
                let mut below = fields_below(item, item_schema(schema), path)?;
                below.member = true;
                entry.below.put(step, below);
            }
        }
    }
    Ok(entry)
}

/// What differs between two trees.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Difference {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

/// Compares field by field.
pub(crate) fn difference(old: &Value, new: &Value, schema: &Schema) -> Difference {
    let mut difference = Difference::default();
    compare(Some(old), Some(new), schema, false, &mut Vec::new(), &mut difference);
    difference
}

/// `hollow` tells that Go shows the field as `null` when it is unset, so that its coming and going is not that of the
/// field but of what is in it.
fn compare<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
    schema: &Schema,
    hollow: bool,
    path: &mut Vec<Step>,
    out: &mut Difference,
) {
    if old.is_none() && new.is_none() {
        return;
    }
    // A `null` takes the form of the other side: a map or list that is there and empty.
    let class = |value: Option<&'v Value>| value.filter(|v| !v.is_null()).map(|v| node(v, schema));
    let classes = (class(old), class(new));
    match classes {
        (None, None) => {}
        (None | Some(Node::Map(_)), None | Some(Node::Map(_))) => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let keys = old.into_iter().chain(new).flat_map(Map::keys);
            let mut seen = HashSet::new();
            for key in keys.filter(|key| seen.insert(key.as_str())) {
                let (child_schema, _) = schema.member(key);
                let hollow = schema.field(key).is_some_and(minato_schema::Field::shows_null);
                path.push(field_step(key));
                compare(
                    old.and_then(|m| m.get(key)),
                    new.and_then(|m| m.get(key)),
                    child_schema,
                    hollow,
                    path,
                    out,
                );
                path.pop();
            }
        }
        (None | Some(Node::List(_)), None | Some(Node::List(_))) => {
            if compare_items(old, new, schema, path, out).is_err() {
                leaf(old, new, path, out);
                return;
            }
        }
        _ => {
            leaf(old, new, path, out);
            return;
        }
    }
    if !hollow {
        match (old, new) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            _ => {}
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, path: &[Step], out: &mut Difference) {
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(old), Some(new)) if !same(old, new) => out.modified.insert(path),
        _ => {}
    }
}

/// Equal, and numbers by value: `1` is `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

fn compare_items<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
    schema: &Schema,
    path: &mut Vec<Step>,
    out: &mut Difference,
) -> Result<(), String> {
    let list = |value: Option<&'v Value>| value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (old, new) = (list(old), list(new));
    let (old_steps, new_steps) = (steps(old, schema)?, steps(new, schema)?);
    let mut items: BTreeMap<&Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (item, step) in old.iter().zip(&old_steps) {
        items.entry(step).or_default().0.push(item);
    }
    for (item, step) in new.iter().zip(&new_steps) {
        items.entry(step).or_default().1.push(item);
    }
    for (step, (old, new)) in items {
        path.push(step.clone());
        if let ([] | [_], [] | [_]) = (old.as_slice(), new.as_slice()) {
            compare(
                old.first().copied(),
                new.first().copied(),
                item_schema(schema),
                false,
                path,
                out,
            );
        } else {
            compare_duplicates(&old, &new, item_schema(schema), path, out);
        }
        path.pop();
    }
    Ok(())
}

/// Items that cannot be told apart are owned together and as a whole: an update may leave duplicates in a list, and what
/// is below them would be ambiguous.
fn compare_duplicates(old: &[&Value], new: &[&Value], schema: &Schema, path: &mut Vec<Step>, out: &mut Difference) {
    if old == new {
        return;
    }
    match (old, new) {
        ([], _) => out.added.insert(path),
        (_, []) => out.removed.insert(path),
        _ => out.modified.insert(path),
    }
    // What was told apart before is no longer, or is again.
    if let [one] = old {
        compare(Some(one), None, schema, true, path, out);
    }
    if let [one] = new {
        compare(None, Some(one), schema, true, path, out);
    }
}

/// Merges what is applied into what is there; what the applier says wins.
///
/// # Errors
/// When list items of either cannot be told apart.
pub(crate) fn merge(live: Option<&Value>, applied: &Value, schema: &Schema) -> Result<Value, String> {
    match (live, node(applied, schema)) {
        (Some(live), Node::Map(applied)) if matches!(node(live, schema), Node::Map(_)) => {
            let mut merged = live.as_object().cloned().unwrap_or_default();
            for (key, child) in applied {
                let (child_schema, _) = schema.member(key);
                let child = merge(merged.get(key), child, child_schema).map_err(|e| format!(".{key}{e}"))?;
                merged.insert(key.clone(), child);
            }
            Ok(Value::Object(merged))
        }
        (Some(live), Node::List(applied)) if matches!(node(live, schema), Node::List(_)) => {
            merge_lists(live.as_array().map_or(&[][..], Vec::as_slice), applied, schema)
        }
        // A `null` claims a map or list without saying anything of what is in it.
        (Some(live), Node::Leaf) if applied.is_null() && !matches!(node(live, schema), Node::Leaf) => Ok(live.clone()),
        _ => Ok(applied.clone()),
    }
}

/// Applied items keep their order. An item that only the server has keeps its place: after the items that it follows
/// there, before the next shared one.
fn merge_lists(live: &[Value], applied: &[Value], schema: &Schema) -> Result<Value, String> {
    let fail = |e: String| format!(": {e}");
    let live_steps = steps(live, schema).map_err(fail)?;
    let applied_steps = steps(applied, schema).map_err(fail)?;
    let mut live_places: HashMap<&str, usize> = HashMap::new();
    for (at, step) in live_steps.iter().enumerate() {
        live_places.entry(step).or_insert(at);
    }
    let applied_names: HashSet<&str> = applied_steps.iter().map(String::as_str).collect();
    let mut shared = applied_steps
        .iter()
        .map(String::as_str)
        .filter(|step| live_places.contains_key(step))
        .peekable();
    let mut out = Vec::with_capacity(live.len() + applied.len());
    let mut emitted = 0;
    let emit = |at: usize, out: &mut Vec<Value>| -> Result<(), String> {
        let counterpart = live_places.get(applied_steps[at].as_str()).map(|place| &live[*place]);
        out.push(merge(counterpart, &applied[at], item_schema(schema))?);
        Ok(())
    };
    for (item, step) in live.iter().zip(&live_steps) {
        if !applied_names.contains(step.as_str()) {
            out.push(item.clone());
        } else if shared.peek() == Some(&step.as_str()) {
            shared.next();
            // All applied items up to this one stand before it.
            loop {
                let done = applied_steps[emitted] == *step;
                emit(emitted, &mut out)?;
                emitted += 1;
                if done {
                    break;
                }
            }
        }
    }
    while emitted < applied.len() {
        emit(emitted, &mut out)?;
        emitted += 1;
    }
    Ok(Value::Array(out))
}

/// Removes what was applied before (`last`) and is kept by nobody now (`keep`).
///
/// A named field counts as held when anything below it is; map keys and list items only when they are members.
pub(crate) fn remove_dropped(value: &mut Value, schema: &Schema, last: &FieldSet, keep: &FieldSet) {
    let nothing = FieldSet::default();
    let verdict = |step: &str, named: bool| -> Verdict<'_> {
        let Some(was) = last.entry(step) else {
            return Verdict::Keep;
        };
        let held = |entry: &Entry| entry.member || (named && !entry.below.is_empty());
        let now = keep.entry(step);
        if held(was) && !now.is_some_and(held) {
            return Verdict::Remove;
        }
        if was.below.is_empty() {
            Verdict::Keep
        } else {
            Verdict::Descend(&was.below, now.map(|e| &e.below))
        }
    };
    match node(value, schema) {
        Node::Leaf => {}
        Node::Map(_) => {
            let Value::Object(map) = value else { return };
            map.retain(|key, child| {
                let (child_schema, named) = schema.member(key);
                match verdict(&field_step(key), named) {
                    Verdict::Keep => true,
                    Verdict::Remove => false,
                    Verdict::Descend(last, keep) => {
                        remove_dropped(child, child_schema, last, keep.unwrap_or(&nothing));
                        true
                    }
                }
            });
        }
        Node::List(_) => {
            let Value::Array(list) = value else { return };
            list.retain_mut(|item| {
                let Ok(step) = item_step(item, schema) else {
                    return true;
                };
                match verdict(&step, false) {
                    Verdict::Keep => true,
                    Verdict::Remove => false,
                    Verdict::Descend(last, keep) => {
                        remove_dropped(item, item_schema(schema), last, keep.unwrap_or(&nothing));
                        true
                    }
                }
            });
        }
    }
}

enum Verdict<'s> {
    Keep,
    Remove,
    Descend(&'s FieldSet, Option<&'s FieldSet>),
}
