//! Request bodies into trees of the right kind, type and shape.

use minato_codec::{DecodeError, Decoded, Limits, decode_json, decode_yaml, proto};
use minato_meta::{ApiError, ErrorKind, GroupVersion, GroupVersionKind};
use minato_rules::ResourceInfo;
use serde_json::Value;

use super::options::FieldValidation;
use crate::registry::Registry;
use crate::request::{ApiRequest, Warnings};

/// Reports of unknown fields are bounded, so that a hostile body cannot make a huge answer.
const MOST_REPORTS: usize = 100;

/// Media type of the body, without parameters; JSON when there is none.
pub(crate) fn media_type(request: &ApiRequest) -> &str {
    let value = request.header("content-type").unwrap_or_default();
    match value.split(';').next().unwrap_or_default().trim() {
        "" => "application/json",
        media_type => media_type,
    }
}

/// Decodes a body by its media type.
///
/// # Errors
/// 415 for types that are not taken, 400 or 413 for bodies that are not of their type or too large.
pub(crate) fn tree(body: &[u8], media_type: &str) -> Result<Decoded, ApiError> {
    let limits = Limits::default();
    let decoded = match media_type {
        "application/json" | "text/json" => decode_json(body, &limits),
        "application/yaml" | "application/x-yaml" | "text/yaml" => decode_yaml(body, &limits),
        "application/vnd.kubernetes.protobuf" => return protobuf(body, &limits),
        _ => return Err(unknown_format()),
    };
    decoded.map_err(decode_error)
}

fn unknown_format() -> ApiError {
    ApiError::new(
        ErrorKind::UnsupportedMediaType,
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// Decodes the protobuf of a built-in kind.
fn protobuf(body: &[u8], limits: &Limits) -> Result<Decoded, ApiError> {
    let envelope = proto::open(body).map_err(protobuf_error)?;
    if !envelope.content_type.is_empty() && envelope.content_type != "application/vnd.kubernetes.protobuf" {
        return match envelope.content_type {
            "application/json" => decode_json(envelope.raw, limits).map_err(decode_error),
            _ => Err(unknown_format()),
        };
    }
    let builtin = minato_schema::builtin();
    let version = GroupVersion::parse(envelope.api_version).unwrap_or_else(|| GroupVersion::new("", "v1"));
    let kind = GroupVersionKind::new(version.group, version.version, envelope.kind);
    let schema = match envelope.kind {
        "DeleteOptions" => builtin.reference("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
        _ => builtin.kind_reference(&kind),
    };
    let schema = schema.ok_or_else(unknown_format)?;
    let value = proto::decode_protobuf(&envelope, &schema, limits).map_err(protobuf_error)?;
    Ok(Decoded {
        value,
        duplicates: Vec::new(),
    })
}

fn protobuf_error(error: proto::ProtobufError) -> ApiError {
    match error {
        proto::ProtobufError::NotCovered(_) => unknown_format(),
        other => ApiError::bad_request(format!("the object provided is unrecognized: {other}")),
    }
}

/// A decoder's complaint as the client gets it.
pub(crate) fn decode_error(error: DecodeError) -> ApiError {
    match error {
        DecodeError::TooLarge { .. } => ApiError::new(ErrorKind::RequestEntityTooLarge, error.to_string()),
        other => ApiError::bad_request(format!("the object provided is unrecognized: {other}")),
    }
}

/// How strict to be, and where to leave warnings.
pub(crate) struct Strictness<'a> {
    pub(crate) validation: FieldValidation,
    pub(crate) warnings: &'a Warnings,
}

/// Makes a decoded tree an object of the kind: checks its kind and types, reports and drops unknown fields, brings it
/// to Go's shape, fills defaults.
///
/// # Errors
/// 400 for another kind, wrong types, or (strictly) unknown and duplicate fields.
pub(crate) fn intake(
    registry: &Registry,
    resource: &ResourceInfo,
    decoded: Decoded,
    strictness: &Strictness<'_>,
) -> Result<Value, ApiError> {
    let Decoded { mut value, duplicates } = decoded;
    stamp_kind(&mut value, &resource.gvk)?;
    structure(registry, resource, &mut value, duplicates, strictness)?;
    complete(registry, resource, &mut value);
    Ok(value)
}

/// The first half of [`intake`], which is all that an applied configuration gets: what it leaves out must stay out.
///
/// # Errors
/// See [`intake`].
pub(crate) fn structure(
    registry: &Registry,
    resource: &ResourceInfo,
    value: &mut Value,
    duplicates: Vec<String>,
    strictness: &Strictness<'_>,
) -> Result<(), ApiError> {
    let mut unknown = Vec::new();
    if let Some(schema) = registry.schema(resource) {
        // What is wrong with the fields of a custom kind is told by its validation, with their paths.
        let custom = registry.custom_schema(&resource.gvr).is_some();
        let metadata = schema.field("metadata").filter(|_| custom);
        let (part, schema) = match metadata {
            Some(field) => (value.get("metadata").unwrap_or(&Value::Null), &field.schema),
            None => (&*value, &schema),
        };
        minato_schema::check(part, schema).map_err(|e| cannot_be_handled(&resource.gvk, &e.to_string()))?;
    }
    if let Some(schema) = registry.schema(resource) {
        unknown = minato_schema::prune(value, &schema, MOST_REPORTS);
    }
    report(&resource.gvk, unknown, duplicates, strictness)
}

/// The second half of [`intake`]: Go's shape and defaults.
pub(crate) fn complete(registry: &Registry, resource: &ResourceInfo, value: &mut Value) {
    if let Some(schema) = registry.schema(resource) {
        minato_schema::to_go_shape(value, &schema);
        minato_schema::apply_defaults(value, &schema);
    }
    resource.strategy.default(value);
}

/// Deals with unknown and duplicate fields as the client asked.
pub(crate) fn report(
    gvk: &GroupVersionKind,
    unknown: Vec<String>,
    duplicates: Vec<String>,
    strictness: &Strictness<'_>,
) -> Result<(), ApiError> {
    if unknown.is_empty() && duplicates.is_empty() {
        return Ok(());
    }
    let unknown = unknown.into_iter().map(|path| format!("unknown field \"{path}\""));
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\""));
    let texts = duplicates.chain(unknown);
    match strictness.validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            strictness.warnings.extend(texts);
            Ok(())
        }
        FieldValidation::Strict => {
            let all: Vec<String> = texts.collect();
            let why = format!("strict decoding error: {}", all.join(", "));
            Err(cannot_be_handled(gvk, &why))
        }
    }
}

fn cannot_be_handled(gvk: &GroupVersionKind, why: &str) -> ApiError {
    let (kind, version) = (&gvk.kind, &gvk.version);
    ApiError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
    ))
}

/// Checks that a body is of the expected kind; fills in the type where the body leaves it out.
pub(crate) fn stamp_kind(value: &mut Value, gvk: &GroupVersionKind) -> Result<(), ApiError> {
    let Some(fields) = value.as_object_mut() else {
        return Err(ApiError::bad_request(
            "the object provided is unrecognized (must be of type Object): the body must be a JSON object",
        ));
    };
    let expected = gvk.group_version().to_string();
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if !kind.is_empty() && kind != gvk.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {}: the kind in the data does not match the expected kind",
            api_version.rsplit('/').next().unwrap_or_default(),
            gvk.kind
        )));
    }
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    fields.insert("apiVersion".to_owned(), Value::String(expected));
    fields.insert("kind".to_owned(), Value::String(gvk.kind.clone()));
    match fields.get("metadata") {
        None | Some(Value::Null) => {
            fields.insert("metadata".to_owned(), Value::Object(serde_json::Map::new()));
        }
        _ => {}
    }
    Ok(())
}
