//! Jobs.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names, parse_time};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, SelectorRule, same, selector};
use crate::kinds::workload;
use crate::pod::validation;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME, SELECTOR};
use crate::tree::{Tree as _, at_mut, drop_member, each, ensure, fill, fill_zero, put, sub_mut};

const RETRIES: i64 = 6;
/// Pods with an index of their own that one job can have at once.
const MOST_INDEXED: i64 = 100_000;
/// Labels by which the pods of a job are known, the older names first.
const UID_LABELS: [&str; 2] = ["controller-uid", UID_LABEL];
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
/// What of the template may change while a job waits to be let go.
const SCHEDULING: [&str; 4] = ["affinity", "nodeSelector", "schedulingGates", "tolerations"];
const FROZEN: [&str; 7] = [
    "backoffLimitPerIndex",
    "completionMode",
    "managedBy",
    "manualSelector",
    "podFailurePolicy",
    "selector",
    "successPolicy",
];

/// Pods that run to their end.
#[derive(Default)]
pub(in crate::kinds) struct Job;

impl Strategy for Job {
    fn default(&self, object: &mut Value) {
        let labels = object.at("spec.template.metadata.labels").clone();
        let Some(spec) = sub_mut(object, "spec") else { return };
        workload::default_template(spec);
        if !spec.has("completions") && !spec.has("parallelism") {
            put(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let per_index = spec.has("backoffLimitPerIndex");
        fill(
            spec,
            "backoffLimit",
            if per_index { i64::from(i32::MAX) } else { RETRIES },
        );
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        fill(spec, "manualSelector", false);
        let failure_policy = spec.has("podFailurePolicy");
        let replacement = if failure_policy {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        fill(spec, "podReplacementPolicy", replacement);
        if let Some(policy) = sub_mut(spec, "podFailurePolicy") {
            for rule in each(policy, "rules") {
                for pattern in each(rule, "onPodConditions") {
                    fill_zero(pattern, "status", "True");
                }
            }
        }
        if let Some(metadata) = sub_mut(object, "metadata")
            && metadata.sub("labels").is_blank()
            && !labels.is_blank()
        {
            put(metadata, "labels", labels);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if object.sub("spec").on("manualSelector") {
            return;
        }
        let metadata = object.sub("metadata");
        let (name, uid) = (metadata.text("name").to_owned(), metadata.text("uid").to_owned());
        let Some(spec) = sub_mut(object, "spec") else { return };
        let template = ensure(spec, "template").and_then(|t| ensure(t, "metadata"));
        if let Some(labels) = template.and_then(|m| ensure(m, "labels")) {
            // What a client has set stays: validation tells it what is wrong with that.
            for (names, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
                if !labels.has(names[0]) {
                    names.iter().for_each(|label| put(labels, label, value.as_str()));
                }
            }
        }
        if let Some(labels) = ensure(spec, "selector").and_then(|s| ensure(s, "matchLabels"))
            && !UID_LABELS.iter().any(|label| labels.has(label))
        {
            put(labels, UID_LABEL, uid);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        own_pods(&mut errors, at, object);
        self::spec(&mut errors, at, spec);
        if spec.sub("selector").is_null() {
            errors.required(&at.field("selector"), "");
        } else {
            selector(
                &mut errors,
                &at.field("selector"),
                spec.sub("selector"),
                SelectorRule::Any,
            );
            workload::labels_match(&mut errors, &at.field("template"), spec);
        }
        if spec.text("completionMode") == "Indexed"
            && let Some(completions) = spec.int("completions").filter(|c| *c > 0)
        {
            let last = format!("{}-{}", object.sub("metadata").text("name"), completions - 1);
            for why in names::dns1123_label(&last) {
                let why = format!("will not able to create pod with invalid DNS label {last:?}: {why}");
                errors.invalid(
                    &Path::Root.field("metadata").field("name"),
                    object.sub("metadata").text("name"),
                    why,
                );
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec, before) = (&SPEC, object.sub("spec"), old.sub("spec"));
        self::spec(&mut errors, at, spec);
        for field in FROZEN {
            workload::frozen(&mut errors, object, old, field);
        }
        completions_update(&mut errors, at, spec, before);
        let waits = before.on("suspend") && !old.sub("status").has("startTime");
        let mut template = spec.sub("template").clone();
        if waits {
            take_scheduling(&mut template, before.sub("template"));
        }
        errors.unchanged(&at.field("template"), &template, before.sub("template"));
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let counts = ["active", "succeeded", "failed", "ready", "terminating"];
        workload::counts(&mut errors, object, &counts);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn field_labels(&self) -> &[&str] {
        &["status.successful"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        object.sub("status").count("succeeded").to_string()
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Status", "How the job fares."),
            Col::text("Completions", "Pods that have succeeded, of those that are needed."),
            Col::text(
                "Duration",
                "Time from the start of the job to its completion, or to now.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let [names, images] = show::containers_and_images(spec.at("template.spec"));
        vec![
            show::name(object),
            json!(state(object)),
            json!(completions(object)),
            json!(duration(object.sub("status"), now)),
            show::age(object, now),
            names,
            images,
            show::selector_text(spec.sub("selector")),
        ]
    }
}

/// The labels that tell a job's pods from those of others are the server's to choose.
fn own_pods(errors: &mut FieldErrors, at: &Path<'_>, object: &Value) {
    let (spec, metadata) = (object.sub("spec"), object.sub("metadata"));
    if spec.on("manualSelector") || spec.sub("selector").is_null() {
        return;
    }
    let labels = spec.at("template.metadata.labels");
    let labels_at = at.field("template");
    let labels_at = labels_at.field("metadata");
    let labels_at = labels_at.field("labels");
    for (keys, value) in [(UID_LABELS, metadata.text("uid")), (NAME_LABELS, metadata.text("name"))] {
        for key in keys {
            match labels.sub(key).as_str() {
                Some(found) if found == value => {}
                Some(_) => errors.invalid(&labels_at, labels.clone(), format!("must be '{value}'")),
                None => errors.required(&labels_at, &format!("must be '{value}'")),
            }
        }
    }
    let chosen = spec.at("selector.matchLabels");
    let generated = UID_LABELS.iter().any(|l| chosen.text(l) == metadata.text("uid"));
    if !generated || chosen.entries().count() != 1 || !spec.sub("selector").sub("matchExpressions").is_blank() {
        errors.invalid(
            &at.field("selector"),
            spec.sub("selector").clone(),
            "`selector` not auto-generated",
        );
    }
}

/// What jobs and the templates of jobs have in common.
pub(super) fn spec(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(&at.field(field), spec.int(field));
    }
    let mode = spec.text("completionMode");
    if !mode.is_empty() {
        errors.one_of(&at.field("completionMode"), mode, &["Indexed", "NonIndexed"]);
    }
    if mode == "Indexed" {
        indexed(errors, at, spec);
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(field) {
                errors.invalid(
                    &at.field(field),
                    spec.sub(field).clone(),
                    "requires indexed completion mode",
                );
            }
        }
    }
    let replacement = spec.text("podReplacementPolicy");
    if !replacement.is_empty() {
        errors.one_of(
            &at.field("podReplacementPolicy"),
            replacement,
            &["Failed", "TerminatingOrFailed"],
        );
    }
    let (template_at, template) = (at.field("template"), spec.sub("template"));
    validation::template(errors, &template_at, template);
    let policy_at = template_at.field("spec");
    let policy_at = policy_at.field("restartPolicy");
    match template.at("spec.restartPolicy").as_text() {
        "" | "Always" => errors.required(&policy_at, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        policy @ "OnFailure" => {
            if spec.has("podFailurePolicy") {
                let why = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.invalid(&policy_at, policy, why);
            }
        }
        other => errors.unsupported(&policy_at, other, &["OnFailure", "Never"]),
    }
}

fn indexed(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    if !spec.has("completions") {
        errors.required(&at.field("completions"), "when completion mode is Indexed");
    }
    let parallelism = spec.count("parallelism");
    if parallelism > MOST_INDEXED {
        let why = format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
        errors.invalid(&at.field("parallelism"), parallelism, why);
    }
    if let (Some(failed), Some(completions)) = (spec.int("maxFailedIndexes"), spec.int("completions"))
        && failed > completions
    {
        let why = "must be less than or equal to completions when completion mode is Indexed and maxFailedIndexes is \
                   specified";
        errors.invalid(&at.field("maxFailedIndexes"), failed, why);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&at.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
}

/// Jobs whose pods have indices of their own can grow and shrink, one pod for each completion.
fn completions_update(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, old: &Value) {
    let at = at.field("completions");
    let (new, before) = (spec.sub("completions"), old.sub("completions"));
    if spec.text("completionMode") != "Indexed" {
        errors.unchanged(&at, new, before);
        return;
    }
    let elastic = |s: &Value| s.int("completions") == s.int("parallelism");
    let may = same(new, before) || (elastic(spec) && elastic(old));
    if !may {
        errors.invalid(&at, new.clone(), "can only be modified in tandem with spec.parallelism");
    }
}

/// Makes what may change of a template as it was.
fn take_scheduling(template: &mut Value, old: &Value) {
    let mut keep = |at: &str, field: &str| {
        if let Some(holder) = at_mut(template, at) {
            match old.at(at).sub(field) {
                Value::Null => drop(drop_member(holder, field)),
                value => put(holder, field, value.clone()),
            }
        }
    };
    for field in SCHEDULING {
        keep("spec", field);
    }
    for field in ["labels", "annotations"] {
        keep("metadata", field);
    }
}

fn state(object: &Value) -> &'static str {
    let holds = |kind: &str| {
        let conditions = object.sub("status").list("conditions");
        conditions
            .iter()
            .any(|c| c.text("type") == kind && c.text("status") == "True")
    };
    let finished = ["Complete", "Failed"].into_iter().find(|kind| holds(kind));
    let going = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    match finished {
        Some(kind) => kind,
        None if object.sub("metadata").has("deletionTimestamp") => "Terminating",
        None => going.into_iter().find(|kind| holds(kind)).unwrap_or("Running"),
    }
}

fn completions(object: &Value) -> String {
    let (spec, done) = (object.sub("spec"), object.sub("status").count("succeeded"));
    match (spec.int("completions"), spec.count("parallelism")) {
        (Some(completions), _) => format!("{done}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{done}/1 of {parallelism}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(status: &Value, now: Timestamp) -> String {
    let Ok(start) = parse_time(status.text("startTime")) else {
        return String::new();
    };
    let end = parse_time(status.text("completionTime")).unwrap_or(now);
    show::human_duration(end.duration_since(start).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "j", "uid": "u-1"}, "spec": {"template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
        for (key, value) in spec.entries() {
            put(&mut object["spec"], key, value.clone());
        }
        Job.default(&mut object);
        Job.prepare_for_create(&mut object);
        object
    }

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_and_own_labels() {
        let object = job(json!({}));
        let spec = &object["spec"];
        for (field, value) in [
            ("completions", json!(1)),
            ("parallelism", json!(1)),
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
        assert_eq!(object["metadata"]["labels"], json!({"app": "x"}));
        assert_eq!(spec["selector"], json!({"matchLabels": {UID_LABEL: "u-1"}}));
        assert_eq!(spec["template"]["metadata"]["labels"]["job-name"], "j");
        assert!(Job.validate(&object).is_empty(), "{:?}", Job.validate(&object).0);
        // A work queue: only the number of workers is given.
        let queue = job(json!({"parallelism": 3}));
        assert!(queue["spec"].get("completions").is_none());
    }

    #[test]
    fn what_is_wrong() {
        for (spec, expected) in [
            (
                json!({"parallelism": -1}),
                "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"completionMode": "Indexed", "parallelism": 1}),
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (
                json!({"selector": {"matchLabels": {"a": "b"}}}),
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u-1\"}}: \
                 `selector` not auto-generated",
            ),
            (
                json!({"backoffLimitPerIndex": 1}),
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            ),
        ] {
            let found = texts(&Job.validate(&job(spec)));
            assert!(found.iter().any(|e| e == expected), "{found:#?} lacks {expected}");
        }
        let mut always = job(json!({}));
        always["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        assert_eq!(
            texts(&Job.validate(&always)),
            [r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]
        );
    }

    #[test]
    fn what_may_change() {
        let old = job(json!({}));
        let with = |path: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(path).unwrap() = value;
            texts(&Job.validate_update(&new, &old))
        };
        assert!(with("/spec/parallelism", json!(4)).is_empty());
        assert_eq!(
            with("/spec/completions", json!(4)),
            ["spec.completions: Invalid value: 4: field is immutable"]
        );
        let image = "/spec/template/spec/containers/0/image";
        assert!(with(image, json!("i:2"))[0].starts_with("spec.template: Invalid value: "));
        let mut suspended = old.clone();
        suspended["spec"]["suspend"] = json!(true);
        let mut placed = suspended.clone();
        placed["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
        assert!(Job.validate_update(&placed, &suspended).is_empty());
        assert_eq!(Job.validate_update(&placed, &old).0.len(), 1);
        let elastic = job(json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}));
        let mut grown = elastic.clone();
        grown["spec"]["completions"] = json!(3);
        assert_eq!(Job.validate_update(&grown, &elastic).0.len(), 1);
        grown["spec"]["parallelism"] = json!(3);
        assert!(Job.validate_update(&grown, &elastic).is_empty());
    }

    #[test]
    fn cells_tell_how_it_fares() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut object = job(json!({}));
        object["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
        let cells = |object: &Value| Job.cells(object, now)[1..4].to_vec();
        assert_eq!(cells(&object), [json!("Running"), json!("0/1"), json!("10m")]);
        object["status"] = json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:07Z",
            "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        assert_eq!(cells(&object), [json!("Complete"), json!("1/1"), json!("7s")]);
        let queue = job(json!({"parallelism": 3}));
        assert_eq!(cells(&queue), [json!("Running"), json!("0/1 of 3"), json!("")]);
    }
}
