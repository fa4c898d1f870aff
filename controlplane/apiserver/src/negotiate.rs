//! Which encodings and forms of objects a client accepts.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>.

use http::{HeaderValue, StatusCode, header};
use minato_codec::proto::{ProtobufError, encode_protobuf};
use minato_meta::{ApiError, ErrorKind};
use minato_schema::Schema;
use serde_json::Value;

use crate::endpoints::output::{Form, FormVersion};
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
    let found = parse(&accept(request));
    if found.is_empty() {
        return Err(not_acceptable());
    }
    Ok(found)
}

/// What a client asks for, in so far as it bears on what it may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Object,
    List,
    /// Watches have no YAML, and clients may say `stream=watch`.
    Watch,
}

/// The encodings and forms that a client accepts, the dearest first.
///
/// # Errors
/// 406 when there is none.
pub(crate) fn accepted_forms(request: &ApiRequest, ask: Ask) -> Result<Vec<(Encoding, Form)>, ApiError> {
    let found = forms(&accept(request), ask);
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

/// One media type of an `Accept` header.
struct Clause<'a> {
    encoding: Encoding,
    quality: f32,
    /// Form that is asked for: kind, group and version.
    form: Option<[&'a str; 3]>,
    stream: bool,
}

/// The clauses that can be, the dearest first; equal qualities keep the client's order.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let clause = |text| {
        let mut parts = str::split(text, ';').map(str::trim);
        let encoding = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => return None,
        };
        let (mut quality, mut stream, mut form) = (1.0, false, [""; 3]);
        for (key, value) in parts.filter_map(|p| p.split_once('=')) {
            let value = value.trim();
            match key.trim() {
                "q" => quality = value.parse().unwrap_or(1.0),
                "stream" => stream = true,
                "as" => form[0] = value,
                "g" => form[1] = value,
                "v" => form[2] = value,
                _ => {}
            }
        }
        Some(Clause {
            encoding,
            quality,
            form: (!form[0].is_empty()).then_some(form),
            stream,
        })
    };
    let text = if accept.trim().is_empty() { "*/*" } else { accept };
    let mut clauses: Vec<Clause<'_>> = text.split(',').filter_map(clause).collect();
    clauses.retain(|c| c.quality > 0.0);
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn parse(accept: &str) -> Vec<Encoding> {
    let clauses = clauses(accept);
    let plain = clauses.iter().filter(|c| c.form.is_none() && !c.stream);
    let mut found: Vec<Encoding> = plain.map(|c| c.encoding).collect();
    found.dedup();
    if found.is_empty() && !clauses.is_empty() {
        found.push(Encoding::Json);
    }
    found
}

fn forms(accept: &str, ask: Ask) -> Vec<(Encoding, Form)> {
    let accepted = |clause: &Clause<'_>| {
        let can = match ask {
            Ask::Watch => clause.encoding != Encoding::Yaml,
            _ => !clause.stream,
        };
        let form = form(clause.form, ask).filter(|_| can)?;
        Some((clause.encoding, form))
    };
    clauses(accept).iter().filter_map(accepted).collect()
}

/// A form of group `meta.k8s.io` that can be made of what is asked for.
fn form(form: Option<[&str; 3]>, ask: Ask) -> Option<Form> {
    let Some([kind, group, version]) = form else {
        return Some(Form::Whole);
    };
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => FormVersion::V1,
        ("meta.k8s.io", "v1beta1") => FormVersion::V1Beta1,
        _ => return None,
    };
    match (kind, ask) {
        ("Table", _) => Some(Form::Table(version)),
        ("PartialObjectMetadata", Ask::Object | Ask::Watch) | ("PartialObjectMetadataList", Ask::List) => {
            Some(Form::Metadata(version))
        }
        _ => None,
    }
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
        assert_eq!(parse(""), [Encoding::Json]);
        assert_eq!(parse("*/*"), [Encoding::Json]);
        assert_eq!(
            parse("application/vnd.kubernetes.protobuf,application/json"),
            [Encoding::Protobuf, Encoding::Json]
        );
        assert_eq!(
            parse("application/json;q=0.5, application/yaml"),
            [Encoding::Yaml, Encoding::Json]
        );
        assert_eq!(
            parse("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            [Encoding::Json]
        );
        assert_eq!(parse("application/json;as=Table;v=v1;g=meta.k8s.io"), [Encoding::Json]);
        assert_eq!(parse("text/html"), []);
        assert_eq!(parse("application/json;q=0"), []);
    }

    #[test]
    fn forms_are_made_of_what_they_can_be_made_of() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let older = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        let kubectl = format!("{table},{older},application/json");
        let expected = [
            (Encoding::Json, Form::Table(FormVersion::V1)),
            (Encoding::Json, Form::Table(FormVersion::V1Beta1)),
            (Encoding::Json, Form::Whole),
        ];
        for ask in [Ask::Object, Ask::List, Ask::Watch] {
            assert_eq!(forms(&kubectl, ask), expected);
        }
        let one = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let all = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let metadata = Form::Metadata(FormVersion::V1);
        assert_eq!(forms(&format!("{one},{all}"), Ask::List), [(Encoding::Json, metadata)]);
        assert_eq!(
            forms(&format!("{one},{all}"), Ask::Object),
            [(Encoding::Protobuf, metadata)]
        );
        for unknown in [
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/json;as=Table;v=v1;g=apps",
            "application/json;as=Chart;v=v1;g=meta.k8s.io",
            "application/json;stream=watch",
        ] {
            assert_eq!(forms(unknown, Ask::List), [], "{unknown}");
        }
        assert_eq!(
            forms("application/json;stream=watch, application/yaml", Ask::Watch),
            [(Encoding::Json, Form::Whole)]
        );
    }
}
