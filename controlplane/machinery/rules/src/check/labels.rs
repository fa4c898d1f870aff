//! Labels, annotations and label selectors within objects.

use minato_meta::{FieldErrors, LabelSelector, names};
use serde_json::Value;

use super::{Path, Report as _};
use crate::tree::Tree as _;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// A map of labels.
pub(crate) fn labels(errors: &mut FieldErrors, at: &Path<'_>, map: &Value) {
    for (key, value) in map.entries() {
        label_key(errors, at, key);
        errors.named(at, value.as_text(), names::label_value);
    }
}

/// One label key.
pub(crate) fn label_key(errors: &mut FieldErrors, at: &Path<'_>, key: &str) {
    errors.named(at, key, names::qualified_name);
}

/// A map of annotations.
pub(crate) fn annotations(errors: &mut FieldErrors, at: &Path<'_>, map: &Value) {
    let mut total = 0_usize;
    for (key, value) in map.entries() {
        for why in names::qualified_name(&key.to_lowercase()) {
            errors.invalid(at, key.as_str(), why);
        }
        total = total.saturating_add(key.len()).saturating_add(value.as_text().len());
    }
    if total > ANNOTATIONS_LIMIT {
        errors.too_long(at, ANNOTATIONS_LIMIT);
    }
}

/// Whether an empty selector passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectorRule {
    /// It may select everything.
    Any,
    /// It must select by something.
    NotEmpty,
}

/// A label selector in its object form.
pub(crate) fn selector(errors: &mut FieldErrors, at: &Path<'_>, value: &Value, rule: SelectorRule) {
    labels(errors, &at.field("matchLabels"), value.sub("matchLabels"));
    let list = at.field("matchExpressions");
    for (index, expression) in value.list("matchExpressions").iter().enumerate() {
        let at = list.index(index);
        let (values, values_at) = (expression.list("values"), at.field("values"));
        match expression.text("operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.required(&values_at, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.forbidden(
                        &values_at,
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        label_key(errors, &at.field("key"), expression.text("key"));
        for (index, value) in values.iter().enumerate() {
            errors.named(&values_at.index(index), value.as_text(), names::label_value);
        }
    }
    if rule == SelectorRule::NotEmpty && is_empty(value) {
        errors.invalid(at, value.clone(), "empty selector is invalid for deployment");
    }
}

fn is_empty(value: &Value) -> bool {
    value.sub("matchLabels").is_blank() && value.sub("matchExpressions").is_blank()
}

/// Whether a selector in object form selects an object with these labels. A selector that cannot be read selects all:
/// what is wrong with it is reported elsewhere.
pub(crate) fn selector_matches(selector: &Value, labels: &Value) -> bool {
    LabelSelector::from_object(selector).map_or(true, |s| s.matches(|key| labels.sub(key).as_str()))
}
