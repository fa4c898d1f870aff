//! Deployments.

use jiff::Timestamp;
use minato_meta::{FieldError, FieldErrorClass, FieldErrors};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, at_most_all, number_or_percent, percent};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, ensure, fill, fill_zero, sub_mut};

/// Old replica sets that are kept to go back to.
const HISTORY: i64 = 10;
/// Seconds without progress until a rollout counts as failed.
const DEADLINE_SECONDS: i64 = 600;

/// Like pods that are replaced bit by bit when their template changes.
#[derive(Default)]
pub(in crate::kinds) struct Deployment;

impl Strategy for Deployment {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        workload::default_template(spec);
        workload::default_replicas(spec);
        if let Some(strategy) = ensure(spec, "strategy") {
            fill_zero(strategy, "type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", "25%");
                fill(rolling, "maxSurge", "25%");
            }
        }
        fill(spec, "revisionHistoryLimit", HISTORY);
        fill(spec, "progressDeadlineSeconds", DEADLINE_SECONDS);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.not_negative(&at.field("replicas"), spec.int("replicas"));
        workload::needed_selector(&mut errors, at, spec, "deployment");
        workload::lasting_template(&mut errors, at, spec, "ReplicaSet");
        strategy(&mut errors, &at.field("strategy"), spec.sub("strategy"));
        errors.not_negative(&at.field("minReadySeconds"), spec.int("minReadySeconds"));
        errors.not_negative(&at.field("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
        if let Some(deadline) = spec.int("progressDeadlineSeconds") {
            let at = at.field("progressDeadlineSeconds");
            errors.not_negative(&at, Some(deadline));
            if deadline <= spec.count("minReadySeconds") {
                errors.invalid(&at, deadline, "must be greater than minReadySeconds");
            }
        }
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
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
        ];
        workload::counts(&mut errors, object, &counts);
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        workload::parts(&mut errors, object, &parts, "replicas");
        workload::parts(&mut errors, object, &["availableReplicas"], "readyReplicas");
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Ready", "Pods that are ready, of those that there should be."),
            Col::number("Up-to-date", "Pods of the current template."),
            Col::number("Available", "Pods that have been ready for long enough."),
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
            json!(format!("{}/{}", status.count("readyReplicas"), spec.count("replicas"))),
            json!(status.count("updatedReplicas")),
            json!(status.count("availableReplicas")),
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
        "Recreate" => {
            if strategy.has("rollingUpdate") {
                errors.forbidden(&rolling_at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" if !strategy.has("rollingUpdate") => {
            errors.required(&rolling_at, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let rolling = strategy.sub("rollingUpdate");
            let (missing_at, surge_at) = (rolling_at.field("maxUnavailable"), rolling_at.field("maxSurge"));
            let (missing, surge) = (rolling.sub("maxUnavailable"), rolling.sub("maxSurge"));
            number_or_percent(errors, &missing_at, missing);
            number_or_percent(errors, &surge_at, surge);
            if is_nothing(missing) && is_nothing(surge) {
                errors.invalid(&missing_at, missing.clone(), "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(errors, &missing_at, missing);
        }
        _ => errors.push(FieldError::new(
            FieldErrorClass::NotSupported,
            at.to_string(),
            strategy.clone(),
            "supported values: \"Recreate\", \"RollingUpdate\"",
        )),
    }
}

/// Whether a number or percentage is zero.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::String(text) => percent(text).is_none_or(|p| p == 0),
        value => value.as_i64().unwrap_or(0) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        let mut object = json!({
            "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        Deployment.default(&mut object);
        object
    }

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults() {
        let object = deployment();
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(
            object["spec"]["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!(object["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(object["spec"]["progressDeadlineSeconds"], 600);
        assert_eq!(object["spec"]["template"]["spec"]["restartPolicy"], "Always");
        assert!(
            Deployment.validate(&object).is_empty(),
            "{:?}",
            texts(&Deployment.validate(&object))
        );
    }

    #[test]
    fn selector_and_template_must_agree() {
        let mut object = deployment();
        object["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
        assert_eq!(
            texts(&Deployment.validate(&object)),
            [
                "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`"
            ]
        );
        let mut object = deployment();
        object["spec"]["selector"] = json!(null);
        assert_eq!(texts(&Deployment.validate(&object)), ["spec.selector: Required value"]);
        object["spec"]["selector"] = json!({});
        assert_eq!(
            texts(&Deployment.validate(&object)),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
        );
    }

    #[test]
    fn the_selector_stays() {
        let (mut object, old) = (deployment(), deployment());
        object["spec"]["selector"]["matchLabels"]["tier"] = json!("x");
        object["spec"]["template"]["metadata"]["labels"]["tier"] = json!("x");
        let errors = texts(&Deployment.validate_update(&object, &old));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].ends_with(": field is immutable"), "{errors:?}");
        assert!(Deployment.validate_update(&old, &old).is_empty());
    }

    #[test]
    fn strategies() {
        let with = |strategy: Value| {
            let mut object = deployment();
            object["spec"]["strategy"] = strategy;
            texts(&Deployment.validate(&object))
        };
        assert_eq!(
            with(json!({"type": "Recreate", "rollingUpdate": {}})),
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"]
        );
        assert_eq!(
            with(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}})),
            ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]
        );
        assert_eq!(
            with(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "101%", "maxSurge": 1}})).len(),
            1
        );
        assert!(with(json!({"type": "x"}))[0].contains("supported values: \"Recreate\", \"RollingUpdate\""));
    }

    #[test]
    fn restart_policy_and_deadline() {
        let mut object = deployment();
        object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        object["spec"]["minReadySeconds"] = json!(600);
        assert_eq!(
            texts(&Deployment.validate(&object)),
            [
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ]
        );
    }

    #[test]
    fn rows() {
        let mut object = deployment();
        object["status"] = json!({"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1});
        let cells = Deployment.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..4], [json!("1/1"), json!(2), json!(1)]);
        assert_eq!(cells[5..], [json!("c"), json!("i"), json!("app=a")]);
    }
}
