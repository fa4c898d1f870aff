//! What validation of every kind is made of: reports of field errors, and the rules that many kinds share.
//!
//! Texts are those that users and tools of Kubernetes know.

mod labels;
mod net;
mod resources;

use std::collections::BTreeSet;

use minato_meta::{FieldError, FieldErrorClass, FieldErrors, names};
pub(crate) use minato_schema::Path;
use serde_json::Value;

pub(crate) use labels::{SelectorRule, annotations, label_key, labels, selector, selector_matches};
pub(crate) use net::{absolute_path, cidr, ip, no_backsteps, non_special_ip, relative_path};
pub(crate) use resources::{Amount, may_overcommit, quantity, resource_amount, resource_name};

use crate::tree::Tree as _;

/// Path of the part that users write.
pub(crate) static SPEC: Path<'static> = Path::Field(&Path::Root, "spec");
/// Path of the part that the cluster writes.
pub(crate) static STATUS: Path<'static> = Path::Field(&Path::Root, "status");
/// Path of the part that all objects have.
pub(crate) static METADATA: Path<'static> = Path::Field(&Path::Root, "metadata");

/// `must be greater than or equal to 0`.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// What is said of a changed field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Collects field errors.
pub(crate) trait Report {
    /// The value is wrong.
    fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, why: impl Into<String>);
    /// A value is missing.
    fn required(&mut self, at: &Path<'_>, why: &str);
    /// A value may not be there or change.
    fn forbidden(&mut self, at: &Path<'_>, why: impl Into<String>);
    /// The value is there twice.
    fn duplicate(&mut self, at: &Path<'_>, value: impl Into<Value>);
    /// The value is none of these.
    fn unsupported(&mut self, at: &Path<'_>, value: &str, allowed: &[&str]);
    /// Another part of the object does not have this.
    fn not_found(&mut self, at: &Path<'_>, value: &str);
    /// The value has more bytes than allowed.
    fn too_long(&mut self, at: &Path<'_>, most: usize);

    /// Checks a text by a rule of `minato_meta::names`.
    fn named(&mut self, at: &Path<'_>, value: &str, rule: impl Fn(&str) -> Vec<String>) {
        for why in rule(value) {
            self.invalid(at, value, why);
        }
    }
    /// Checks a text that must be there.
    fn named_required(&mut self, at: &Path<'_>, value: &str, rule: impl Fn(&str) -> Vec<String>) {
        if value.is_empty() {
            self.required(at, "");
        } else {
            self.named(at, value, rule);
        }
    }
    /// Checks that a text is one of a few.
    fn one_of(&mut self, at: &Path<'_>, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.unsupported(at, value, allowed);
        }
    }
    /// Checks that a text is there and one of a few.
    fn one_of_required(&mut self, at: &Path<'_>, value: &str, allowed: &[&str]) {
        if value.is_empty() {
            self.required(at, "");
        } else {
            self.one_of(at, value, allowed);
        }
    }
    /// Checks a number that may not be below zero; absent ones pass.
    fn not_negative(&mut self, at: &Path<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|v| *v < 0) {
            self.invalid(at, value, NOT_NEGATIVE);
        }
    }
    /// Checks that a number lies in a range.
    fn within(&mut self, at: &Path<'_>, value: i64, least: i64, most: i64) {
        if !(least..=most).contains(&value) {
            self.invalid(at, value, format!("must be between {least} and {most}, inclusive"));
        }
    }
    /// Checks a port number.
    fn port(&mut self, at: &Path<'_>, value: i64) {
        self.within(at, value, 1, 65535);
    }
    /// Checks that a value did not change.
    fn unchanged(&mut self, at: &Path<'_>, new: &Value, old: &Value) {
        if !same(new, old) {
            self.invalid(at, new.clone(), IMMUTABLE);
        }
    }
}

impl Report for FieldErrors {
    fn invalid(&mut self, at: &Path<'_>, value: impl Into<Value>, why: impl Into<String>) {
        self.push(FieldError::invalid(at.to_string(), value, why));
    }
    fn required(&mut self, at: &Path<'_>, why: &str) {
        self.push(FieldError::required(at.to_string(), why));
    }
    fn forbidden(&mut self, at: &Path<'_>, why: impl Into<String>) {
        self.push(FieldError::forbidden(at.to_string(), why));
    }
    fn duplicate(&mut self, at: &Path<'_>, value: impl Into<Value>) {
        self.push(FieldError::duplicate(at.to_string(), value));
    }
    fn unsupported(&mut self, at: &Path<'_>, value: &str, allowed: &[&str]) {
        self.push(FieldError::not_supported(at.to_string(), value, allowed));
    }
    fn not_found(&mut self, at: &Path<'_>, value: &str) {
        self.push(FieldError::new(FieldErrorClass::NotFound, at.to_string(), value, ""));
    }
    fn too_long(&mut self, at: &Path<'_>, most: usize) {
        self.push(FieldError::new(
            FieldErrorClass::TooLong,
            at.to_string(),
            Value::Null,
            format!("may not be more than {most} bytes"),
        ));
    }
}

/// Whether two values say the same; absent, `null` and empty are alike.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_blank() && b.is_blank())
}

/// Number of whole units or a percentage, as `maxSurge` takes them.
pub(crate) fn number_or_percent(errors: &mut FieldErrors, at: &Path<'_>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Number(number) => errors.not_negative(at, number.as_i64()),
        Value::String(text) => {
            if percent(text).is_none() {
                errors.invalid(
                    at,
                    text.as_str(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                     regex used for validation is '[0-9]+%')",
                );
            }
        }
        other => errors.invalid(at, other.clone(), "must be an integer or percentage (e.g '5%%')"),
    }
}

/// The number of a percentage such as `25%`.
pub(crate) fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(i64::MAX))
}

/// A percentage may not be above a hundred.
pub(crate) fn at_most_all(errors: &mut FieldErrors, at: &Path<'_>, value: &Value) {
    if let Some(text) = value.as_str()
        && percent(text).is_some_and(|p| p > 100)
    {
        errors.invalid(at, text, "must not be greater than 100%");
    }
}

/// A port by number or by name.
pub(crate) fn port_number_or_name(errors: &mut FieldErrors, at: &Path<'_>, value: &Value) {
    match value {
        Value::Number(number) => errors.port(at, number.as_i64().unwrap_or(0)),
        Value::String(text) => errors.named(at, text, names::port_name),
        other => errors.invalid(at, other.clone(), "must be an integer or a name"),
    }
}

/// Notes texts and reports those that came before.
#[derive(Default)]
pub(crate) struct Seen(BTreeSet<String>);

impl Seen {
    /// Notes a text; reports it when it is not new. Returns whether it was new.
    pub(crate) fn note(&mut self, errors: &mut FieldErrors, at: &Path<'_>, value: &str) -> bool {
        let new = self.0.insert(value.to_owned());
        if !new {
            errors.duplicate(at, value);
        }
        new
    }
    /// Whether a text was noted.
    pub(crate) fn has(&self, value: &str) -> bool {
        self.0.contains(value)
    }
    /// Notes a text; tells whether it was new.
    pub(crate) fn add(&mut self, value: &str) -> bool {
        self.0.insert(value.to_owned())
    }
}

/// Names that get a suffix from a controller must leave room for it: job and cron job names.
pub(crate) fn subdomain(name: &str) -> Vec<String> {
    names::dns1123_subdomain(name)
}
