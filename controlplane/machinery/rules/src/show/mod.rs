//! Tables as `kubectl get` prints them: columns, and the texts that many kinds share.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

mod duration;

use jiff::Timestamp;
use minato_meta::{LabelSelector, parse_time};
use serde_json::Value;

pub(crate) use duration::human_duration;

use crate::resource::Column;
use crate::tree::Tree as _;

/// What is shown for nothing.
pub(crate) const NONE: &str = "<none>";
/// What is shown for what was not set.
pub(crate) const UNSET: &str = "<unset>";
/// What is shown for what cannot be known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// A column as a constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Col {
    name: &'static str,
    column_type: &'static str,
    format: &'static str,
    wide: bool,
    about: &'static str,
}

impl Col {
    /// A column of text.
    pub(crate) const fn text(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            column_type: "string",
            format: "",
            wide: false,
            about,
        }
    }
    /// A column of whole numbers.
    pub(crate) const fn number(name: &'static str, about: &'static str) -> Self {
        Self {
            column_type: "integer",
            ..Self::text(name, about)
        }
    }
    /// The same column, shown in wide output only.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// The name of the object: the first column of every kind.
pub(crate) const NAME: Col = Col {
    format: "name",
    ..Col::text("Name", "Name of the object, unique among its kind in its namespace.")
};
/// How long the object has been there.
pub(crate) const AGE: Col = Col::text("Age", "Time since the object was created.");
/// When the object was created, for kinds without a printer of their own.
pub(crate) const CREATED_AT: Col = Col {
    format: "date-time",
    ..Col::text("Created At", "When the object was created.")
};
/// Names of the containers of a template.
pub(crate) const CONTAINERS: Col = Col::text("Containers", "Names of the containers in the template.").wide();
/// Images of the containers of a template.
pub(crate) const IMAGES: Col = Col::text("Images", "Images of the containers in the template.").wide();
/// The label selector.
pub(crate) const SELECTOR: Col = Col::text("Selector", "Labels of the pods that belong to the object.").wide();

/// Columns of a kind.
pub(crate) fn columns(list: &[Col]) -> Vec<Column> {
    let column = |c: &Col| Column {
        name: c.name.to_owned(),
        column_type: c.column_type.to_owned(),
        format: c.format.to_owned(),
        description: c.about.to_owned(),
        priority: i32::from(c.wide),
    };
    list.iter().map(column).collect()
}

/// The object's name.
pub(crate) fn name(object: &Value) -> Value {
    Value::from(object.sub("metadata").text("name"))
}

/// Time since the object was created.
pub fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(since(object.at("metadata.creationTimestamp"), now))
}

/// When the object was created.
pub(crate) fn created_at(object: &Value) -> Value {
    Value::from(object.sub("metadata").text("creationTimestamp"))
}

/// Time since a time; unknown when there is none.
pub fn since(time: &Value, now: Timestamp) -> String {
    match parse_time(time.as_text()) {
        Ok(time) => human_duration(now.duration_since(time).as_secs()),
        Err(_) => UNKNOWN.to_owned(),
    }
}

/// The text, or `<none>`.
pub(crate) fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { NONE } else { text })
}

/// Texts joined by commas, or `<none>`.
pub(crate) fn list_or_none<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    let texts: Vec<&str> = texts.into_iter().collect();
    or_none(&texts.join(","))
}

/// The first texts joined by commas, and how many more there are.
pub(crate) fn shortened(texts: &[String], most: usize, empty: &str) -> String {
    let Some(more) = texts.len().checked_sub(most).filter(|more| *more > 0) else {
        return if texts.is_empty() {
            empty.to_owned()
        } else {
            texts.join(",")
        };
    };
    let first: Vec<&str> = texts.iter().take(most).map(String::as_str).collect();
    format!("{} + {more} more...", first.join(","))
}

/// A map of labels as `a=b,c=d`.
pub(crate) fn label_text(map: &Value) -> Value {
    let mut pairs: Vec<String> = map.entries().map(|(k, v)| format!("{k}={}", v.as_text())).collect();
    pairs.sort();
    or_none(&pairs.join(","))
}

/// A label selector in object form, in its text form.
pub(crate) fn selector_text(selector: &Value) -> Value {
    let Ok(parsed) = LabelSelector::from_object(selector) else {
        return Value::from("<error>");
    };
    let mut requirements = parsed.requirements().to_vec();
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    or_none(&LabelSelector::from_requirements(requirements).to_string())
}

/// Names and images of the containers of a pod spec, joined by commas.
pub(crate) fn containers_and_images(spec: &Value) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let all: Vec<&str> = spec.list("containers").iter().map(|c| c.text(field)).collect();
        Value::from(all.join(","))
    })
}

/// Access modes of a volume in short.
pub(crate) fn access_modes(list: &[Value]) -> String {
    let listed = |mode: &str| list.iter().any(|m| m.as_text() == mode);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes: Vec<&str> = short.iter().filter(|(long, _)| listed(long)).map(|(_, s)| *s).collect();
    modes.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_texts() {
        assert_eq!(label_text(&json!({"b": "2", "a": "1"})), "a=1,b=2");
        assert_eq!(label_text(&json!(null)), NONE);
        let selector = json!({"matchLabels": {"z": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
        assert_eq!(selector_text(&selector), "a in (x,y),z=1");
        assert_eq!(selector_text(&json!({})), NONE);
        assert_eq!(selector_text(&json!({"matchLabels": {"/": ""}})), "<error>");
        assert_eq!(
            access_modes(&[json!("ReadOnlyMany"), json!("ReadWriteOnce")]),
            "RWO,ROX"
        );
        let texts = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(shortened(&texts, 3, NONE), "a,b,c + 1 more...");
        assert_eq!(shortened(&texts, 4, NONE), "a,b,c,d");
        assert_eq!(shortened(&[], 3, NONE), NONE);
    }

    #[test]
    fn times_that_are_not_there_are_unknown() {
        assert_eq!(since(&json!(null), Timestamp::UNIX_EPOCH), UNKNOWN);
        assert_eq!(
            since(&json!("1970-01-01T00:00:10Z"), Timestamp::UNIX_EPOCH),
            "<invalid>"
        );
        assert_eq!(since(&json!("1969-12-31T23:59:50Z"), Timestamp::UNIX_EPOCH), "10s");
    }
}
