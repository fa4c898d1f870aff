//! What kinds that make pods of a template have in common.

use minato_meta::{FieldError, FieldErrors};
use serde_json::Value;

use crate::check::{IMMUTABLE, Path, Report as _, STATUS, SelectorRule, same, selector, selector_matches};
use crate::pod;
use crate::pod::validation;
use crate::tree::{Tree as _, at_mut, fill};

/// Fills the pod spec of `template`.
pub(super) fn default_template(holder: &mut Value) {
    if let Some(spec) = at_mut(holder, "template.spec") {
        pod::default_template(spec);
    }
}

/// One replica unless the client says otherwise.
pub(super) fn default_replicas(spec: &mut Value) {
    fill(spec, "replicas", 1);
}

/// A label selector that must be there and select something.
pub(super) fn needed_selector(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, of: &str) {
    let (at, value) = (at.field("selector"), spec.sub("selector"));
    if value.is_null() {
        errors.required(&at, "");
        return;
    }
    selector(errors, &at, value, SelectorRule::Any);
    if value.sub("matchLabels").is_blank() && value.sub("matchExpressions").is_blank() {
        errors.invalid(&at, value.clone(), format!("empty selector is invalid for {of}"));
    }
}

/// A template whose pods the selector selects, and that run for ever.
pub(super) fn lasting_template(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, of: &str) {
    let (at, template) = (at.field("template"), spec.sub("template"));
    labels_match(errors, &at, spec);
    validation::template(errors, &at, template);
    let spec_at = at.field("spec");
    let policy = template.at("spec.restartPolicy").as_text();
    if !policy.is_empty() && policy != "Always" {
        errors.unsupported(&spec_at.field("restartPolicy"), policy, &["Always"]);
    }
    if template.sub("spec").has("activeDeadlineSeconds") {
        errors.forbidden(
            &spec_at.field("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {of} is not Supported"),
        );
    }
}

/// The selector must select what the template makes.
pub(super) fn labels_match(errors: &mut FieldErrors, template_at: &Path<'_>, spec: &Value) {
    let (selector, labels) = (spec.sub("selector"), spec.at("template.metadata.labels"));
    if !selector.is_null() && !selector_matches(selector, labels) {
        errors.invalid(
            &template_at.field("metadata").field("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        );
    }
}

/// A field of the spec that stays as it was made.
pub(super) fn frozen(errors: &mut FieldErrors, object: &Value, old: &Value, field: &str) {
    let (new, old) = (object.sub("spec").sub(field), old.sub("spec").sub(field));
    if !same(new, old) {
        errors.push(FieldError::invalid(format!("spec.{field}"), new.clone(), IMMUTABLE));
    }
}

/// Counts of a status, which cannot be below zero.
pub(super) fn counts(errors: &mut FieldErrors, object: &Value, fields: &[&str]) {
    let at = &STATUS;
    for field in fields {
        errors.not_negative(&at.field(field), object.sub("status").int(field));
    }
}

/// Counts that are parts of another count.
pub(super) fn parts(errors: &mut FieldErrors, object: &Value, fields: &[&str], whole: &str) {
    let at = &STATUS;
    let status = object.sub("status");
    for field in fields {
        let count = status.count(field);
        if count > status.count(whole) {
            errors.invalid(
                &at.field(field),
                count,
                format!("cannot be greater than status.{whole}"),
            );
        }
    }
}

/// Warnings about the template of a spec, when it changed.
pub(super) fn template_warnings(object: &Value, old: Option<&Value>, path: &str) -> Vec<String> {
    let template = object.at(path);
    if old.is_some_and(|old| old.at(path) == template) {
        return Vec::new();
    }
    let at = format!("{path}.spec");
    pod::warnings::spec(&Path::Root.field(&at), template.sub("spec"))
}
