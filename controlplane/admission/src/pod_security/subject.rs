//! A pod, or the template of one, as the checks see it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::objects::{list, text};

static NOTHING: Value = Value::Null;

pub(super) struct Subject<'a> {
    spec: &'a Value,
    annotations: &'a Value,
}

impl<'a> Subject<'a> {
    /// Of a pod or a template: both have `metadata` and `spec`.
    pub(super) fn new(pod: &'a Value) -> Self {
        Self {
            spec: pod.get("spec").unwrap_or(&NOTHING),
            annotations: pod.pointer("/metadata/annotations").unwrap_or(&NOTHING),
        }
    }

    /// The value at a pointer below `spec`; `null` when there is none.
    pub(super) fn at(&self, pointer: &str) -> &'a Value {
        self.spec.pointer(pointer).unwrap_or(&NOTHING)
    }

    pub(super) fn is_on(&self, pointer: &str) -> bool {
        self.at(pointer) == &Value::Bool(true)
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        list(self.spec, pointer)
    }

    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.annotations.as_object().into_iter().flatten();
        all.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// All containers, in the order in which upstream visits them.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> {
        ["/initContainers", "/containers", "/ephemeralContainers"]
            .into_iter()
            .flat_map(|kind| self.list(kind))
    }

    /// Names of the containers of which something holds.
    pub(super) fn those(&self, holds: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|c| holds(c)).map(name).collect()
    }

    /// Whether the pod is for Windows, by its own word.
    pub(super) fn is_windows(&self) -> bool {
        self.at("/os/name") == "windows"
    }

    /// Whether the pod's users are not the node's: then being root means little.
    pub(super) fn has_own_users(&self) -> bool {
        self.at("/hostUsers") == &Value::Bool(false)
    }

    /// Whether a field of the security context has a value that is not good, in the pod and in containers: who sets it,
    /// in words, and the values.
    pub(super) fn setters(&self, field: &str, is_bad: impl Fn(&Value) -> bool) -> (Vec<String>, BTreeSet<String>) {
        let pointer = format!("/securityContext{field}");
        let mut values = BTreeSet::new();
        let mut setters = Vec::new();
        let bad = |of: &Value| of.pointer(&pointer).filter(|value| is_bad(value)).cloned();
        if let Some(value) = bad(self.spec) {
            values.insert(shown(&value));
            setters.push("pod".to_owned());
        }
        let mut names = Vec::new();
        for container in self.containers() {
            if let Some(value) = bad(container) {
                values.insert(shown(&value));
                names.push(name(container));
            }
        }
        if !names.is_empty() {
            setters.push(containers_named(&names));
        }
        (setters, values)
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn name(container: &Value) -> &str {
    text(container, "/name")
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

/// One word or the other, by how many there are.
pub(super) fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn containers_named(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}
