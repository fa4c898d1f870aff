//! Response bodies and the way errors become `Status` objects.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use minato_meta::ApiError;
use serde::Serialize;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A request or response body.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// What handlers return.
pub type Response = http::Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// No body.
pub(crate) fn empty_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is there as a whole.
pub(crate) fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response of ready JSON bytes.
pub(crate) fn json_bytes(code: StatusCode, bytes: impl Into<Bytes>) -> Response {
    with_type(code, JSON, bytes)
}

/// A response of any type.
pub(crate) fn with_type(code: StatusCode, content_type: HeaderValue, bytes: impl Into<Bytes>) -> Response {
    let mut response = Response::new(full_body(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A response with a serialized value.
///
/// # Errors
/// 500 when the value cannot be serialized.
pub(crate) fn json<T: Serialize>(code: StatusCode, value: &T) -> Result<Response, ApiError> {
    Ok(json_bytes(code, serde_json::to_vec(value).map_err(ApiError::internal)?))
}

/// A plain-text response.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response {
    with_type(code, HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

/// An error as the client gets it.
pub(crate) fn error(error: &ApiError) -> Response {
    let status = error.to_status();
    let bytes = serde_json::to_vec(&status).unwrap_or_default();
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_bytes(code, bytes);
    if let Some(seconds) = error.retry_after_seconds() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Turns a handler's result into a response.
pub(crate) fn from_result(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|e| error(&e))
}

/// `Warning: 299 - "text"`, as of RFC 7234 §5.5. `None` when the text cannot be in a header.
pub(crate) fn warning_header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut quoted = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    let value = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()?;
    Some((header::WARNING, value))
}
