//! Custom resource definitions: kinds that users bring. Names are completed as upstream does it.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

use jiff::Timestamp;
use minato_meta::{FieldError, FieldErrors, format_time, names};
use minato_schema::{Path, Schema, structural_errors};
use serde_json::{Value, json};

use crate::check::{Report as _, SPEC, STATUS, Seen};
use crate::resource::{Column, Strategy};
use crate::show::{self, NAME};
use crate::tree::{Tree as _, at_mut, ensure, fill, fill_zero, put, sub_mut};

/// Keeps a definition until all its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const APPROVED: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MOST_SELECTABLE: usize = 8;
/// Schemas nested deeper are refused when they are read.
const MAX_DEPTH: usize = 100;

/// See the module.
#[derive(Default)]
pub(super) struct CustomResourceDefinition;

fn add_stored_version(object: &mut Value) {
    let versions = object.at("spec.versions").as_list().iter();
    let stored = versions
        .filter(|v| v.on("storage"))
        .map(|v| v.text("name").to_owned())
        .next();
    let (Some(stored), Some(status)) = (stored, ensure(object, "status")) else {
        return;
    };
    let mut all = status.list("storedVersions").to_vec();
    if !all.iter().any(|version| version.as_text() == stored) {
        all.push(json!(stored));
        put(status, "storedVersions", all);
    }
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object.at("status.conditions").as_list().iter();
    conditions
        .clone()
        .any(|c| c.text("type") == kind && c.text("status") == "True")
}

impl Strategy for CustomResourceDefinition {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        let kind = spec.at("names.kind").as_text().to_owned();
        if let Some(names) = sub_mut(spec, "names")
            && !kind.is_empty()
        {
            fill_zero(names, "singular", kind.to_lowercase());
            fill_zero(names, "listKind", format!("{kind}List"));
        }
        if let Some(conversion) = ensure(spec, "conversion") {
            fill_zero(conversion, "strategy", "None");
            if let Some(service) = at_mut(conversion, "webhook.clientConfig.service") {
                fill(service, "port", 443);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", json!({}));
        add_stored_version(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value) {
        add_stored_version(object);
    }

    fn prepare_for_delete(&self, object: &mut Value, now: Timestamp) {
        if let Some(metadata) = ensure(object, "metadata") {
            let mut all = metadata.list("finalizers").to_vec();
            if !all.iter().any(|finalizer| finalizer.as_text() == FINALIZER) {
                all.push(json!(FINALIZER));
                put(metadata, "finalizers", all);
            }
        }
        if has_condition(object, "Terminating") {
            return;
        }
        let condition = json!({
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": format_time(now),
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        });
        if let Some(status) = ensure(object, "status") {
            let mut all = status.list("conditions").to_vec();
            all.retain(|c| c.text("type") != "Terminating");
            all.push(condition);
            put(status, "conditions", all);
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let spec = object.sub("spec");
        let wanted = format!("{}.{}", spec.at("names.plural").as_text(), spec.text("group"));
        let name = object.sub("metadata").text("name");
        if name != wanted {
            let why = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
        validate_spec(spec, &mut errors);
        validate_approval(object, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (spec, before) = (object.sub("spec"), old.sub("spec"));
        validate_spec(spec, &mut errors);
        let at = &SPEC;
        let names = at.field("names");
        if has_condition(old, "Established") {
            errors.unchanged(&at.field("scope"), spec.sub("scope"), before.sub("scope"));
            errors.unchanged(&names.field("kind"), spec.at("names.kind"), before.at("names.kind"));
        }
        errors.unchanged(&at.field("group"), spec.sub("group"), before.sub("group"));
        errors.unchanged(
            &names.field("plural"),
            spec.at("names.plural"),
            before.at("names.plural"),
        );
        stored_versions(object, &mut errors);
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        stored_versions(object, &mut errors);
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, show::CREATED_AT])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::created_at(object)]
    }
}

/// What is stored in a version must stay readable.
fn stored_versions(object: &Value, errors: &mut FieldErrors) {
    let at = STATUS.field("storedVersions");
    let stored = object.at("status.storedVersions").as_list();
    if stored.is_empty() {
        errors.invalid(&at, json!([]), "must have at least one stored version");
        return;
    }
    let versions = object.at("spec.versions").as_list();
    for (index, version) in stored.iter().enumerate() {
        let name = version.as_text();
        if !versions.iter().any(|v| v.text("name") == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.invalid(&at.index(index), name, why);
        }
    }
}

/// Groups of Kubernetes itself need its developers' word.
fn validate_approval(object: &Value, errors: &mut FieldErrors) {
    let group = object.at("spec.group").as_text();
    if !group.ends_with(".k8s.io") && !group.ends_with(".kubernetes.io") {
        return;
    }
    let at = format!("metadata.annotations[{APPROVED}]");
    let value = object.at("metadata.annotations").text(APPROVED);
    if value.is_empty() {
        let why = format!(
            "protected groups must have approval annotation \"{APPROVED}\", see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(at, why));
    } else if !(value.starts_with("unapproved") || value.starts_with("https://")) {
        let why = format!(
            "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \
             \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::invalid(at, value, why));
    }
}

fn joined(problems: Vec<String>) -> Option<String> {
    (!problems.is_empty()).then(|| problems.join(","))
}

fn validate_spec(spec: &Value, errors: &mut FieldErrors) {
    let at = &SPEC;
    let group = spec.text("group");
    if group.is_empty() {
        errors.required(&at.field("group"), "");
    } else if let Some(why) = joined(names::dns1123_subdomain(group)) {
        errors.invalid(&at.field("group"), group, why);
    } else if !group.contains('.') {
        errors.invalid(&at.field("group"), group, "should be a domain with at least one dot");
    }
    errors.one_of_required(&at.field("scope"), spec.text("scope"), &["Cluster", "Namespaced"]);
    if spec.on("preserveUnknownFields") {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&at.field("preserveUnknownFields"), true, why);
    }
    validate_names(spec.sub("names"), errors);
    validate_versions(spec, errors);
    let conversion = at.field("conversion");
    match spec.at("conversion.strategy").as_text() {
        "None" => {
            if spec.sub("conversion").has("webhook") {
                let why = "should not be set when strategy is not set to Webhook";
                errors.forbidden(&conversion.field("webhook"), why);
            }
        }
        "Webhook" => {
            let why = "this server does not convert objects by webhooks: only None is supported";
            errors.forbidden(&conversion.field("strategy"), why);
        }
        other => errors.unsupported(&conversion.field("strategy"), other, &["None", "Webhook"]),
    }
}

fn validate_names(all: &Value, errors: &mut FieldErrors) {
    let at = SPEC.field("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        let (name, here) = (all.text(field), at.field(field));
        let is_kind = field.to_lowercase().ends_with("kind");
        let rule = |name: &str| joined(names::dns1035_label(&name.to_lowercase()));
        if name.is_empty() {
            errors.required(&here, "");
        } else if let Some(why) = rule(name).filter(|_| is_kind) {
            let why = format!("may have mixed case, but should otherwise match: {why}");
            errors.invalid(&here, name, why);
        } else if let Some(why) = joined(names::dns1035_label(name)).filter(|_| !is_kind) {
            errors.invalid(&here, name, why);
        }
    }
    if !all.text("kind").is_empty() && all.text("kind") == all.text("listKind") {
        errors.invalid(
            &at.field("listKind"),
            all.text("listKind"),
            "kind and listKind may not be the same",
        );
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in all.list(field).iter().enumerate() {
            if let Some(why) = joined(names::dns1035_label(name.as_text())) {
                errors.invalid(&at.field(field).index(index), name.as_text(), why);
            }
        }
    }
}

/// Whether all versions say the same of something: then errors are told once, as of the definition.
fn is_shared(versions: &[Value], field: &str) -> bool {
    let first = versions.first().map_or(&Value::Null, |v| v.sub(field));
    !first.is_blank() && versions.iter().all(|version| version.sub(field) == first)
}

fn validate_versions(spec: &Value, errors: &mut FieldErrors) {
    let (at, versions) = (SPEC.field("versions"), spec.list("versions"));
    let shared = ["schema", "subresources", "additionalPrinterColumns"].map(|field| is_shared(versions, field));
    let mut seen = Seen::default();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let here = at.index(index);
        let name = version.text("name");
        unique &= seen.add(name);
        if let Some(why) = joined(names::dns1035_label(name)) {
            errors.invalid(&here.field("name"), name, why);
        }
        let deprecation = version.sub("deprecationWarning");
        if !deprecation.is_null() {
            let here = here.field("deprecationWarning");
            match deprecation.as_text() {
                _ if !version.on("deprecated") => {
                    errors.invalid(&here, deprecation.clone(), "can only be set for deprecated versions");
                }
                "" => errors.invalid(&here, "", "must not be an empty string"),
                text if text.len() > 256 => errors.invalid(&here, text, "must be <= 256 characters long"),
                text if text.chars().any(char::is_control) => {
                    let why = "must only contain printable UTF-8 characters";
                    errors.invalid(&here, text, why);
                }
                _ => {}
            }
        }
        let first_or_own = |shared: bool| !shared || index == 0;
        let document = version.at("schema.openAPIV3Schema");
        let schema_at = here.field("schema");
        if document.is_null() {
            errors.required(&schema_at.field("openAPIV3Schema"), "");
        } else if first_or_own(shared[0]) {
            let validation = SPEC.field("validation");
            let base = if shared[0] { &validation } else { &schema_at };
            validate_schema(document, &base.field("openAPIV3Schema"), errors);
        }
        if first_or_own(shared[1]) {
            let (own, all) = (here.field("subresources"), SPEC.field("subresources"));
            validate_scale(
                version.at("subresources.scale"),
                if shared[1] { &all } else { &own },
                errors,
            );
        }
        if first_or_own(shared[2]) {
            let field = "additionalPrinterColumns";
            let (own, all) = (here.field(field), SPEC.field(field));
            validate_columns(version.list(field), if shared[2] { &all } else { &own }, errors);
        }
        validate_selectable(
            version.list("selectableFields"),
            document,
            &here.field("selectableFields"),
            errors,
        );
    }
    if !unique {
        errors.invalid(&at, spec.sub("versions").clone(), "must contain unique version names");
    }
    if versions.iter().filter(|version| version.on("storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.invalid(&at, spec.sub("versions").clone(), why);
    }
}

fn validate_schema(document: &Value, at: &Path<'_>, errors: &mut FieldErrors) {
    let below = |path: &str| {
        let dot = if path.is_empty() || path.starts_with('[') {
            ""
        } else {
            "."
        };
        format!("{at}{dot}{path}")
    };
    let mut wrong = structural_errors(document).0;
    if wrong.is_empty()
        && let Err(error) = Schema::from_openapi_v3(document)
    {
        wrong.push(FieldError::invalid(error.path, "", error.problem));
    }
    for mut error in wrong {
        error.field = below(&error.field);
        errors.push(error);
    }
    refuse_rules(document, at, errors, 0);
}

/// Rules in CEL would be passed over silently: better to say so.
fn refuse_rules(document: &Value, at: &Path<'_>, errors: &mut FieldErrors, depth: usize) {
    if depth > MAX_DEPTH || !document.is_object() {
        return;
    }
    if !document.list("x-kubernetes-validations").is_empty() {
        let why = "this server does not evaluate rules in CEL yet, and would not enforce them";
        errors.forbidden(&at.field("x-kubernetes-validations"), why);
    }
    let properties = at.field("properties");
    for (name, property) in document.sub("properties").entries() {
        refuse_rules(property, &properties.key(name), errors, depth + 1);
    }
    for field in ["items", "additionalProperties"] {
        refuse_rules(document.sub(field), &at.field(field), errors, depth + 1);
    }
}

/// Whether a path is of dots and names, beginning with a dot.
fn simple_path(path: &str, at: &Path<'_>, errors: &mut FieldErrors) -> bool {
    if path.starts_with('.') {
        return true;
    }
    errors.invalid(at, path, "must be a simple json path starting with .");
    false
}

fn validate_scale(scale: &Value, at: &Path<'_>, errors: &mut FieldErrors) {
    if scale.is_null() {
        return;
    }
    let at = at.field("scale");
    for (field, below) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let (path, here) = (scale.text(field), at.field(field));
        if path.is_empty() {
            errors.required(&here, "");
        } else if simple_path(path, &here, errors) && !path.starts_with(below) {
            let why = format!("should be a json path under {}", below.trim_end_matches('.'));
            errors.invalid(&here, path, why);
        }
    }
    let (path, here) = (scale.text("labelSelectorPath"), at.field("labelSelectorPath"));
    if !path.is_empty()
        && simple_path(path, &here, errors)
        && !path.starts_with(".spec.")
        && !path.starts_with(".status.")
    {
        errors.invalid(&here, path, "should be a json path under either .spec or .status");
    }
}

fn validate_columns(columns: &[Value], at: &Path<'_>, errors: &mut FieldErrors) {
    for (index, column) in columns.iter().enumerate() {
        let here = at.index(index);
        if column.text("name").is_empty() {
            errors.required(&here.field("name"), "");
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match column.text("type") {
            "" => errors.required(&here.field("type"), &types),
            known if COLUMN_TYPES.contains(&known) => {}
            other => errors.invalid(&here.field("type"), other, types),
        }
        let format = column.text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&here.field("format"), format, why);
        }
        match column.text("jsonPath") {
            "" => errors.required(&here.field("JSONPath"), ""),
            path => {
                simple_path(path, &here.field("JSONPath"), errors);
            }
        }
    }
}

fn validate_selectable(fields: &[Value], document: &Value, at: &Path<'_>, errors: &mut FieldErrors) {
    let mut seen = Seen::default();
    for (index, field) in fields.iter().enumerate() {
        let (path, list) = (field.text("jsonPath"), at.index(index));
        let here = list.field("jsonPath");
        let Some(names) = path.strip_prefix('.').filter(|names| !names.is_empty()) else {
            match path {
                "" => errors.required(&here, ""),
                path => errors.invalid(&here, path, "is an invalid path: must begin with ."),
            }
            continue;
        };
        let step = |node: &Value, name: &str| node.sub("properties").get(name).cloned();
        let found = names
            .split('.')
            .try_fold(document.clone(), |node, name| step(&node, name));
        match found {
            _ if names.starts_with("metadata") => {
                errors.invalid(&here, path, "must not point to fields in metadata");
            }
            None => errors.invalid(&here, path, "is an invalid path: does not refer to a valid field"),
            Some(node) if !matches!(node.text("type"), "string" | "boolean" | "integer") => {
                let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                           formats are allowed.";
                errors.invalid(&here, path, why);
            }
            Some(_) => {
                seen.note(errors, &here, path);
            }
        }
    }
    if fields.len() > MOST_SELECTABLE {
        let why = format!("{}: must have at most {MOST_SELECTABLE} items", fields.len());
        errors.push(FieldError::new(
            minato_meta::FieldErrorClass::TooMany,
            at.to_string(),
            Value::Null,
            why,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    fn definition() -> Value {
        json!({"metadata": {"name": "crontabs.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "CronTab", "plural": "crontabs"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        }})
    }

    #[test]
    fn definitions_get_the_names_that_follow_from_the_kind() {
        let mut object = definition();
        CustomResourceDefinition.default(&mut object);
        CustomResourceDefinition.prepare_for_create(&mut object);
        assert_eq!(object["spec"]["names"]["listKind"], "CronTabList");
        assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(texts(&CustomResourceDefinition.validate(&object)), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_told_where_it_is() {
        let mut object = definition();
        object["metadata"]["name"] = json!("other");
        object["spec"]["names"]["shortNames"] = json!(["CT"]);
        let version = &mut object["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] = json!({});
        version["subresources"] = json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": "x"}});
        version["additionalPrinterColumns"] = json!([{"name": "A", "type": "text", "jsonPath": "spec"}]);
        version["selectableFields"] = json!([{"jsonPath": ".spec.none"}]);
        CustomResourceDefinition.default(&mut object);
        let told = texts(&CustomResourceDefinition.validate(&object));
        assert_eq!(
            told[..1],
            ["metadata.name: Invalid value: \"other\": must be spec.names.plural+\".\"+spec.group"]
        );
        assert!(
            told[1].starts_with("spec.names.shortNames[0]: Invalid value: \"CT\": a DNS-1035 label"),
            "{told:?}"
        );
        assert_eq!(
            told[2..],
            [
                "spec.validation.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be empty \
                 for specified object fields",
                "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec",
                "spec.subresources.scale.statusReplicasPath: Invalid value: \"x\": must be a simple json path starting with .",
                "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
                 boolean,date,integer,number,string",
                "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
                "spec.versions[0].selectableFields[0].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not \
                 refer to a valid field",
            ]
        );
    }

    #[test]
    fn groups_of_kubernetes_need_approval_and_rules_are_refused() {
        let mut object = definition();
        object["metadata"]["name"] = json!("crontabs.x.k8s.io");
        object["spec"]["group"] = json!("x.k8s.io");
        let schema = &mut object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": "self.size > 1"}]);
        CustomResourceDefinition.default(&mut object);
        let told = texts(&CustomResourceDefinition.validate(&object));
        assert!(
            told[0].starts_with("spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations: Forbidden")
        );
        assert!(
            told[1].starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value"),
            "{told:?}"
        );
    }

    #[test]
    fn identity_does_not_change_and_stored_versions_stay() {
        let mut old = definition();
        CustomResourceDefinition.default(&mut old);
        CustomResourceDefinition.prepare_for_create(&mut old);
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        let mut new = old.clone();
        new["spec"]["versions"][0]["name"] = json!("v2");
        new["spec"]["names"]["kind"] = json!("Other");
        CustomResourceDefinition.prepare_for_update(&mut new, &old);
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
        let told = texts(&CustomResourceDefinition.validate_update(&new, &old));
        assert_eq!(told[0], "spec.names.kind: Invalid value: \"Other\": field is immutable");
        assert!(
            told[1].starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was")
        );
        let now = Timestamp::UNIX_EPOCH;
        CustomResourceDefinition.prepare_for_delete(&mut new, now);
        CustomResourceDefinition.prepare_for_delete(&mut new, now);
        assert_eq!(new["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(new["status"]["conditions"][1]["reason"], "InstanceDeletionPending");
    }
}
