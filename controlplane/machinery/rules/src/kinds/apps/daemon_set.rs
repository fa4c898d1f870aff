//! Daemon sets.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use super::deployment::is_nothing;
use crate::check::{Path, Report as _, SPEC, at_most_all, number_or_percent};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, ensure, fill, fill_zero, put, sub_mut};

/// Counts the templates that a daemon set has had; older clients read it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Old revisions that are kept to go back to.
const HISTORY: i64 = 10;

/// A pod on every node.
#[derive(Default)]
pub(in crate::kinds) struct DaemonSet;

fn template_generation(object: &Value) -> i64 {
    object
        .at("metadata.annotations")
        .text(TEMPLATE_GENERATION)
        .parse()
        .unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = sub_mut(object, "metadata").and_then(|m| ensure(m, "annotations")) {
        put(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

impl Strategy for DaemonSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        workload::default_template(spec);
        if let Some(strategy) = ensure(spec, "updateStrategy") {
            fill_zero(strategy, "type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", 1);
                fill(rolling, "maxSurge", 0);
            }
        }
        fill(spec, "revisionHistoryLimit", HISTORY);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let generation = template_generation(object).max(1);
        set_template_generation(object, generation);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        let changed = object.at("spec.template") != old.at("spec.template");
        let generation = template_generation(old).saturating_add(i64::from(changed));
        set_template_generation(object, generation);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        workload::needed_selector(&mut errors, at, spec, "daemonset");
        workload::lasting_template(&mut errors, at, spec, "DaemonSet");
        errors.not_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
        errors.not_negative(&at.field("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
        strategy(&mut errors, &at.field("updateStrategy"), spec.sub("updateStrategy"));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        workload::frozen(&mut errors, object, old, "selector");
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ];
        workload::counts(&mut errors, object, &counts);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::number("Desired", "Nodes that should run the pod."),
            Col::number("Current", "Nodes that run it."),
            Col::number("Ready", "Nodes on which it is ready."),
            Col::number("Up-to-date", "Nodes with a pod of the current template."),
            Col::number("Available", "Nodes on which it has been ready for long enough."),
            Col::text("Node Selector", "Labels of the nodes that are meant."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let [names, images] = show::containers_and_images(spec.at("template.spec"));
        vec![
            show::name(object),
            json!(status.count("desiredNumberScheduled")),
            json!(status.count("currentNumberScheduled")),
            json!(status.count("numberReady")),
            json!(status.count("updatedNumberScheduled")),
            json!(status.count("numberAvailable")),
            show::label_text(spec.at("template.spec.nodeSelector")),
            show::age(object, now),
            names,
            images,
            show::selector_text(spec.sub("selector")),
        ]
    }
}

fn strategy(errors: &mut FieldErrors, at: &Path<'_>, strategy: &Value) {
    let rolling_at = at.field("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if !strategy.has("rollingUpdate") => errors.required(&rolling_at, ""),
        "RollingUpdate" => {
            let rolling = strategy.sub("rollingUpdate");
            let (missing_at, surge_at) = (rolling_at.field("maxUnavailable"), rolling_at.field("maxSurge"));
            let (missing, surge) = (rolling.sub("maxUnavailable"), rolling.sub("maxSurge"));
            for (at, value) in [(&missing_at, missing), (&surge_at, surge)] {
                number_or_percent(errors, at, value);
                at_most_all(errors, at, value);
            }
            match (is_nothing(missing), is_nothing(surge)) {
                (false, false) => errors.invalid(
                    &surge_at,
                    surge.clone(),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (true, true) => errors.required(&missing_at, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        other => errors.unsupported(&at.field("type"), other, &["RollingUpdate", "OnDelete"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_template_generations() {
        let mut object = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": []}}}});
        DaemonSet.default(&mut object);
        assert_eq!(
            object["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
        );
        DaemonSet.prepare_for_create(&mut object);
        assert_eq!(template_generation(&object), 1);
        let mut same = object.clone();
        DaemonSet.prepare_for_update(&mut same, &object);
        assert_eq!(same, object);
        let mut other = object.clone();
        other["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
        DaemonSet.prepare_for_update(&mut other, &object);
        assert_eq!(template_generation(&other), 2);
    }

    #[test]
    fn surge_and_gaps_exclude_each_other() {
        let errors = |missing: Value, surge: Value| {
            let mut errors = FieldErrors::default();
            let value =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": missing, "maxSurge": surge}});
            strategy(&mut errors, &SPEC.field("updateStrategy"), &value);
            errors.0.len()
        };
        assert_eq!(errors(json!(1), json!(0)), 0);
        assert_eq!(errors(json!(0), json!("10%")), 0);
        assert_eq!(errors(json!(1), json!(1)), 1);
        assert_eq!(errors(json!(0), json!(0)), 1);
    }
}
