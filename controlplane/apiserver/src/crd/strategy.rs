//! How a custom kind behaves: columns, selectable fields and replica numbers are where its definition says.

use jiff::Timestamp;
use minato_rules::{Column, ScalePaths, Strategy, age, since};
use serde_json::{Value, json};

use super::json_path::JsonPath;
use super::{list, text};

/// A column beside the name.
struct Shown {
    column: Column,
    /// `None` for a path that leads nowhere.
    path: Option<JsonPath>,
}

/// See the module.
pub(super) struct Custom {
    columns: Vec<Shown>,
    /// Label and path.
    selectable: Vec<(String, Option<JsonPath>)>,
    scale: Option<ScalePaths>,
    deprecation: Option<String>,
}

fn column(name: &str, column_type: &str, format: &str, description: &str, priority: i32) -> Column {
    Column {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority,
    }
}

/// The JSON pointer of a path of names, such as `.spec.replicas`.
fn pointer(path: &str) -> String {
    path.replace('~', "~0").replace('.', "/")
}

impl Custom {
    /// The behaviour of one version of a definition.
    pub(super) fn of_version(version: &Value, deprecation: Option<String>) -> Self {
        let columns = list(version, "/additionalPrinterColumns").iter().map(|stated| {
            let priority = stated.get("priority").and_then(Value::as_i64).unwrap_or(0);
            Shown {
                column: column(
                    text(stated, "/name"),
                    text(stated, "/type"),
                    text(stated, "/format"),
                    text(stated, "/description"),
                    i32::try_from(priority).unwrap_or(i32::MAX),
                ),
                path: JsonPath::parse(text(stated, "/jsonPath")),
            }
        });
        let selectable = list(version, "/selectableFields").iter().map(|field| {
            let path = text(field, "/jsonPath");
            (path.trim_start_matches('.').to_owned(), JsonPath::parse(path))
        });
        let scale = version.pointer("/subresources/scale").map(|scale| ScalePaths {
            spec_replicas: pointer(text(scale, "/specReplicasPath")),
            status_replicas: pointer(text(scale, "/statusReplicasPath")),
            selector: Some(text(scale, "/labelSelectorPath"))
                .filter(|path| !path.is_empty())
                .map(pointer),
        });
        Self {
            columns: columns.collect(),
            selectable: selectable.collect(),
            scale,
            deprecation,
        }
    }
}

/// A value in a cell of a column's type; `null` for what does not fit.
fn cell(column: &Column, value: &Value, now: Timestamp) -> Value {
    match (column.column_type.as_str(), value) {
        ("date", Value::String(_)) => Value::from(since(value, now)),
        ("integer", Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| {
                #[expect(clippy::cast_possible_truncation, reason = "as Go converts; out of range saturates")]
                let whole = number.as_f64().map(|n| n as i64);
                whole
            });
            json!(whole)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => Value::Null,
        ("string", other) => Value::from(other.to_string()),
        _ => Value::Null,
    }
}

impl Strategy for Custom {
    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn selectable_fields(&self) -> Vec<String> {
        self.selectable.iter().map(|(label, _)| label.clone()).collect()
    }

    fn field(&self, object: &Value, label: &str) -> String {
        let found = self.selectable.iter().find(|(known, _)| known == label);
        let value = found.and_then(|(_, path)| path.as_ref()?.first(object));
        match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    fn scale_paths(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn columns(&self) -> Vec<Column> {
        let about = "Name of the object, unique among its kind in its namespace.";
        let mut all = vec![column("Name", "string", "name", about, 0)];
        if self.columns.is_empty() {
            all.push(column("Age", "date", "", "Time since the object was created.", 0));
        }
        all.extend(self.columns.iter().map(|shown| shown.column.clone()));
        all
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut all = vec![json!(text(object, "/metadata/name"))];
        if self.columns.is_empty() {
            all.push(age(object, now));
        }
        all.extend(self.columns.iter().map(|shown| {
            let value = shown.path.as_ref().and_then(|path| path.first(object));
            value.map_or(Value::Null, |value| cell(&shown.column, value, now))
        }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_what_the_definition_says() {
        let version = json!({
            "additionalPrinterColumns": [
                {"name": "Spec", "type": "string", "jsonPath": ".spec.cron"},
                {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
                {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                {"name": "Odd", "type": "integer", "jsonPath": ".spec.cron"},
                {"name": "All", "type": "string", "jsonPath": ".spec.list"},
            ],
            "selectableFields": [{"jsonPath": ".spec.cron"}],
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"}},
        });
        let custom = Custom::of_version(&version, None);
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"cron": "* *", "replicas": 3, "list": [1, "x"]}});
        let now = "2026-01-01T00:05:30Z".parse().unwrap();
        assert_eq!(
            json!(custom.cells(&object, now)),
            json!(["a", "* *", 3, "5m30s", null, "[1,\"x\"]"])
        );
        assert_eq!(custom.columns()[2].priority, 1);
        assert_eq!(custom.field(&object, "spec.cron"), "* *");
        assert_eq!(custom.scale_paths().unwrap().spec_replicas, "/spec/replicas");
        let plain = Custom::of_version(&json!({}), None);
        assert_eq!(json!(plain.cells(&object, now)), json!(["a", "5m30s"]));
    }
}
