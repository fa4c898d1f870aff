//! Value checks of custom kinds, worded as upstream words them.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation>.
//! CEL rules are carried here (`rules`) and run by their own crate.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use minato_meta::{FieldError, FieldErrorClass, FieldErrors, parse_duration, parse_time};
use regex::Regex;
use serde_json::Value;

use crate::path::Path;
use crate::types::{IntegerFormat, ListType, Schema, Shape};

/// Enough to mend an object by; a hostile one must not make a huge answer.
const MAX_ERRORS: usize = 200;

/// A lower or upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The bound.
    pub value: f64,
    /// Whether the bound itself is out.
    pub exclusive: bool,
}

/// Value keywords of one schema node, named as in OpenAPI v3.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the keywords of OpenAPI v3, by name")]
pub struct Validation {
    pub format: Option<String>,
    pub enumeration: Vec<Value>,
    pub pattern: Option<Regex>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Schema>,
    /// `x-kubernetes-validations`, as written.
    pub rules: Vec<Value>,
}

impl Validation {
    pub(crate) fn states_anything(&self) -> bool {
        self.format.is_some()
            || self.pattern.is_some()
            || self.minimum.is_some()
            || self.maximum.is_some()
            || self.multiple_of.is_some()
            || self.min_length.is_some()
            || self.max_length.is_some()
            || self.min_items.is_some()
            || self.max_items.is_some()
            || self.unique_items
            || self.min_properties.is_some()
            || self.max_properties.is_some()
            || self.not.is_some()
            || !(self.enumeration.is_empty()
                && self.required.is_empty()
                && self.all_of.is_empty()
                && self.any_of.is_empty()
                && self.one_of.is_empty()
                && self.rules.is_empty())
    }
}

/// All that is wrong with the structure and values of an object.
pub fn validate(value: &Value, schema: &Schema) -> FieldErrors {
    let mut checker = Checker {
        errors: FieldErrors::default(),
    };
    checker.node(value, schema, &Path::Root);
    checker.errors
}

struct Checker {
    errors: FieldErrors,
}

impl Checker {
    fn push(&mut self, error: FieldError) {
        if self.errors.0.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: String) {
        self.push(FieldError::invalid(path.to_string(), shown(value), detail));
    }

    fn node(&mut self, value: &Value, schema: &Schema, path: &Path<'_>) {
        if value.is_null() && (schema.nullable || matches!(schema.shape, Shape::Any)) {
            return;
        }
        if let Some(wanted) = wanted_type(value, schema) {
            let got = type_name(value);
            self.push(FieldError::new(
                FieldErrorClass::TypeInvalid,
                path.to_string(),
                got,
                format!("{path} in body must be of type {wanted}: {got:?}"),
            ));
            return;
        }
        match (&schema.shape, value) {
            (Shape::Object(fields), Value::Object(map)) => {
                for field in fields {
                    match map.get(field.name.as_ref()) {
                        Some(child) => self.node(child, &field.schema, &path.field(&field.name)),
                        None if field.required => {
                            self.push(FieldError::required(path.field(&field.name).to_string(), ""));
                        }
                        None => {}
                    }
                }
            }
            (Shape::Map(values), Value::Object(map)) => {
                for (key, child) in map {
                    self.node(child, values, &path.field(key));
                }
            }
            (Shape::List(items), Value::Array(list)) => {
                for (index, child) in list.iter().enumerate() {
                    self.node(child, items, &path.index(index));
                }
                self.uniqueness(list, &schema.list_type, path);
            }
            _ => {}
        }
        if let Some(validation) = &schema.validation {
            self.values(value, validation, path);
            self.junctors(value, validation, path);
        }
    }

    fn uniqueness(&mut self, list: &[Value], list_type: &ListType, path: &Path<'_>) {
        let mut seen = HashSet::new();
        for (index, item) in list.iter().enumerate() {
            let key = match list_type {
                ListType::Atomic => return,
                ListType::Set => item.clone(),
                ListType::Map(keys) => Value::Object(
                    keys.iter()
                        .filter_map(|k| item.get(k.as_ref()).map(|v| (k.to_string(), v.clone())))
                        .collect(),
                ),
            };
            if !seen.insert(key.to_string()) {
                self.push(FieldError::duplicate(path.index(index).to_string(), key));
            }
        }
    }

    fn values(&mut self, value: &Value, rules: &Validation, path: &Path<'_>) {
        if !rules.enumeration.is_empty() && !rules.enumeration.iter().any(|v| same(v, value)) {
            let supported: Vec<String> = rules
                .enumeration
                .iter()
                .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                .collect();
            let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
            self.push(FieldError::not_supported(path.to_string(), value.clone(), &supported));
        }
        match value {
            Value::String(text) => self.text(value, text, rules, path),
            Value::Number(number) => self.number(value, number.as_f64().unwrap_or(f64::NAN), rules, path),
            Value::Array(list) => {
                let count = list.len() as u64;
                if let Some(min) = rules.min_items.filter(|min| count < *min) {
                    self.invalid(path, value, format!("{path} in body should have at least {min} items"));
                }
                if let Some(max) = rules.max_items.filter(|max| count > *max) {
                    self.too_many(path, count, max);
                }
                if rules.unique_items {
                    let mut seen = HashSet::new();
                    if !list.iter().all(|item| seen.insert(item.to_string())) {
                        self.invalid(path, value, format!("{path} in body shouldn't contain duplicates"));
                    }
                }
            }
            Value::Object(map) => {
                let count = map.len() as u64;
                if let Some(min) = rules.min_properties.filter(|min| count < *min) {
                    self.invalid(
                        path,
                        value,
                        format!("{path} in body should have at least {min} properties"),
                    );
                }
                if let Some(max) = rules.max_properties.filter(|max| count > *max) {
                    self.too_many(path, count, max);
                }
                for name in rules.required.iter().filter(|name| !map.contains_key(*name)) {
                    self.push(FieldError::required(path.field(name).to_string(), ""));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn too_many(&mut self, path: &Path<'_>, count: u64, max: u64) {
        self.push(FieldError::new(
            FieldErrorClass::TooMany,
            path.to_string(),
            Value::Null,
            format!("{count}: must have at most {max} items"),
        ));
    }

    fn text(&mut self, value: &Value, text: &str, rules: &Validation, path: &Path<'_>) {
        let length = text.chars().count() as u64;
        if let Some(min) = rules.min_length.filter(|min| length < *min) {
            self.invalid(
                path,
                value,
                format!("{path} in body should be at least {min} chars long"),
            );
        }
        if let Some(max) = rules.max_length.filter(|max| length > *max) {
            self.push(FieldError::new(
                FieldErrorClass::TooLong,
                path.to_string(),
                Value::Null,
                format!("may not be more than {max} bytes"),
            ));
        }
        if let Some(pattern) = rules.pattern.as_ref().filter(|p| !p.is_match(text)) {
            let pattern = pattern.as_str();
            self.invalid(path, value, format!("{path} in body should match '{pattern}'"));
        }
        if let Some(format) = rules.format.as_deref().filter(|f| !has_format(text, f)) {
            self.invalid(
                path,
                value,
                format!("{path} in body must be of type {format}: {text:?}"),
            );
        }
    }

    fn number(&mut self, value: &Value, number: f64, rules: &Validation, path: &Path<'_>) {
        if let Some(min) = rules.minimum {
            let wrong = if min.exclusive {
                number <= min.value
            } else {
                number < min.value
            };
            if wrong {
                let or_equal = if min.exclusive { "" } else { " or equal to" };
                self.invalid(
                    path,
                    value,
                    format!("{path} in body should be greater than{or_equal} {}", min.value),
                );
            }
        }
        if let Some(max) = rules.maximum {
            let wrong = if max.exclusive {
                number >= max.value
            } else {
                number > max.value
            };
            if wrong {
                let or_equal = if max.exclusive { "" } else { " or equal to" };
                self.invalid(
                    path,
                    value,
                    format!("{path} in body should be less than{or_equal} {}", max.value),
                );
            }
        }
        if let Some(step) = rules.multiple_of.filter(|step| *step > 0.0) {
            let ratio = number / step;
            if (ratio - ratio.round()).abs() > 1e-9 {
                self.invalid(path, value, format!("{path} in body should be a multiple of {step}"));
            }
        }
    }

    fn junctors(&mut self, value: &Value, rules: &Validation, path: &Path<'_>) {
        let matching = |schemas: &[Schema]| {
            schemas
                .iter()
                .filter(|schema| {
                    let mut trial = Self {
                        errors: FieldErrors::default(),
                    };
                    trial.node(value, schema, path);
                    trial.errors.is_empty()
                })
                .count()
        };
        for schema in &rules.all_of {
            self.node(value, schema, path);
        }
        if !rules.any_of.is_empty() && matching(&rules.any_of) == 0 {
            let detail = format!("\"{path}\" must validate at least one schema (anyOf)");
            self.invalid(path, value, detail);
        }
        if !rules.one_of.is_empty() {
            let found = matching(&rules.one_of);
            if found != 1 {
                let found = if found == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {found} valid alternatives")
                };
                let detail = format!("\"{path}\" must validate one and only one schema (oneOf). {found}");
                self.invalid(path, value, detail);
            }
        }
        if let Some(not) = &rules.not
            && matching(std::slice::from_ref(not)) == 1
        {
            self.invalid(path, value, format!("\"{path}\" must not validate the schema (not)"));
        }
    }
}

/// Objects and lists are shown by their type, to keep messages short.
fn shown(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::String("object".to_owned()),
        Value::Array(_) => Value::String("array".to_owned()),
        other => other.clone(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The type that was wanted, when the value is not of it.
fn wanted_type(value: &Value, schema: &Schema) -> Option<&'static str> {
    let whole = |format: IntegerFormat| match value {
        Value::Number(n) => n
            .as_i64()
            .or_else(|| {
                n.as_f64()
                    .filter(|f| f.fract() == 0.0 && f.abs() < 9e15)
                    .map(|f| f as i64)
            })
            .is_some_and(|n| format == IntegerFormat::Int64 || i32::try_from(n).is_ok()),
        _ => false,
    };
    let (fits, wanted) = match &schema.shape {
        Shape::Any | Shape::Raw => (true, ""),
        Shape::Boolean => (value.is_boolean(), "boolean"),
        Shape::Integer(format) => (whole(*format), "integer"),
        Shape::Number => (value.is_number(), "number"),
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => (value.is_string(), "string"),
        Shape::Quantity => (value.is_string() || value.is_number(), "string"),
        Shape::IntOrString => (value.is_string() || whole(IntegerFormat::Int64), "integer,string"),
        Shape::List(_) => (value.is_array(), "array"),
        Shape::Map(_) | Shape::Object(_) | Shape::FieldsV1 => (value.is_object(), "object"),
    };
    (!fits).then_some(wanted)
}

/// Equal as JSON values; `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Formats that are checked; unknown ones pass, as upstream lets them.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" | "datetime" => parse_time(text).is_ok(),
        "date" => parse_time(&format!("{text}T00:00:00Z")).is_ok(),
        "duration" => parse_duration(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(ip, bits)| {
            let most = if ip.parse::<Ipv4Addr>().is_ok() {
                32
            } else if ip.parse::<Ipv6Addr>().is_ok() {
                128
            } else {
                return false;
            };
            bits.parse::<u8>().is_ok_and(|b| b <= most)
        }),
        "byte" => minato_meta::is_base64(text),
        "uuid" => {
            let hex: String = text.chars().filter(|c| *c != '-').collect();
            hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: Value, value: Value) -> Vec<String> {
        validate(&value, &Schema::from_openapi_v3(&schema).unwrap())
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn messages_of_value_checks() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.5},
            "mode": {"type": "string", "enum": ["b", "a"]},
            "list": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            "when": {"type": "string", "format": "date-time"}
        }});
        assert_eq!(
            errors(schema.clone(), json!({"name": "abc", "size": 1, "ratio": 1.5})),
            Vec::<String>::new()
        );
        assert_eq!(
            errors(
                schema,
                json!({"size": 0, "ratio": 0, "mode": "c", "list": ["x", 1], "when": "now"})
            ),
            [
                "list[1]: Invalid value: \"integer\": list[1] in body must be of type string: \"integer\"",
                "list: Too many: 2: must have at most 1 items",
                "mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
                "name: Required value",
                "ratio: Invalid value: 0: ratio in body should be greater than 0",
                "size: Invalid value: 0: size in body should be greater than or equal to 1",
                "when: Invalid value: \"now\": when in body must be of type date-time: \"now\"",
            ]
        );
    }

    #[test]
    fn junctors() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "not": {"properties": {"a": {"enum": ["bad"]}}, "required": ["a"]}});
        assert!(errors(schema.clone(), json!({"a": "x"})).is_empty());
        assert_eq!(errors(schema.clone(), json!({"a": "x", "b": "y"})).len(), 1);
        assert_eq!(errors(schema.clone(), json!({})).len(), 1);
        assert_eq!(errors(schema, json!({"a": "bad"})).len(), 1);
    }

    #[test]
    fn list_keys_are_unique() {
        let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}}});
        assert_eq!(
            errors(schema, json!([{"name": "a"}, {"name": "b"}, {"name": "a"}])),
            ["[2]: Duplicate value: {\"name\":\"a\"}"]
        );
    }
}
