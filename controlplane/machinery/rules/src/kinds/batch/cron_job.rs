//! Cron jobs.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use super::{job, schedule};
use crate::check::{Path, Report as _, SPEC, annotations, labels};
use crate::kinds::workload;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, at_mut, fill, fill_zero, sub_mut};

/// Room for what the controller appends to make names of jobs.
const MOST_NAME_BYTES: usize = 52;

/// Jobs that begin by the clock.
#[derive(Default)]
pub(in crate::kinds) struct CronJob;

impl Strategy for CronJob {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        if let Some(job) = at_mut(spec, "jobTemplate.spec") {
            workload::default_template(job);
        }
        fill_zero(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let name = object.sub("metadata").text("name");
        if name.len() > MOST_NAME_BYTES {
            errors.invalid(
                &Path::Root.field("metadata").field("name"),
                name,
                format!("must be no more than {MOST_NAME_BYTES} characters"),
            );
        }
        spec(&mut errors, object.sub("spec"));
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.jobTemplate.spec.template")
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Schedule", "When jobs begin, in the notation of cron."),
            Col::text("Timezone", "Time zone of the schedule."),
            Col::text("Suspend", "Whether no more jobs begin."),
            Col::number("Active", "Jobs that run."),
            Col::text("Last Schedule", "Time since a job was last due."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let [names, images] = show::containers_and_images(spec.at("jobTemplate.spec.template.spec"));
        let last = status.sub("lastScheduleTime");
        vec![
            show::name(object),
            json!(spec.text("schedule")),
            show::or_none(spec.text("timeZone")),
            json!(if spec.on("suspend") { "True" } else { "False" }),
            json!(status.list("active").len()),
            if last.is_null() {
                show::or_none("")
            } else {
                json!(show::since(last, now))
            },
            show::age(object, now),
            names,
            images,
            show::selector_text(spec.at("jobTemplate.spec.selector")),
        ]
    }
}

fn spec(errors: &mut FieldErrors, spec: &Value) {
    let at = &SPEC;
    let (schedule_at, text) = (at.field("schedule"), spec.text("schedule"));
    if text.is_empty() {
        errors.required(&schedule_at, "");
    } else if text.contains("TZ") {
        errors.invalid(
            &schedule_at,
            text,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    } else if let Some(why) = schedule::wrong(text) {
        errors.invalid(&schedule_at, text, why);
    }
    if spec.has("timeZone") && !is_zone_name(spec.text("timeZone")) {
        let zone = spec.text("timeZone");
        errors.invalid(&at.field("timeZone"), zone, format!("unknown time zone {zone}"));
    }
    for field in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        errors.not_negative(&at.field(field), spec.int(field));
    }
    errors.one_of_required(
        &at.field("concurrencyPolicy"),
        spec.text("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let (template_at, template) = (at.field("jobTemplate"), spec.sub("jobTemplate"));
    let metadata_at = template_at.field("metadata");
    labels(errors, &metadata_at.field("labels"), template.at("metadata.labels"));
    annotations(
        errors,
        &metadata_at.field("annotations"),
        template.at("metadata.annotations"),
    );
    let (job_at, job_spec) = (template_at.field("spec"), template.sub("spec"));
    job::spec(errors, &job_at, job_spec);
    if job_spec.has("selector") {
        errors.invalid(
            &job_at.field("selector"),
            job_spec.sub("selector").clone(),
            "`selector` will be auto-generated",
        );
    }
    if job_spec.on("manualSelector") {
        errors.unsupported(&job_at.field("manualSelector"), "true", &["nil", "false"]);
    }
}

/// Whether a text has the form of a time zone's name; which zones there are is known where jobs are begun.
fn is_zone_name(text: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b));
    text != "Local" && text.len() <= 255 && text.split('/').all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec":
            {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}}}});
        for (key, value) in spec.entries() {
            object["spec"][key] = value.clone();
        }
        CronJob.default(&mut object);
        object
    }

    #[test]
    fn defaults_and_cells() {
        let object = cron(json!({}));
        let spec = &object["spec"];
        assert_eq!(
            (&spec["concurrencyPolicy"], &spec["failedJobsHistoryLimit"]),
            (&json!("Allow"), &json!(1))
        );
        assert!(
            CronJob.validate(&object).is_empty(),
            "{:?}",
            CronJob.validate(&object).0
        );
        let cells = CronJob.cells(&object, Timestamp::UNIX_EPOCH);
        let expected = ["* * * * *", "<none>", "False"].map(Value::from);
        assert_eq!(cells[1..4], expected);
        assert_eq!(cells[4..6], [json!(0), json!("<none>")]);
    }

    #[test]
    fn what_is_wrong() {
        for (spec, expected) in [
            (
                json!({"schedule": "often"}),
                r#"spec.schedule: Invalid value: "often": expected exactly 5 fields, found 1: [often]"#,
            ),
            (
                json!({"schedule": "TZ=UTC 0 * * * *"}),
                "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone \
                 field instead",
            ),
            (
                json!({"timeZone": "../etc"}),
                r#"spec.timeZone: Invalid value: "../etc": unknown time zone ../etc"#,
            ),
            (
                json!({"concurrencyPolicy": "Maybe"}),
                r#"spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace""#,
            ),
        ] {
            let errors = CronJob.validate(&cron(spec));
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, [expected]);
        }
    }
}
