//! Which encodings a client accepts.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>.

use http::{HeaderValue, StatusCode, header};
use minato_codec::proto::{ProtobufError, encode_protobuf};
use minato_meta::{ApiError, ErrorKind};
use minato_schema::Schema;
use serde_json::Value;

use crate::request::ApiRequest;
use crate::response::{self, Response};

/// Encodings of whole objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Encoding {
    /// Its media type.
    pub(crate) fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => PROTOBUF,
        })
    }
}

/// The encodings of plain objects that a client accepts, the dearest first. Clauses that ask for another form of the
/// object (`as=Table`) do not count here: the answer to a write is the object.
///
/// # Errors
/// 406 when there is none.
pub(crate) fn accepted(request: &ApiRequest) -> Result<Vec<Encoding>, ApiError> {
    let found = parse(&accept(request), false);
    if found.is_empty() {
        return Err(not_acceptable());
    }
    Ok(found)
}

/// Like [`accepted`], for watches: these have no YAML, and clients may say `stream=watch`.
///
/// # Errors
/// 406 when there is none.
pub(crate) fn accepted_stream(request: &ApiRequest) -> Result<Vec<Encoding>, ApiError> {
    let mut found = parse(&accept(request), true);
    found.retain(|encoding| *encoding != Encoding::Yaml);
    if found.is_empty() {
        return Err(not_acceptable());
    }
    Ok(found)
}

fn accept(request: &ApiRequest) -> String {
    let values = request.headers.get_all(header::ACCEPT).iter();
    let values: Vec<&str> = values.filter_map(|v| v.to_str().ok()).collect();
    values.join(",")
}

/// Whether a client takes gzip.
pub(crate) fn accepts_gzip(request: &ApiRequest) -> bool {
    let values = request.headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    codings.any(|coding| {
        let (name, parameter) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameter.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && quality.is_ok_and(|q| q > 0.0)
    })
}

/// 406.
pub(crate) fn not_acceptable() -> ApiError {
    ApiError::new(
        ErrorKind::NotAcceptable,
        format!("only the following media types are accepted: application/json, application/yaml, {PROTOBUF}"),
    )
}

fn parse(accept: &str, streams: bool) -> Vec<Encoding> {
    if accept.trim().is_empty() {
        return vec![Encoding::Json];
    }
    let mut clauses: Vec<(f32, Encoding)> = Vec::new();
    let mut transformed = false;
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut quality = 1.0;
        let mut plain = true;
        for (key, value) in parts.filter_map(|p| p.split_once('=')) {
            match key.trim() {
                "q" => quality = value.trim().parse().unwrap_or(1.0),
                "stream" if streams => {}
                "as" | "stream" => plain = false,
                _ => {}
            }
        }
        let encoding = match media_type {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => continue,
        };
        transformed |= !plain;
        if plain && quality > 0.0 {
            clauses.push((quality, encoding));
        }
    }
    // Stable: equal qualities keep the client's order.
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut found: Vec<Encoding> = clauses.into_iter().map(|(_, e)| e).collect();
    found.dedup();
    if found.is_empty() && transformed {
        found.push(Encoding::Json);
    }
    found
}

/// Encodes an object as the client accepts it. `json` is its JSON, where that is at hand already.
///
/// # Errors
/// 406 when the kind has none of the accepted encodings, 500 when it cannot be encoded.
pub(crate) fn respond(
    code: StatusCode,
    accepted: &[Encoding],
    object: &Value,
    json: impl FnOnce() -> Result<bytes::Bytes, ApiError>,
    schema: Option<&Schema>,
) -> Result<Response, ApiError> {
    for encoding in accepted {
        let bytes = match (encoding, schema) {
            (Encoding::Json, _) => return Ok(response::with_type(code, encoding.media_type(), json()?)),
            (Encoding::Yaml, _) => serde_yaml_ng::to_string(object)
                .map_err(ApiError::internal)?
                .into_bytes(),
            (Encoding::Protobuf, Some(schema)) => match encode_protobuf(object, schema) {
                Ok(bytes) => bytes,
                Err(ProtobufError::NotCovered(_)) => continue,
                Err(error) => return Err(ApiError::internal(error)),
            },
            (Encoding::Protobuf, None) => continue,
        };
        return Ok(response::with_type(code, encoding.media_type(), bytes));
    }
    Err(not_acceptable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_and_order_decide() {
        assert_eq!(parse("", false), [Encoding::Json]);
        assert_eq!(parse("*/*", false), [Encoding::Json]);
        assert_eq!(
            parse("application/vnd.kubernetes.protobuf,application/json", false),
            [Encoding::Protobuf, Encoding::Json]
        );
        assert_eq!(
            parse("application/json;q=0.5, application/yaml", false),
            [Encoding::Yaml, Encoding::Json]
        );
        assert_eq!(
            parse("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", false),
            [Encoding::Json]
        );
        assert_eq!(
            parse("application/json;as=Table;v=v1;g=meta.k8s.io", false),
            [Encoding::Json]
        );
        assert_eq!(parse("text/html", false), []);
        assert_eq!(parse("application/json;q=0", false), []);
    }
}
