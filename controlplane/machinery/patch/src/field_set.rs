//! Sets of field paths: who owns what.
//!
//! On the wire (`FieldsV1`) a set is a trie whose keys say how to descend: `f:NAME` a field or map key, `k:{KEYS}` the list
//! item with these key values, `v:VALUE` the item of a set, `i:INDEX` an item by position; `.` is the node itself.
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/#System> (managedFields).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// One step down, in wire form and canonical: equal steps are equal text.
pub type Step = String;

/// The step into a field or map key.
pub fn field_step(name: &str) -> Step {
    format!("f:{name}")
}

/// The step into the list item that has these keys.
pub fn key_step(keys: &Map<String, Value>) -> Step {
    // A tree of `serde_json` prints its keys sorted, which is the canonical order.
    format!("k:{}", Printed(keys))
}

/// The step to an item of a set.
pub fn value_step(value: &Value) -> Step {
    format!("v:{}", scalar(value))
}

/// A scalar as steps have it: `2.0` is `2`.
fn scalar(value: &Value) -> Value {
    /// Beyond this, not every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.as_f64() {
        Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => Value::from(float as i64),
        _ => value.clone(),
    }
}

struct Printed<'a>(&'a Map<String, Value>);

impl std::fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('{')?;
        for (at, (key, value)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_char(',')?;
            }
            write!(f, "{}:{}", Value::from(key.as_str()), scalar(value))?;
        }
        f.write_char('}')
    }
}

/// A set of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    entries: BTreeMap<Step, Entry>,
}

/// What a set says below one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    /// Whether the path that ends here is in the set.
    pub(crate) member: bool,
    /// The paths that go on.
    pub(crate) below: FieldSet,
}

impl Entry {
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// Why text is no field set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fieldsV1 is malformed: {0}")]
pub struct FieldSetError(String);

impl FieldSet {
    /// A set of these dotted paths of fields, such as `status` or `metadata.name`.
    pub fn of_paths(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.split('.').map(field_step).collect();
            set.insert(&steps);
        }
        set
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a path. The empty path is not a member of any set.
    pub fn insert(&mut self, path: &[Step]) {
        if let Some((first, rest)) = path.split_first() {
            let entry = self.entries.entry(first.clone()).or_default();
            if rest.is_empty() {
                entry.member = true;
            } else {
                entry.below.insert(rest);
            }
        }
    }

    /// Puts what was collected below one step.
    pub(crate) fn put(&mut self, step: Step, entry: Entry) {
        if !entry.is_empty() {
            self.entries.insert(step, entry);
        }
    }

    pub(crate) fn entry(&self, step: &str) -> Option<&Entry> {
        self.entries.get(step)
    }

    /// Whether a path is in the set.
    pub fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.entries.get(last).is_some_and(|e| e.member),
            [first, rest @ ..] => self.entries.get(first).is_some_and(|e| e.below.contains(rest)),
        }
    }

    /// Adds all paths of another set.
    pub fn union(&mut self, other: &Self) {
        for (step, theirs) in &other.entries {
            let ours = self.entries.entry(step.clone()).or_default();
            ours.member |= theirs.member;
            ours.below.union(&theirs.below);
        }
    }

    /// The paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::default();
        for (step, ours) in &self.entries {
            if let Some(theirs) = other.entries.get(step) {
                result.put(
                    step.clone(),
                    Entry {
                        member: ours.member && theirs.member,
                        below: ours.below.intersection(&theirs.below),
                    },
                );
            }
        }
        result
    }

    /// Takes exactly the paths of another set out of this one.
    pub fn subtract(&mut self, other: &Self) {
        self.entries.retain(|step, ours| {
            if let Some(theirs) = other.entries.get(step) {
                ours.member &= !theirs.member;
                ours.below.subtract(&theirs.below);
            }
            !ours.is_empty()
        });
    }

    /// Takes the paths of another set, and all that is below them, out of this one.
    pub fn subtract_trees(&mut self, other: &Self) {
        self.entries.retain(|step, ours| {
            let Some(theirs) = other.entries.get(step) else {
                return true;
            };
            if theirs.member {
                return false;
            }
            ours.below.subtract_trees(&theirs.below);
            !ours.is_empty()
        });
    }

    /// All paths, in order.
    pub fn paths(&self) -> Vec<Vec<Step>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
        for (step, entry) in &self.entries {
            prefix.push(step.clone());
            if entry.member {
                paths.push(prefix.clone());
            }
            entry.below.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// The wire form.
    pub fn to_fields_v1(&self) -> Value {
        let entries = self.entries.iter().map(|(step, entry)| {
            let mut below = entry.below.to_fields_v1();
            // A member without paths below it is `{}`; only where others go on has it to be said.
            if entry.member
                && !entry.below.is_empty()
                && let Value::Object(map) = &mut below
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (step.clone(), below)
        });
        Value::Object(entries.collect())
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// On steps of no known form.
    pub fn from_fields_v1(value: &Value) -> Result<Self, FieldSetError> {
        let Value::Object(map) = value else {
            return Err(FieldSetError("expected an object".to_owned()));
        };
        let mut set = Self::default();
        for (step, below) in map {
            if step == "." {
                continue;
            }
            let entry = set.entries.entry(canonical(step)?).or_default();
            let below_is_empty = below.as_object().is_some_and(Map::is_empty);
            entry.member |= below_is_empty || below.get(".").is_some();
            entry.below.union(&Self::from_fields_v1(below)?);
        }
        // `{"f:a":{".":…}}` aside, a step that names nothing is no path.
        set.entries.retain(|_, entry| !entry.is_empty());
        Ok(set)
    }
}

fn canonical(step: &str) -> Result<Step, FieldSetError> {
    let bad = || FieldSetError(format!("unknown path element {step:?}"));
    let (kind, rest) = step.split_once(':').ok_or_else(bad)?;
    match kind {
        "f" => Ok(step.to_owned()),
        "i" => rest.parse::<u64>().map(|i| format!("i:{i}")).map_err(|_| bad()),
        "v" => serde_json::from_str(rest).map(|v| value_step(&v)).map_err(|_| bad()),
        "k" => serde_json::from_str(rest).map(|k| key_step(&k)).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

/// A path as conflicts show it: `.spec.containers[name="app"].image`.
pub fn display_path(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        let (kind, rest) = step.split_once(':').unwrap_or(("f", step));
        match kind {
            "f" => {
                text.push('.');
                text.push_str(rest);
            }
            "v" => text.push_str(&format!("[={rest}]")),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                text.push_str(&format!("[{}]", keys.join(",")));
            }
            _ => text.push_str(&format!("[{rest}]")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_fields_v1(&value).unwrap()
    }

    #[test]
    fn wire_form_round_trips_and_is_canonical() {
        let wire = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:list": {"i:3": {}}}
        });
        assert_eq!(set(wire.clone()).to_fields_v1(), wire);
        assert_eq!(
            set(json!({"k:{ \"b\": 1, \"a\": 2 }": {}})).to_fields_v1(),
            json!({"k:{\"a\":2,\"b\":1}": {}})
        );
        for bad in [
            json!({"x:a": {}}),
            json!({"k:[]": {}}),
            json!({"f": {}}),
            json!({"f:a": 1}),
            json!([]),
        ] {
            assert!(FieldSet::from_fields_v1(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn algebra() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let b = set(json!({"f:a": {"f:b": {}}, "f:e": {}}));
        assert_eq!(a.intersection(&b), set(json!({"f:a": {"f:b": {}}})));
        let mut minus = a.clone();
        minus.subtract(&b);
        assert_eq!(minus, set(json!({"f:a": {".": {}, "f:c": {}}, "f:d": {}})));
        let mut without = a.clone();
        without.subtract_trees(&set(json!({"f:a": {}})));
        assert_eq!(without, set(json!({"f:d": {}})));
        let mut all = a.clone();
        all.union(&b);
        assert_eq!(all.paths().len(), 5);
        assert!(all.contains(&[field_step("a"), field_step("b")]));
        all.subtract(&all.clone());
        assert!(all.is_empty());
    }

    #[test]
    fn paths_read_as_users_know_them() {
        let s = set(
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}},
            "f:metadata": {"f:finalizers": {"v:\"x\"": {}}},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}),
        );
        let shown: Vec<String> = s.paths().iter().map(|p| display_path(p)).collect();
        assert_eq!(
            shown,
            [
                ".metadata.finalizers[=\"x\"]",
                ".ports[containerPort=80,protocol=\"TCP\"]",
                ".spec.containers[name=\"app\"].image",
            ]
        );
    }
}
