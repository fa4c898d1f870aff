//! API errors as `Status` objects, worded as clients of Kubernetes know them.
//!
//! Clients decide on `reason`, people read `message`, tools read `details.causes`: all three are made here and nowhere
//! else. Source: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/>.

use std::fmt;

use minato_api::meta_v1::{ListMeta, Status, StatusCause, StatusDetails};

use crate::{GroupKind, GroupResource};

/// The machine-readable reason of an error; decides the HTTP code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the reasons of the API reference, by name")]
pub enum ErrorKind {
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    Invalid,
    ServerTimeout,
    StoreReadError,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    ServiceUnavailable,
}

impl ErrorKind {
    /// HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::Invalid => 422,
            Self::ServerTimeout | Self::InternalError | Self::StoreReadError => 500,
            Self::Timeout => 504,
            Self::TooManyRequests => 429,
            Self::BadRequest => 400,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ServiceUnavailable => 503,
        }
    }

    /// The `reason` string on the wire: the variant's own name.
    pub fn reason(self) -> String {
        format!("{self:?}")
    }
}

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable cause, such as `FieldValueInvalid`.
    pub reason: String,
    /// Human-readable text.
    pub message: String,
    /// JSON path of the field, empty when the cause is not about one.
    pub field: String,
}

/// An error that reaches the client as a `Status` object. One pointer wide, since most results of the API server carry it.
#[derive(Debug, Clone)]
pub struct ApiError {
    inner: Box<Inner>,
}

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    code: u16,
    message: String,
    group: String,
    kind_or_resource: String,
    name: String,
    causes: Vec<Cause>,
    retry_after_seconds: Option<u32>,
    continue_token: String,
}

impl ApiError {
    /// An error with a message of its own and no details.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                code: kind.code(),
                message: message.into(),
                group: String::new(),
                kind_or_resource: String::new(),
                name: String::new(),
                causes: Vec::new(),
                retry_after_seconds: None,
                continue_token: String::new(),
            }),
        }
    }

    fn about(mut self, group: &str, kind_or_resource: &str, name: &str) -> Self {
        self.inner.group = group.to_owned();
        self.inner.kind_or_resource = kind_or_resource.to_owned();
        self.inner.name = name.to_owned();
        self
    }

    /// 404 for a missing object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("{resource} \"{name}\" not found")).about(
            &resource.group,
            &resource.resource,
            name,
        )
    }

    /// 404 for a path that nothing serves.
    pub fn no_such_path() -> Self {
        Self::new(ErrorKind::NotFound, "the server could not find the requested resource")
    }

    /// 409 when a create meets an existing object.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(
            ErrorKind::AlreadyExists,
            format!("{resource} \"{name}\" already exists"),
        )
        .about(&resource.group, &resource.resource, name)
    }

    /// 409 when an update lost a race or a precondition failed; `why` completes upstream's sentence.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Conflict,
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(&resource.group, &resource.resource, name)
    }

    /// The conflict of a stale `resourceVersion`, in the words that clients match on.
    pub fn stale(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403 with a reason; `name` may be empty.
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(ErrorKind::Forbidden, message).about(&resource.group, &resource.resource, name)
    }

    /// 401; says nothing about why, so that a guesser learns nothing.
    pub fn unauthorized() -> Self {
        Self::new(ErrorKind::Unauthorized, "Unauthorized")
    }

    /// 422 with all field errors.
    pub fn invalid(kind: &GroupKind, name: &str, errors: FieldErrors) -> Self {
        let texts: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(ErrorKind::Invalid, format!("{kind} \"{name}\" is invalid: {list}")).about(
            &kind.group,
            &kind.kind,
            name,
        );
        error.inner.causes = errors.0.into_iter().map(FieldError::into_cause).collect();
        error
    }

    /// 400 with a message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, message)
    }

    /// 500; the message is for the client, so it must hold nothing internal.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 405 for a verb that the resource does not offer.
    pub fn method_not_allowed() -> Self {
        Self::new(
            ErrorKind::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
    }

    /// 410 for a revision or continue token whose history is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Expired, message)
    }

    /// 504 for a revision that the store has not reached, in the form by which clients know it.
    pub fn too_large_revision(asked: crate::Revision, current: crate::Revision) -> Self {
        Self::new(
            ErrorKind::Timeout,
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_cause(Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        })
        .with_retry_after(1)
    }

    /// Adds the continue token with which a client may go on despite the error (`metadata.continue`).
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.inner.continue_token = token.into();
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.inner.causes.push(cause);
        self
    }

    /// Adds `retryAfterSeconds`, which also becomes a `Retry-After` header.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.inner.retry_after_seconds = Some(seconds);
        self
    }

    /// Replaces the HTTP code where upstream pairs a reason with an unusual one.
    #[must_use]
    pub fn with_code(mut self, code: u16) -> Self {
        self.inner.code = code;
        self
    }

    /// The reason.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.inner.code
    }
    /// The text for people.
    pub fn message(&self) -> &str {
        &self.inner.message
    }
    /// The structured causes.
    pub fn causes(&self) -> &[Cause] {
        &self.inner.causes
    }
    /// Seconds to wait before a retry.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.inner.retry_after_seconds
    }

    /// The wire form.
    pub fn to_status(&self) -> Status {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let causes: Vec<StatusCause> = self
            .inner
            .causes
            .iter()
            .map(|c| StatusCause {
                reason: some(&c.reason),
                message: some(&c.message),
                field: some(&c.field),
            })
            .collect();
        let details = StatusDetails {
            group: some(&self.inner.group),
            kind: some(&self.inner.kind_or_resource),
            name: some(&self.inner.name),
            causes: (!causes.is_empty()).then_some(causes),
            retry_after_seconds: self
                .inner
                .retry_after_seconds
                .map(|s| i32::try_from(s).unwrap_or(i32::MAX)),
            uid: None,
        };
        Status {
            code: Some(i32::from(self.inner.code)),
            details: (details != StatusDetails::default()).then_some(details),
            message: Some(self.inner.message.clone()),
            metadata: ListMeta {
                continue_: some(&self.inner.continue_token),
                ..ListMeta::default()
            },
            reason: Some(self.inner.kind.reason()),
            status: Some("Failure".to_owned()),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for ApiError {}

/// What is wrong with one field. The display form is upstream's: `spec.replicas: Invalid value: -1: must be …`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Path such as `spec.containers[0].name`.
    pub field: String,
    /// Which of upstream's classes; the wire reason is `FieldValue…`.
    pub class: FieldErrorClass,
    /// The offending value, shown for the classes that show it.
    pub value: serde_json::Value,
    /// What would be right.
    pub detail: String,
}

/// Classes of field errors and their wire reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as upstream names them")]
pub enum FieldErrorClass {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl FieldErrorClass {
    fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooMany | Self::Internal
        )
    }
}

impl FieldError {
    /// A field error of any class.
    pub fn new(
        class: FieldErrorClass,
        field: impl Into<String>,
        value: impl Into<serde_json::Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            class,
            value: value.into(),
            detail: detail.into(),
        }
    }
    /// The value is not allowed; `detail` says what would be.
    pub fn invalid(field: impl Into<String>, value: impl Into<serde_json::Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorClass::Invalid, field, value, detail)
    }
    /// The field must be there.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorClass::Required, field, serde_json::Value::Null, detail)
    }
    /// The field must not be there, or must not change.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorClass::Forbidden, field, serde_json::Value::Null, detail)
    }
    /// The value is there already.
    pub fn duplicate(field: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        Self::new(FieldErrorClass::Duplicate, field, value, "")
    }
    /// The value is not one of the supported ones, which are listed.
    pub fn not_supported(field: impl Into<String>, value: impl Into<serde_json::Value>, supported: &[&str]) -> Self {
        let mut values: Vec<String> = supported.iter().map(|v| format!("{v:?}")).collect();
        values.sort();
        let detail = format!("supported values: {}", values.join(", "));
        Self::new(FieldErrorClass::NotSupported, field, value, detail)
    }

    /// The text after the field path.
    fn body(&self) -> String {
        let mut text = self.class.prefix().to_owned();
        if self.class.shows_value() {
            text.push_str(": ");
            text.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn into_cause(self) -> Cause {
        Cause {
            reason: self.class.reason().to_owned(),
            message: self.body(),
            field: self.field,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// All that is wrong with an object; empty when it is valid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    /// Adds one.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_error_reads_as_kubectl_users_know_it() {
        let errors = FieldErrors(vec![FieldError::invalid(
            "spec.replicas",
            -1,
            "must be greater than or equal to 0",
        )]);
        let error = ApiError::invalid(&GroupKind::new("apps", "Deployment"), "web", errors);
        assert_eq!(
            error.message(),
            "Deployment.apps \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        let status = error.to_status();
        assert_eq!(status.code, Some(422));
        assert_eq!(status.reason.as_deref(), Some("Invalid"));
        let causes = status.details.and_then(|d| d.causes).unwrap();
        assert_eq!(causes[0].field.as_deref(), Some("spec.replicas"));
        assert_eq!(causes[0].reason.as_deref(), Some("FieldValueInvalid"));
    }
}
