//! Autoscalers, in both versions.
//!
//! Source: <https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/>.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, quantity};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, ensure, fill, put, sub_mut};

/// Share of the requested processor time that pods are to use, in percent, when the user says nothing.
const CPU_PERCENT: i64 = 80;
/// Where version 1 keeps what only version 2 can say.
const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// Metrics shown in a row.
const MOST_SHOWN: usize = 2;
/// Kinds of metrics, and the fields that describe them.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Replicas by need.
#[derive(Default)]
pub(super) struct HorizontalPodAutoscaler;

/// The same, in the version that knows of processor time alone. It is stored as version 2, by whose rules it is checked.
#[derive(Default)]
pub(super) struct HorizontalPodAutoscalerV1;

fn columns() -> Vec<Column> {
    show::columns(&[
        NAME,
        Col::text("Reference", "What is scaled."),
        Col::text("Targets", "What is measured, and what it should be."),
        Col::text("MinPods", "The fewest replicas."),
        Col::number("MaxPods", "The most replicas."),
        Col::number("Replicas", "Replicas there are."),
        AGE,
    ])
}

fn row(object: &Value, targets: String, now: Timestamp) -> Vec<Value> {
    let (spec, target) = (object.sub("spec"), object.at("spec.scaleTargetRef"));
    let least = spec.int("minReplicas").map(|n| n.to_string());
    vec![
        show::name(object),
        json!(format!("{}/{}", target.text("kind"), target.text("name"))),
        json!(targets),
        json!(least.unwrap_or_else(|| show::UNSET.to_owned())),
        json!(spec.count("maxReplicas")),
        json!(object.sub("status").count("currentReplicas")),
        show::age(object, now),
    ]
}

impl Strategy for HorizontalPodAutoscalerV1 {
    fn default(&self, object: &mut Value) {
        let other_metrics = object.at("metadata.annotations").has(METRICS_ANNOTATION);
        let Some(spec) = sub_mut(object, "spec") else { return };
        fill(spec, "minReplicas", 1);
        if !other_metrics {
            fill(spec, "targetCPUUtilizationPercentage", CPU_PERCENT);
        }
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        columns()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let percent = |value: Option<i64>| value.map_or(show::UNKNOWN.to_owned(), |n| format!("{n}%"));
        let wanted = object.sub("spec").int("targetCPUUtilizationPercentage");
        let found = object.sub("status").int("currentCPUUtilizationPercentage");
        let targets = match wanted {
            Some(_) => format!("cpu: {}/{}", percent(found), percent(wanted)),
            None => show::NONE.to_owned(),
        };
        row(object, targets, now)
    }
}

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        fill(spec, "minReplicas", 1);
        if spec.list("metrics").is_empty() {
            let target = json!({"type": "Utilization", "averageUtilization": CPU_PERCENT});
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
            put(spec, "metrics", json!([metric]));
        }
        let Some(behavior) = sub_mut(spec, "behavior") else {
            return;
        };
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        if let Some(up) = ensure(behavior, "scaleUp") {
            fill(up, "stabilizationWindowSeconds", 0);
            default_rules(up, json!([pods, percent]));
        }
        if let Some(down) = ensure(behavior, "scaleDown") {
            default_rules(down, json!([percent]));
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        let (least, most) = (spec.int("minReplicas"), spec.count("maxReplicas"));
        // Down to nothing only by what can be measured when nothing runs.
        let outside = spec.list("metrics").iter();
        let outside = outside
            .filter(|m| matches!(m.text("type"), "Object" | "External"))
            .count()
            > 0;
        let lowest = i64::from(!outside);
        if let Some(least) = least.filter(|l| *l < lowest) {
            let why = format!("must be greater than or equal to {lowest}");
            errors.invalid(&at.field("minReplicas"), least, why);
        }
        if most < 1 {
            errors.invalid(&at.field("maxReplicas"), most, "must be greater than 0");
        }
        if least.is_some_and(|l| most < l) {
            let why = "must be greater than or equal to `minReplicas`";
            errors.invalid(&at.field("maxReplicas"), most, why);
        }
        let (target_at, target) = (at.field("scaleTargetRef"), spec.sub("scaleTargetRef"));
        for field in ["kind", "name"] {
            errors.named_required(&target_at.field(field), target.text(field), names::path_segment);
        }
        let list = at.field("metrics");
        for (index, metric) in spec.list("metrics").iter().enumerate() {
            self::metric(&mut errors, &list.index(index), metric);
        }
        let behavior_at = at.field("behavior");
        for field in ["scaleUp", "scaleDown"] {
            let rules = spec.sub("behavior").sub(field);
            if !rules.is_null() {
                self::rules(&mut errors, &behavior_at.field(field), rules);
            }
        }
        errors
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        columns()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let wanted = object.sub("spec").list("metrics");
        let found = object.sub("status").list("currentMetrics");
        let all: Vec<String> = wanted
            .iter()
            .enumerate()
            .map(|(index, metric)| target(metric, found.get(index).unwrap_or(&Value::Null)))
            .collect();
        let shown = match all.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
            _ if all.is_empty() => show::NONE.to_owned(),
            None => all.join(", "),
            Some(more) => {
                let first: Vec<&str> = all.iter().take(MOST_SHOWN).map(String::as_str).collect();
                format!("{} + {more} more...", first.join(", "))
            }
        };
        row(object, shown, now)
    }
}

fn default_rules(rules: &mut Value, policies: Value) {
    fill(rules, "selectPolicy", "Max");
    if rules.list("policies").is_empty() {
        put(rules, "policies", policies);
    }
}

/// The part of a metric that describes it, with the name of its field.
fn source(metric: &Value) -> (&'static str, &Value) {
    let found = SOURCES.iter().find(|(kind, _)| *kind == metric.text("type"));
    found.map_or(("", metric.sub("")), |(_, field)| (*field, metric.sub(field)))
}

/// `measured/wanted` of a metric.
fn target(wanted: &Value, found: &Value) -> String {
    let (field, source) = source(wanted);
    let (goal, current) = (source.sub("target"), found.sub(field).sub("current"));
    let amount = |of: &Value, name: &str| quantity(of.sub(name)).map(|q| q.to_string());
    let of_resource = matches!(field, "resource" | "containerResource");
    let average = amount(goal, "averageValue").map(|goal| (amount(current, "averageValue"), goal));
    let (measured, goal) = match (field, average) {
        (_, Some((measured, goal))) if of_resource || field == "pods" => (measured, goal),
        (_, Some((measured, goal))) => (measured, format!("{goal} (avg)")),
        _ if of_resource => {
            let percent = |of: &Value| of.int("averageUtilization").map(|n| format!("{n}%"));
            (percent(current), percent(goal).unwrap_or_else(|| "<auto>".to_owned()))
        }
        _ => (amount(current, "value"), amount(goal, "value").unwrap_or_default()),
    };
    let measured = measured.unwrap_or_else(|| show::UNKNOWN.to_owned());
    let prefix = if of_resource {
        format!("{}: ", source.text("name"))
    } else {
        String::new()
    };
    format!("{prefix}{measured}/{goal}")
}

fn metric(errors: &mut FieldErrors, at: &Path<'_>, metric: &Value) {
    let kind = metric.text("type");
    let kinds = SOURCES.map(|(kind, _)| kind);
    errors.one_of_required(&at.field("type"), kind, &kinds);
    for (other, field) in SOURCES {
        if other == kind && !metric.has(field) {
            errors.required(
                &at.field(field),
                "must populate information for the given metric source",
            );
        } else if other != kind && metric.has(field) {
            errors.forbidden(&at.field(field), "must populate the given metric source only");
        }
    }
    let (field, source) = source(metric);
    if source.is_null() {
        return;
    }
    let at = at.field(field);
    match field {
        "resource" | "containerResource" => {
            if source.text("name").is_empty() {
                errors.required(&at.field("name"), "must specify a resource name");
            }
            if field == "containerResource" && source.text("container").is_empty() {
                errors.required(&at.field("container"), "must specify a container");
            }
        }
        _ => errors.named_required(
            &at.field("metric").field("name"),
            source.at("metric.name").as_text(),
            names::path_segment,
        ),
    }
    let (at, target) = (at.field("target"), source.sub("target"));
    let kinds = ["AverageValue", "Utilization", "Value"];
    errors.one_of_required(&at.field("type"), target.text("type"), &kinds);
    for field in ["value", "averageValue"] {
        if quantity(target.sub(field)).is_some_and(|q| q.signum() <= 0) {
            errors.invalid(&at.field(field), target.sub(field).clone(), "must be positive");
        }
    }
    if let Some(percent) = target.int("averageUtilization").filter(|n| *n < 1) {
        errors.invalid(&at.field("averageUtilization"), percent, "must be greater than 0");
    }
}

fn rules(errors: &mut FieldErrors, at: &Path<'_>, rules: &Value) {
    let window = "stabilizationWindowSeconds";
    if let Some(seconds) = rules.int(window) {
        if seconds < 0 {
            errors.invalid(&at.field(window), seconds, "must be greater than or equal to zero");
        } else if seconds > 3600 {
            errors.invalid(&at.field(window), seconds, "must be less than or equal to 3600");
        }
    }
    if rules.has("selectPolicy") {
        let choices = ["Disabled", "Max", "Min"];
        errors.one_of(&at.field("selectPolicy"), rules.text("selectPolicy"), &choices);
    }
    let list = at.field("policies");
    if rules.list("policies").is_empty() {
        errors.required(&list, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").iter().enumerate() {
        let at = list.index(index);
        errors.one_of(&at.field("type"), policy.text("type"), &["Percent", "Pods"]);
        for (field, most) in [("value", i64::from(i32::MAX)), ("periodSeconds", 1800)] {
            let number = policy.count(field);
            if number < 1 {
                errors.invalid(&at.field(field), number, "must be greater than zero");
            } else if number > most {
                errors.invalid(
                    &at.field(field),
                    number,
                    format!("must be less than or equal to {most}"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        for (key, value) in spec.entries() {
            put(&mut object["spec"], key, value.clone());
        }
        HorizontalPodAutoscaler.default(&mut object);
        object
    }

    #[test]
    fn defaults_and_cells() {
        let mut object = autoscaler(json!({"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}));
        assert!(HorizontalPodAutoscaler.validate(&object).is_empty());
        let behavior = &object["spec"]["behavior"];
        assert_eq!(behavior["scaleUp"]["stabilizationWindowSeconds"], 0);
        assert_eq!(behavior["scaleUp"]["policies"].as_list().len(), 2);
        assert_eq!(behavior["scaleDown"]["selectPolicy"], "Disabled");
        let cells = |object: &Value| HorizontalPodAutoscaler.cells(object, Timestamp::UNIX_EPOCH)[1..6].to_vec();
        assert_eq!(
            cells(&object),
            [
                json!("Deployment/d"),
                json!("cpu: <unknown>/80%"),
                json!("1"),
                json!(5),
                json!(0)
            ]
        );
        object["status"] = json!({"currentReplicas": 2, "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 30, "averageValue": "3m"}}}]});
        assert_eq!(cells(&object)[1], "cpu: 30%/80%");
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "4"}}},
            {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "4"}}}]);
        let many = autoscaler(json!({"metrics": metrics, "minReplicas": 0}));
        assert!(HorizontalPodAutoscaler.validate(&many).is_empty());
        assert_eq!(cells(&many)[1], "memory: <unknown>/1Gi, <unknown>/4 (avg) + 1 more...");
        let mut older = json!({"spec": {"maxReplicas": 1}});
        HorizontalPodAutoscalerV1.default(&mut older);
        assert_eq!(older["spec"]["targetCPUUtilizationPercentage"], 80);
        let cells = HorizontalPodAutoscalerV1.cells(&older, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[2], "cpu: <unknown>/80%");
    }

    #[test]
    fn what_is_wrong() {
        for (spec, expected) in [
            (
                json!({"maxReplicas": 0}),
                "spec.maxReplicas: Invalid value: 0: must be greater than 0",
            ),
            (
                json!({"minReplicas": 0}),
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            ),
            (
                json!({"minReplicas": 9}),
                "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`",
            ),
            (
                json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}}),
                "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            ),
        ] {
            let errors = HorizontalPodAutoscaler.validate(&autoscaler(spec));
            assert_eq!(errors.0.first().map(ToString::to_string).as_deref(), Some(expected));
        }
    }
}
