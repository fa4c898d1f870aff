//! Limit ranges: bounds and defaults for what pods of a namespace ask for.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::{Amount, Path, Report as _, SPEC, Seen, quantity, resource_amount};
use crate::resource::{Column, Strategy};
use crate::show::{self, CREATED_AT, NAME};
use crate::tree::{Tree as _, each, ensure, fill, sub_mut};

/// Bounds of a namespace.
#[derive(Default)]
pub(in crate::kinds) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        for item in each(spec, "limits") {
            if item.text("type") == "Container" {
                fill_item(item);
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let at = &SPEC;
        let list = at.field("limits");
        let mut types = Seen::default();
        for (index, item) in object.at("spec.limits").as_list().iter().enumerate() {
            let at = list.index(index);
            errors.named(&at.field("type"), item.text("type"), minato_meta::names::qualified_name);
            types.note(&mut errors, &at.field("type"), item.text("type"));
            self::item(&mut errors, &at, item);
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, CREATED_AT])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::created_at(object)]
    }
}

/// Limits default to the most, requests to the limits or the least.
fn fill_item(item: &mut Value) {
    let (most, least) = (item.sub("max").clone(), item.sub("min").clone());
    let Some(limits) = ensure(item, "default") else { return };
    for (name, amount) in most.entries() {
        fill(limits, name, amount.clone());
    }
    let limits = limits.clone();
    let Some(requests) = ensure(item, "defaultRequest") else {
        return;
    };
    for (name, amount) in limits.entries().chain(least.entries()) {
        fill(requests, name, amount.clone());
    }
    for field in ["default", "defaultRequest"] {
        if item.sub(field).is_blank() {
            crate::tree::drop_member(item, field);
        }
    }
}

/// Bounds in the order in which they must grow.
const GROWING: [(&str, &str); 6] = [
    ("min", "max"),
    ("min", "defaultRequest"),
    ("min", "default"),
    ("defaultRequest", "max"),
    ("defaultRequest", "default"),
    ("default", "max"),
];

fn item(errors: &mut FieldErrors, at: &Path<'_>, item: &Value) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let list = at.field(field);
        for (name, amount) in item.sub(field).entries() {
            resource_amount(errors, &list.key(name), name, amount, Amount::NotNegative);
        }
    }
    let is_pod = item.text("type") == "Pod";
    for field in ["default", "defaultRequest"] {
        if is_pod && !item.sub(field).is_blank() {
            errors.forbidden(&at.field(field), "may not be specified when `type` is 'Pod'");
        }
    }
    if item.text("type") == "PersistentVolumeClaim"
        && item.at("min.storage").is_null()
        && item.at("max.storage").is_null()
    {
        errors.required(
            &at.field("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        );
    }
    for (low, high) in GROWING {
        let list = at.field(low);
        for (name, amount) in item.sub(low).entries() {
            let (Some(a), Some(b)) = (quantity(amount), quantity(item.sub(high).sub(name))) else {
                continue;
            };
            if a > b {
                errors.invalid(
                    &list.key(name),
                    a.to_string(),
                    format!("{} value {a} is greater than {} value {b}", spoken(low), spoken(high)),
                );
            }
        }
    }
}

fn spoken(field: &str) -> &'static str {
    match field {
        "defaultRequest" => "default request",
        "default" => "default",
        "min" => "min",
        _ => "max",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_get_defaults_of_the_bounds() {
        let mut object =
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}});
        LimitRange.default(&mut object);
        assert_eq!(
            object["spec"]["limits"][0],
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "default": {"cpu": "2"},
                "defaultRequest": {"cpu": "2", "memory": "1Mi"}})
        );
        let mut object = json!({"spec": {"limits": [{"type": "Container"}]}});
        let before = object.clone();
        LimitRange.default(&mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn bounds_must_not_cross() {
        let object = json!({"spec": {"limits": [
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}, {"type": "Container"}]}});
        let errors: Vec<String> = LimitRange.validate(&object).0.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                "spec.limits[1].type: Duplicate value: \"Container\"",
            ]
        );
    }
}
