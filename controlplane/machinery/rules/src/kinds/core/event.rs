//! Events, of both groups: one kind, stored once.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _};
use crate::resource::{Column, Strategy};
use crate::show::{self, Col, NAME};
use crate::tree::Tree as _;

/// How long an event is kept, in seconds.
const TTL_SECONDS: u64 = 3600;
const MOST_NAME_BYTES: usize = 128;
const MOST_NOTE_BYTES: usize = 1024;

/// Something that happened.
#[derive(Default)]
pub(in crate::kinds) struct Event;

/// A value that the two groups name differently.
fn either<'v>(object: &'v Value, core: &str, newer: &str) -> &'v Value {
    match object.sub(core) {
        Value::Null => object.sub(newer),
        value => value,
    }
}

fn subject(object: &Value) -> &Value {
    either(object, "involvedObject", "regarding")
}

fn reporter(object: &Value) -> &str {
    either(object, "reportingComponent", "reportingController").as_text()
}

fn source(object: &Value) -> &Value {
    either(object, "source", "deprecatedSource")
}

impl Strategy for Event {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, subject) = (Path::Root.field("involvedObject"), subject(object));
        let (own, theirs) = (object.sub("metadata").text("namespace"), subject.text("namespace"));
        let fits = if theirs.is_empty() {
            // What is in no namespace is reported in the default one, or by the system.
            matches!(own, "" | "default" | "kube-system") || !object.has("eventTime")
        } else {
            own == theirs
        };
        if !fits {
            errors.invalid(&at.field("namespace"), theirs, "does not match event.namespace");
        }
        if object.has("eventTime") {
            whole(&mut errors, object);
        }
        errors
    }

    fn validate_update(&self, object: &Value, _: &Value) -> FieldErrors {
        self.validate(object)
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn ttl_seconds(&self) -> Option<u64> {
        Some(TTL_SECONDS)
    }

    fn field_labels(&self) -> &[&str] {
        &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "regarding.apiVersion",
            "regarding.fieldPath",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.resourceVersion",
            "regarding.uid",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ]
    }

    fn field(&self, object: &Value, label: &str) -> String {
        if let Some((_, field)) = label.split_once('.') {
            return subject(object).text(field).to_owned();
        }
        match label {
            "reportingComponent" | "reportingController" => reporter(object).to_owned(),
            "source" => match source(object).text("component") {
                "" => reporter(object).to_owned(),
                component => component.to_owned(),
            },
            label => object.text(label).to_owned(),
        }
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            Col::text("Last Seen", "When it was last seen."),
            Col::text("Type", "Whether it is normal."),
            Col::text("Reason", "Why it happened, in one word."),
            Col::text("Object", "What it happened to."),
            Col::text("Subobject", "Which part of that.").wide(),
            Col::text("Source", "Who reports it.").wide(),
            Col::text("Message", "What happened."),
            Col::text("First Seen", "When it was first seen.").wide(),
            Col::text("Count", "How often it was seen.").wide(),
            NAME_WIDE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let first_time = either(object, "firstTimestamp", "deprecatedFirstTimestamp");
        let last_time = either(object, "lastTimestamp", "deprecatedLastTimestamp");
        let first = if first_time.is_null() {
            show::since(object.sub("eventTime"), now)
        } else {
            show::since(first_time, now)
        };
        let mut last = if last_time.is_null() {
            first.clone()
        } else {
            show::since(last_time, now)
        };
        let mut count = either(object, "count", "deprecatedCount").as_i64().unwrap_or(0);
        let series = object.sub("series");
        if series.is_object() {
            last = show::since(series.sub("lastObservedTime"), now);
            count = series.count("count");
        } else if count == 0 {
            count = 1;
        }
        let subject = subject(object);
        let target = match (subject.text("kind").to_lowercase(), subject.text("name")) {
            (kind, "") => kind,
            (kind, name) => format!("{kind}/{name}"),
        };
        let message = either(object, "message", "note").as_text();
        vec![
            json!(last),
            json!(object.text("type")),
            json!(object.text("reason")),
            json!(target),
            json!(subject.text("fieldPath")),
            json!(reported_by(object)),
            json!(message.trim()),
            json!(first),
            json!(count.to_string()),
            show::name(object),
        ]
    }
}

const NAME_WIDE: Col = NAME.wide();

fn reported_by(object: &Value) -> String {
    let source = source(object);
    let or = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
    let component = or(source.text("component"), reporter(object));
    let host = or(source.text("host"), object.text("reportingInstance"));
    if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    }
}

/// Events that name their time follow the newer rules.
fn whole(errors: &mut FieldErrors, object: &Value) {
    let at = Path::Root;
    let reporter_at = at.field("reportingController");
    errors.named_required(&reporter_at, reporter(object), names::qualified_name);
    for (field, most) in [
        ("reportingInstance", MOST_NAME_BYTES),
        ("action", MOST_NAME_BYTES),
        ("reason", MOST_NAME_BYTES),
    ] {
        let text = object.text(field);
        if text.is_empty() {
            errors.required(&at.field(field), "");
        } else if text.len() > most {
            errors.invalid(&at.field(field), "", format!("can have at most {most} characters"));
        }
    }
    if either(object, "message", "note").as_text().len() > MOST_NOTE_BYTES {
        errors.invalid(
            &at.field("message"),
            "",
            format!("can have at most {MOST_NOTE_BYTES} characters"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read_alike() {
        let core = json!({"involvedObject": {"kind": "Pod", "name": "a"}, "source": {"component": "kubelet", "host": "n"},
            "message": "m\n", "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:04:00Z", "count": 3});
        let newer = json!({"regarding": {"kind": "Pod", "name": "a"}, "deprecatedSource": {"component": "kubelet", "host": "n"},
            "note": "m\n", "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedLastTimestamp": "2026-01-01T00:04:00Z", "deprecatedCount": 3});
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let cells = Event.cells(&core, now);
        assert_eq!(cells, Event.cells(&newer, now));
        let texts: Vec<&str> = cells.iter().map(|c| c.as_str().unwrap()).collect();
        assert_eq!(texts, ["60s", "", "", "pod/a", "", "kubelet, n", "m", "5m", "3", ""]);
        assert_eq!(Event.field(&newer, "involvedObject.kind"), "Pod");
        assert_eq!(Event.field(&core, "source"), "kubelet");
    }

    #[test]
    fn series_and_times_of_the_newer_form() {
        let event = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T00:04:30.000000Z"}});
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let cells = Event.cells(&event, now);
        assert_eq!(
            (&cells[0], &cells[7], &cells[8]),
            (&json!("30s"), &json!("5m"), &json!("7"))
        );
        assert_eq!(cells[5], "c");
    }

    #[test]
    fn namespaces_must_agree() {
        let event = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}});
        assert_eq!(
            Event.validate(&event).0[0].to_string(),
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"
        );
        assert!(
            Event
                .validate(&json!({"metadata": {"namespace": "default"}, "involvedObject": {}}))
                .is_empty()
        );
    }
}
