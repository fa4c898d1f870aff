//! Which names a definition gets, and what its conditions say of it. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use minato_meta::format_time;
use serde_json::{Map, Value, json};

use super::{is_condition_true, list, text};

/// Names that others of the same group have.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Plural, singular and short names.
    pub(super) resources: BTreeSet<String>,
    /// Kinds and kinds of lists.
    pub(super) kinds: BTreeSet<String>,
}

impl Taken {
    /// Adds the names that a definition has.
    pub(super) fn add_accepted(&mut self, definition: &Value) {
        let names = definition.pointer("/status/acceptedNames").cloned().unwrap_or_default();
        for field in ["/plural", "/singular"] {
            self.resources.insert(text(&names, field).to_owned());
        }
        let short = list(&names, "/shortNames").iter().filter_map(Value::as_str);
        self.resources.extend(short.map(str::to_owned));
        for field in ["/kind", "/listKind"] {
            self.kinds.insert(text(&names, field).to_owned());
        }
        self.resources.remove("");
        self.kinds.remove("");
    }
}

/// The status that a definition should have; `None` when it has it.
pub(super) fn settled(definition: &Value, taken: &Taken, now: Timestamp) -> Option<Value> {
    let spec_names = definition.pointer("/spec/names")?;
    let mut status = definition
        .get("status")
        .cloned()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({}));
    let before = status.clone();
    let mut accepted: Map<String, Value> = status
        .get("acceptedNames")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let mut conflict: Option<(&str, String)> = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let wanted = spec_names.get(field);
        if wanted == accepted.get(field) {
            continue;
        }
        let held = names_in(accepted.get(field));
        let clashes = names_in(wanted)
            .into_iter()
            .filter(|name| !held.contains(name) && used.contains(*name));
        let clashes: Vec<String> = clashes.map(|name| format!("\"{name}\" is already in use")).collect();
        if clashes.is_empty() {
            set(&mut accepted, field, wanted);
            continue;
        }
        let message = match clashes.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        conflict = Some((reason, message));
    }
    set(&mut accepted, "categories", spec_names.get("categories"));
    let accepts = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    let names_accepted = condition("NamesAccepted", accepts, reason, &message);
    let established = if is_condition_true(definition, "Established") {
        None
    } else if accepts {
        let message = "the initial names have been accepted";
        Some(condition("Established", true, "InitialNamesAccepted", message))
    } else {
        Some(condition(
            "Established",
            false,
            "NotAccepted",
            "not all names are accepted",
        ))
    };
    let fields = status.as_object_mut()?;
    fields.insert("acceptedNames".to_owned(), Value::Object(accepted));
    put_condition(&mut status, names_accepted, now);
    if let Some(established) = established {
        put_condition(&mut status, established, now);
    }
    (status != before).then_some(status)
}

/// A name or a list of names.
fn names_in(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn set(fields: &mut Map<String, Value>, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => fields.insert(key.to_owned(), value.clone()),
        None => fields.remove(key),
    };
}

/// A condition without its time.
pub(super) fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": kind,
        "status": if holds { "True" } else { "False" },
        "reason": reason,
        "message": message,
    })
}

/// Puts a condition in its place; its time changes with its status alone.
pub(super) fn put_condition(status: &mut Value, mut new: Value, now: Timestamp) {
    let Some(fields) = status.as_object_mut() else { return };
    let all = fields.entry("conditions").or_insert_with(|| json!([]));
    let Some(all) = all.as_array_mut() else { return };
    let present = all.iter_mut().find(|c| c.get("type") == new.get("type"));
    let same = present.as_ref().is_some_and(|c| c.get("status") == new.get("status"));
    let since = present
        .as_ref()
        .and_then(|c| c.get("lastTransitionTime"))
        .filter(|_| same)
        .cloned();
    new["lastTransitionTime"] = since.unwrap_or_else(|| json!(format_time(now)));
    match present {
        Some(slot) => *slot = new,
        None => all.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(kind: &str) -> Value {
        json!({"spec": {"names": {"plural": "tabs", "singular": "tab", "kind": kind, "listKind": format!("{kind}List"),
            "shortNames": ["t"], "categories": ["all"]}}, "status": {"storedVersions": ["v1"]}})
    }

    #[test]
    fn free_names_are_accepted_once_and_for_all() {
        let mut tab = definition("Tab");
        let status = settled(&tab, &Taken::default(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(status["acceptedNames"], tab["spec"]["names"]);
        tab["status"] = status;
        assert!(is_condition_true(&tab, "NamesAccepted") && is_condition_true(&tab, "Established"));
        assert_eq!(tab["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(settled(&tab, &Taken::default(), Timestamp::now()), None);
    }

    #[test]
    fn names_of_others_are_not() {
        let mut taken = Taken::default();
        let mut other = definition("Tab");
        other["status"] = settled(&other, &taken, Timestamp::UNIX_EPOCH).unwrap();
        taken.add_accepted(&other);
        let mut second = definition("Tab");
        second["spec"]["names"]["plural"] = json!("taps");
        second["spec"]["names"]["singular"] = json!("tap");
        second["status"] = settled(&second, &taken, Timestamp::UNIX_EPOCH).unwrap();
        assert!(!is_condition_true(&second, "NamesAccepted") && !is_condition_true(&second, "Established"));
        let condition = &second["status"]["conditions"][0];
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("ListKindConflict"), &json!("\"TabList\" is already in use"))
        );
        assert_eq!(second["status"]["acceptedNames"]["plural"], "taps");
        // When the other is gone, the names are free.
        second["status"] = settled(&second, &Taken::default(), Timestamp::now()).unwrap();
        assert!(is_condition_true(&second, "Established"));
    }
}
