//! Classes of pods: how much they matter, and what runs them.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{METADATA, Path, Report as _, same};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, fill_zero};

/// Priorities above this are the system's.
const MOST_PRIORITY: i64 = 1_000_000_000;
/// The system's classes.
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2 * MOST_PRIORITY),
    ("system-node-critical", 2 * MOST_PRIORITY + 1000),
];

/// How much pods matter.
/// Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>.
#[derive(Default)]
pub(super) struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value) {
        fill_zero(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (name, value) = (object.sub("metadata").text("name"), object.count("value"));
        if name.starts_with("system-") {
            if !SYSTEM.contains(&(name, value)) || object.on("globalDefault") {
                let why = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} with \
                     value {value} is not a known system priority class"
                );
                errors.forbidden(&METADATA.field("name"), why);
            }
        } else if value > MOST_PRIORITY {
            let why = format!("maximum allowed value of a user defined priority is {MOST_PRIORITY}");
            errors.forbidden(&Path::Root.field("value"), why);
        }
        let policies = ["Never", "PreemptLowerPriority"];
        errors.one_of(
            &Path::Root.field("preemptionPolicy"),
            object.text("preemptionPolicy"),
            &policies,
        );
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        if object.count("value") != old.count("value") {
            errors.forbidden(&Path::Root.field("value"), "may not be changed in an update.");
        }
        let field = "preemptionPolicy";
        errors.unchanged(&Path::Root.field(field), object.sub(field), old.sub(field));
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::number("Value", "How much the pods matter."),
            Col::text("Global-Default", "Whether pods without a class are of this one."),
            AGE,
            Col::text("PreemptionPolicy", "Whether the pods drive away others."),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            show::name(object),
            json!(object.count("value")),
            json!(object.on("globalDefault")),
            show::age(object, now),
            json!(object.text("preemptionPolicy")),
        ]
    }
}

/// What runs pods.
/// Source: <https://kubernetes.io/docs/concepts/containers/runtime-class/>.
#[derive(Default)]
pub(super) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = Path::Root.field("handler");
        errors.named(&at, object.text("handler"), names::dns1123_label);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        if !same(object.sub("handler"), old.sub("handler")) {
            let why = crate::check::IMMUTABLE;
            errors.invalid(&Path::Root.field("handler"), object.sub("handler").clone(), why);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, Col::text("Handler", "Name by which nodes know the runtime."), AGE])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            show::name(object),
            json!(object.text("handler")),
            show::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities() {
        let class = |name: &str, value: i64| {
            let mut class = json!({"metadata": {"name": name}, "value": value});
            PriorityClass.default(&mut class);
            class
        };
        let first = |class: &Value| PriorityClass.validate(class).0.first().map(ToString::to_string);
        assert_eq!(first(&class("high", 1000)), None);
        assert_eq!(first(&class("system-node-critical", 2_000_001_000)), None);
        assert!(
            first(&class("system-mine", 1))
                .unwrap()
                .starts_with("metadata.name: Forbidden: ")
        );
        assert_eq!(
            first(&class("high", 1_000_000_001)).unwrap(),
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
        );
        let found = PriorityClass.validate_update(&class("a", 1), &class("a", 2));
        assert_eq!(
            found.0[0].to_string(),
            "value: Forbidden: may not be changed in an update."
        );
        let cells = PriorityClass.cells(&class("a", 1), Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!(1), json!(false)]);
        assert_eq!(cells[4], "PreemptLowerPriority");
    }

    #[test]
    fn runtimes() {
        let (a, b) = (json!({"handler": "runc"}), json!({"handler": "kata"}));
        assert!(RuntimeClass.validate(&a).is_empty() && !RuntimeClass.validate(&json!({})).is_empty());
        assert_eq!(RuntimeClass.validate_update(&a, &b).0.len(), 1);
    }
}
