//! Kinds that extend the API server or tell it what to let through: webhooks, policies, flow schemas. What they hold is
//! completed and shown here; who acts on them judges the rest.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, Seen};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, at_mut, each, ensure, fill, fill_zero, sub_mut};

const WEBHOOK_SECONDS: i64 = 10;
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Webhooks that look at requests.
#[derive(Default)]
pub(super) struct ValidatingWebhooks;

/// Webhooks that change requests.
#[derive(Default)]
pub(super) struct MutatingWebhooks;

fn default_rules(list: &mut Value, field: &str) {
    for rule in each(list, field) {
        fill(rule, "scope", "*");
    }
}

fn default_webhooks(object: &mut Value, mutating: bool) {
    for hook in each(object, "webhooks") {
        fill(hook, "failurePolicy", "Fail");
        fill(hook, "matchPolicy", "Equivalent");
        fill(hook, "namespaceSelector", json!({}));
        fill(hook, "objectSelector", json!({}));
        fill(hook, "timeoutSeconds", WEBHOOK_SECONDS);
        if mutating {
            fill(hook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = at_mut(hook, "clientConfig.service") {
            fill(service, "port", 443);
        }
        default_rules(hook, "rules");
    }
}

fn webhooks(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let list = Path::Root.field("webhooks");
    let mut seen = Seen::default();
    for (index, hook) in object.list("webhooks").iter().enumerate() {
        let at = list.index(index);
        let (name_at, name) = (at.field("name"), hook.text("name"));
        seen.note(&mut errors, &name_at, name);
        errors.named_required(&name_at, name, names::dns1123_subdomain);
        if !name.is_empty() && name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            errors.invalid(&name_at, name, why);
        }
        let (effects_at, effects) = (at.field("sideEffects"), hook.text("sideEffects"));
        errors.one_of_required(&effects_at, effects, &SIDE_EFFECTS);
        errors.one_of(
            &at.field("failurePolicy"),
            hook.text("failurePolicy"),
            &["Fail", "Ignore"],
        );
        errors.one_of(
            &at.field("matchPolicy"),
            hook.text("matchPolicy"),
            &["Equivalent", "Exact"],
        );
        let seconds = hook.count("timeoutSeconds");
        if !(1..=30).contains(&seconds) {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(&at.field("timeoutSeconds"), seconds, why);
        }
        if hook.list("admissionReviewVersions").is_empty() {
            let why = "must specify one of v1, v1beta1";
            errors.required(&at.field("admissionReviewVersions"), why);
        }
        client(&mut errors, &at.field("clientConfig"), hook.sub("clientConfig"));
    }
    errors
}

fn client(errors: &mut FieldErrors, at: &Path<'_>, config: &Value) {
    let service = config.sub("service");
    if config.has("url") == config.has("service") {
        let why = "exactly one of url or service is required";
        errors.required(at, why);
        return;
    }
    if config.has("url") {
        let url = config.text("url");
        if !url.starts_with("https://") {
            let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            errors.invalid(&at.field("url"), url, why);
        }
        return;
    }
    let at = at.field("service");
    for field in ["name", "namespace"] {
        if service.text(field).is_empty() {
            let why = format!("service {field} is required");
            errors.required(&at.field(field), &why);
        }
    }
    errors.port(&at.field("port"), service.count("port"));
}

fn webhook_columns() -> Vec<Column> {
    show::columns(&[NAME, Col::number("Webhooks", "How many webhooks there are."), AGE])
}

fn webhook_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let count = object.list("webhooks").len();
    vec![show::name(object), json!(count), show::age(object, now)]
}

impl Strategy for ValidatingWebhooks {
    fn default(&self, object: &mut Value) {
        default_webhooks(object, false);
    }
    fn validate(&self, object: &Value) -> FieldErrors {
        webhooks(object)
    }
    fn columns(&self) -> Vec<Column> {
        webhook_columns()
    }
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        webhook_cells(object, now)
    }
}

impl Strategy for MutatingWebhooks {
    fn default(&self, object: &mut Value) {
        default_webhooks(object, true);
    }
    fn validate(&self, object: &Value) -> FieldErrors {
        webhooks(object)
    }
    fn columns(&self) -> Vec<Column> {
        webhook_columns()
    }
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        webhook_cells(object, now)
    }
}

fn default_matches(resources: &mut Value) {
    fill(resources, "matchPolicy", "Equivalent");
    fill(resources, "namespaceSelector", json!({}));
    fill(resources, "objectSelector", json!({}));
    default_rules(resources, "resourceRules");
    default_rules(resources, "excludeResourceRules");
}

fn parameter_kind(object: &Value) -> Value {
    let kind = object.at("spec.paramKind");
    let text = format!("{}/{}", kind.text("apiVersion"), kind.text("kind"));
    json!(if kind.is_null() { show::UNSET } else { &text })
}

/// Rules over requests, and the kinds of requests they are about.
#[derive(Default)]
pub(super) struct ValidatingPolicy;

impl Strategy for ValidatingPolicy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        fill(spec, "failurePolicy", "Fail");
        if let Some(resources) = sub_mut(spec, "matchConstraints") {
            default_matches(resources);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.one_of(
            &at.field("failurePolicy"),
            spec.text("failurePolicy"),
            &["Fail", "Ignore"],
        );
        if !spec.has("matchConstraints") {
            errors.required(&at.field("matchConstraints"), "");
        } else if spec.at("matchConstraints.resourceRules").as_list().is_empty() {
            errors.required(&at.field("matchConstraints").field("resourceRules"), "");
        }
        if spec.list("validations").is_empty() && spec.list("auditAnnotations").is_empty() {
            let why = "validations or auditAnnotations must be specified";
            errors.required(&at.field("validations"), why);
        }
        let list = at.field("validations");
        for (index, rule) in spec.list("validations").iter().enumerate() {
            if rule.text("expression").trim().is_empty() {
                let why = "expression is not specified";
                errors.required(&list.index(index).field("expression"), why);
            }
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::number("Validations", "How many rules there are."),
            Col::text("ParamKind", "Kind of the objects that the rules are set by."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = object.at("spec.validations").as_list().len();
        vec![
            show::name(object),
            json!(count),
            parameter_kind(object),
            show::age(object, now),
        ]
    }
}

/// Where a policy holds.
#[derive(Default)]
pub(super) struct PolicyBinding;

impl Strategy for PolicyBinding {
    fn default(&self, object: &mut Value) {
        if let Some(resources) = at_mut(object, "spec.matchResources") {
            default_matches(resources);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.named_required(
            &at.field("policyName"),
            spec.text("policyName"),
            names::dns1123_subdomain,
        );
        let (list, actions) = (at.field("validationActions"), spec.list("validationActions"));
        if actions.is_empty() {
            errors.required(&list, "at least one validation action is required");
        }
        let mut seen = Seen::default();
        for (index, action) in actions.iter().enumerate() {
            let at = list.index(index);
            errors.one_of(&at, action.as_text(), &["Audit", "Deny", "Warn"]);
            seen.note(&mut errors, &at, action.as_text());
        }
        if seen.has("Deny") && seen.has("Warn") {
            let value = spec.sub("validationActions").clone();
            let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                       response and headers serves no purpose)";
            errors.invalid(&list, value, why);
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("PolicyName", "The policy."),
            Col::text("ParamRef", "The object that its rules are set by."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, parameters) = (object.sub("spec"), object.at("spec.paramRef"));
        let shown = match (parameters.text("namespace"), parameters.text("name")) {
            _ if parameters.is_null() => show::UNSET.to_owned(),
            ("", "") => show::selector_text(parameters.sub("selector")).as_text().to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        vec![
            show::name(object),
            json!(spec.text("policyName")),
            json!(shown),
            show::age(object, now),
        ]
    }
}

/// Which requests are of which level.
/// Source: <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.
#[derive(Default)]
pub(super) struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = sub_mut(object, "spec") {
            fill_zero(spec, "matchingPrecedence", 1000);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.within(
            &at.field("matchingPrecedence"),
            spec.count("matchingPrecedence"),
            1,
            10_000,
        );
        let level_at = at.field("priorityLevelConfiguration");
        let level = spec.at("priorityLevelConfiguration.name").as_text();
        errors.named_required(&level_at.field("name"), level, names::dns1123_subdomain);
        if spec.has("distinguisherMethod") {
            let at = at.field("distinguisherMethod");
            let method = spec.at("distinguisherMethod.type").as_text();
            errors.one_of(&at.field("type"), method, &["ByNamespace", "ByUser"]);
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("PriorityLevel", "The level."),
            Col::number("MatchingPrecedence", "Schemas with lower numbers are looked at first."),
            Col::text("DistinguisherMethod", "How the requests are told apart."),
            AGE,
            Col::text("MissingPL", "Whether the level is not there."),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let dangling = status.list("conditions").iter().find(|c| c.text("type") == "Dangling");
        vec![
            show::name(object),
            json!(spec.at("priorityLevelConfiguration.name").as_text()),
            json!(spec.count("matchingPrecedence")),
            show::or_none(spec.at("distinguisherMethod.type").as_text()),
            show::age(object, now),
            json!(dangling.map_or("?", |c| c.text("status"))),
        ]
    }
}

/// How many requests of a level run at once.
#[derive(Default)]
pub(super) struct PriorityLevel;

impl Strategy for PriorityLevel {
    fn default(&self, object: &mut Value) {
        if let Some(limited) = at_mut(object, "spec.limited") {
            fill(limited, "nominalConcurrencyShares", 30);
            fill(limited, "lendablePercent", 0);
            if let Some(response) = ensure(limited, "limitResponse")
                && response.text("type") == "Queue"
                && let Some(queuing) = ensure(response, "queuing")
            {
                fill_zero(queuing, "queues", 64);
                fill_zero(queuing, "handSize", 8);
                fill_zero(queuing, "queueLengthLimit", 50);
            }
        }
        if let Some(exempt) = at_mut(object, "spec.exempt") {
            fill(exempt, "nominalConcurrencyShares", 0);
            fill(exempt, "lendablePercent", 0);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        let kind = spec.text("type");
        errors.one_of_required(&at.field("type"), kind, &["Exempt", "Limited"]);
        if kind == "Exempt" && spec.has("limited") {
            let why = "must be nil if the type is not Limited";
            errors.forbidden(&at.field("limited"), why);
        } else if kind == "Limited" && !spec.has("limited") {
            errors.required(&at.field("limited"), "must not be empty when type is Limited");
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Type", "Whether the level has limits."),
            Col::text(
                "NominalConcurrencyShares",
                "Its share of the requests that run at once.",
            ),
            Col::text("Queues", "How many queues it has."),
            Col::text("HandSize", "Queues that one flow may use."),
            Col::text("QueueLengthLimit", "Requests that may wait in a queue."),
            AGE,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let part = if spec.text("type") == "Exempt" {
            "exempt"
        } else {
            "limited"
        };
        let queuing = spec.at("limited.limitResponse.queuing");
        let number = |of: &Value, field: &str| show::or_none(&of.int(field).map(|n| n.to_string()).unwrap_or_default());
        vec![
            show::name(object),
            json!(spec.text("type")),
            number(spec.sub(part), "nominalConcurrencyShares"),
            number(queuing, "queues"),
            number(queuing, "handSize"),
            number(queuing, "queueLengthLimit"),
            show::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn webhooks_are_completed() {
        let mut object = json!({"webhooks": [{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{"resources": ["pods"]}]}]});
        MutatingWebhooks.default(&mut object);
        let hook = &object["webhooks"][0];
        assert_eq!(
            (&hook["failurePolicy"], &hook["timeoutSeconds"]),
            (&json!("Fail"), &json!(10))
        );
        assert_eq!(
            (&hook["rules"][0]["scope"], &hook["clientConfig"]["service"]["port"]),
            (&json!("*"), &json!(443))
        );
        assert!(MutatingWebhooks.validate(&object).is_empty());
        object["webhooks"][0]["name"] = json!("a.b");
        object["webhooks"][0]["clientConfig"]["url"] = json!("https://x");
        assert_eq!(
            texts(&MutatingWebhooks.validate(&object)),
            [
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ]
        );
    }

    #[test]
    fn policies_and_levels() {
        let mut policy = json!({"spec": {"matchConstraints": {"resourceRules": [{"resources": ["pods"]}]},
            "validations": [{"expression": "true"}]}});
        ValidatingPolicy.default(&mut policy);
        assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "*");
        assert!(ValidatingPolicy.validate(&policy).is_empty());
        assert_eq!(
            ValidatingPolicy.cells(&policy, Timestamp::UNIX_EPOCH)[1..3],
            [json!(1), json!("<unset>")]
        );
        let binding =
            json!({"spec": {"policyName": "p", "validationActions": ["Deny", "Warn"], "paramRef": {"name": "x"}}});
        assert_eq!(PolicyBinding.validate(&binding).0.len(), 1);
        assert_eq!(PolicyBinding.cells(&binding, Timestamp::UNIX_EPOCH)[2], "x");
        let mut level = json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}});
        PriorityLevel.default(&mut level);
        let cells = PriorityLevel.cells(&level, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..6], ["Limited", "30", "64", "8", "50"].map(Value::from));
    }
}
