//! `pods/log`.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind, GroupResource};

use super::{add_parameter, backend, pod};
use crate::endpoints::Target;
use crate::request::{ApiRequest, Query};
use crate::response::{self, Response};
use crate::server::ApiServer;

const TAIL_WITH_STREAM: &str = "`tailLines` and specific `stream` are mutually exclusive for now";

/// Streams a container's log.
///
/// # Errors
/// 422 for bad options, 400 for pods without such a container and containers without a log yet, 503 without a way.
pub(super) async fn get(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    if request.info.verb != "get" {
        return Err(ApiError::method_not_allowed());
    }
    let options = options(&request.query, &target.name)?;
    let pod = pod::read(server, &target).await?;
    let container = pod::container(&pod, &target.name, request.query.get("container").unwrap_or_default())?;
    let node = pod::node_of(&pod);
    if node.is_empty() {
        let mut response = response::text(StatusCode::NO_CONTENT, "");
        response.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(response);
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let mut path = format!("/containerLogs/{namespace}/{}/{container}", target.name);
    for (name, value) in &options {
        add_parameter(&mut path, name, value);
    }
    let mut kubelet = backend::kubelet(server, node).await?;
    let answer = backend::ask(&mut kubelet, backend::request(Method::GET, &path, node)?).await?;
    if answer.status() != StatusCode::OK {
        return Err(backend::error_of(answer, &GroupResource::new("", "pods/log"), &target.name).await);
    }
    let mut response = Response::new(backend::until_stopped(server, answer.into_body()));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

/// The options, as the kubelet takes them.
fn options(query: &Query, pod: &str) -> Result<Vec<(&'static str, String)>, ApiError> {
    let mut errors = FieldErrors::default();
    let tail = number(query, "tailLines")?;
    if let Some(value) = tail.filter(|v| *v < 0) {
        errors.push(FieldError::invalid(
            "tailLines",
            value,
            "must be greater than or equal to 0",
        ));
    }
    let limit = number(query, "limitBytes")?;
    if let Some(value) = limit.filter(|v| *v < 1) {
        errors.push(FieldError::invalid("limitBytes", value, "must be greater than 0"));
    }
    let since_seconds = number(query, "sinceSeconds")?;
    let since_time = query.get_non_empty("sinceTime").map(time).transpose()?;
    if since_seconds.is_some() && since_time.is_some() {
        let text = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden("", text));
    } else if let Some(value) = since_seconds.filter(|v| *v < 1) {
        errors.push(FieldError::invalid("sinceSeconds", value, "must be greater than 0"));
    }
    let stream = query.get_non_empty("stream");
    match stream {
        None | Some("All") => {}
        Some("Stdout" | "Stderr") if tail.is_some() => errors.push(FieldError::forbidden("", TAIL_WITH_STREAM)),
        Some("Stdout" | "Stderr") => {}
        Some(other) => errors.push(FieldError::not_supported("stream", other, &["All", "Stderr", "Stdout"])),
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(&GroupKind::new("", "PodLogOptions"), pod, errors));
    }
    let mut options = Vec::new();
    for name in ["follow", "previous", "timestamps"] {
        if query.is_true(name) {
            options.push((name, "true".to_owned()));
        }
    }
    for (name, value) in [
        ("sinceSeconds", since_seconds),
        ("tailLines", tail),
        ("limitBytes", limit),
    ] {
        options.extend(value.map(|v| (name, v.to_string())));
    }
    options.extend(since_time.map(|t| ("sinceTime", t)));
    options.extend(stream.filter(|s| *s != "All").map(|s| ("stream", s.to_owned())));
    Ok(options)
}

fn number(query: &Query, name: &str) -> Result<Option<i64>, ApiError> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    };
    query.get_non_empty(name).map(parse).transpose()
}

fn time(text: &str) -> Result<String, ApiError> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    match parsed {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(ApiError::bad_request(format!("sinceTime is not a time: {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(query: &str) -> (u16, String) {
        let error = options(&Query::parse(query), "p").unwrap_err();
        (error.code(), error.message().to_owned())
    }

    #[test]
    fn options_reach_the_kubelet() {
        let query =
            Query::parse("follow=true&tailLines=0&limitBytes=10&sinceTime=2026-01-02T03%3A04%3A05Z&previous=false");
        let expected = [
            ("follow", "true"),
            ("tailLines", "0"),
            ("limitBytes", "10"),
            ("sinceTime", "2026-01-02T03:04:05Z"),
        ];
        let expected: Vec<_> = expected.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
        assert_eq!(options(&query, "p").unwrap(), expected);
    }

    #[test]
    fn bad_options_are_refused_in_the_usual_words() {
        assert_eq!(
            message("tailLines=-1"),
            (
                422,
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"
                    .to_owned()
            )
        );
        assert_eq!(message("limitBytes=0").0, 422);
        assert_eq!(message("sinceSeconds=0").0, 422);
        assert_eq!(message("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z").0, 422);
        assert_eq!(message("stream=x").0, 422);
        assert_eq!(message("stream=Stdout&tailLines=1").0, 422);
        assert_eq!(
            message("tailLines=abc"),
            (400, "strconv.ParseInt: parsing \"abc\": invalid syntax".to_owned())
        );
        assert_eq!(message("sinceTime=yesterday").0, 400);
    }
}
