//! Options of writes and deletes.

use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind};
use serde_json::{Value, json};

use super::decode;
use crate::request::{ApiRequest, Query};

/// What to do about unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Who the fields are booked to.
    pub(crate) field_manager: String,
    /// Whether the client named a manager itself.
    pub(crate) manager_named: bool,
    /// Takes over fields of other managers (apply only).
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Reads them from the query.
    ///
    /// # Errors
    /// 422 for values that upstream refuses.
    pub(crate) fn from_request(request: &ApiRequest, kind: &str) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::default();
        let dry_run = dry_run(&request.query, &mut errors);
        let field_validation = match request.query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        let named = request.query.get_non_empty("fieldManager");
        if let Some(manager) = named {
            check_manager(manager, &mut errors);
        }
        if errors.is_empty() {
            Ok(Self {
                dry_run,
                field_validation,
                field_manager: request.field_manager(),
                manager_named: named.is_some(),
                force: request.query.is_true("force"),
            })
        } else {
            Err(ApiError::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors))
        }
    }

    /// The options object that admission sees.
    pub(crate) fn to_object(&self, kind: &str) -> Value {
        let mut object = json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": kind,
            "fieldManager": self.field_manager,
        });
        if self.dry_run {
            object["dryRun"] = json!(["All"]);
        }
        object
    }
}

fn check_manager(manager: &str, errors: &mut FieldErrors) {
    if manager.chars().count() > 128 {
        errors.push(FieldError::new(
            minato_meta::FieldErrorClass::TooLong,
            "fieldManager",
            manager,
            "may not be more than 128 bytes",
        ));
    }
    if manager.chars().any(char::is_control) {
        errors.push(FieldError::invalid(
            "fieldManager",
            manager,
            "should only contain printable characters",
        ));
    }
}

fn dry_run(query: &Query, errors: &mut FieldErrors) -> bool {
    let mut dry = false;
    for value in query.get_all("dryRun").filter(|v| !v.is_empty()) {
        if value == "All" {
            dry = true;
        } else {
            errors.push(FieldError::not_supported("dryRun", value, &["All"]));
        }
    }
    dry
}

/// What becomes of the objects that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// Options of deletes; from the body, or from the query when there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<u64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) precondition_uid: Option<String>,
    pub(crate) precondition_revision: Option<String>,
    pub(crate) dry_run: bool,
    /// As admission sees them.
    pub(crate) object: Value,
}

impl DeleteOptions {
    /// Reads them.
    ///
    /// # Errors
    /// 400 for a body that is none, 422 for values that upstream refuses.
    pub(crate) async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        let body = request.read_body().await?;
        let mut object = if body.iter().all(u8::is_ascii_whitespace) {
            options_from_query(&request.query)?
        } else {
            let decoded = decode::tree(&body, decode::media_type(request))?;
            match decoded.value.get("kind").and_then(Value::as_str) {
                None | Some("" | "DeleteOptions") => decoded.value,
                Some(kind) => {
                    return Err(ApiError::bad_request(format!(
                        "the body of a delete must be DeleteOptions, not {kind}"
                    )));
                }
            }
        };
        // A dryRun in the query holds for either form.
        if object.get("dryRun").is_none() && request.query.get_non_empty("dryRun").is_some() {
            let values: Vec<&str> = request.query.get_all("dryRun").collect();
            object["dryRun"] = json!(values);
        }
        Self::from_object(object)
    }

    /// Reads them from an options object.
    ///
    /// # Errors
    /// 422 for values that upstream refuses, 400 for wrong types.
    pub(crate) fn from_object(object: Value) -> Result<Self, ApiError> {
        let schema = minato_schema::builtin().get("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        if !object.is_object() {
            return Err(ApiError::bad_request("the body of a delete must be an object"));
        }
        if let Some(schema) = schema {
            minato_schema::check(&object, schema).map_err(|e| ApiError::bad_request(e.to_string()))?;
        }
        let mut errors = FieldErrors::default();
        let policy = object.get("propagationPolicy").filter(|v| !v.is_null());
        let orphan = object.get("orphanDependents").and_then(Value::as_bool);
        if policy.is_some() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.cloned().unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy.and_then(Value::as_str) {
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    &["Background", "Foreground", "Orphan", "nil"],
                ));
                None
            }
            None => orphan.map(|o| {
                if o {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
        };
        let mut dry_run = false;
        for value in object.get("dryRun").and_then(Value::as_array).into_iter().flatten() {
            if value == "All" {
                dry_run = true;
            } else {
                errors.push(FieldError::not_supported("dryRun", value.clone(), &["All"]));
            }
        }
        if !errors.is_empty() {
            let kind = GroupKind::new("meta.k8s.io", "DeleteOptions");
            return Err(ApiError::invalid(&kind, "", errors));
        }
        let precondition = |key: &str| {
            let value = object.pointer("/preconditions")?.get(key)?.as_str()?;
            Some(value.to_owned())
        };
        Ok(Self {
            // A negative period is taken as one second, as upstream takes it.
            grace_period_seconds: object
                .get("gracePeriodSeconds")
                .and_then(Value::as_i64)
                .map(|s| u64::try_from(s).unwrap_or(1)),
            propagation,
            precondition_uid: precondition("uid"),
            precondition_revision: precondition("resourceVersion"),
            dry_run,
            object,
        })
    }
}

fn options_from_query(query: &Query) -> Result<Value, ApiError> {
    let mut object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"});
    if let Some(seconds) = query.get_non_empty("gracePeriodSeconds") {
        let seconds: i64 = seconds
            .parse()
            .map_err(|_| ApiError::bad_request(format!("invalid gracePeriodSeconds {seconds:?}")))?;
        object["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(policy) = query.get_non_empty("propagationPolicy") {
        object["propagationPolicy"] = json!(policy);
    }
    if query.get_non_empty("orphanDependents").is_some() {
        object["orphanDependents"] = json!(query.is_true("orphanDependents"));
    }
    Ok(object)
}
