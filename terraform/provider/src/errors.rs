//! What the management API refuses, in the words of the configuration.

use minato_api::kube;
use minato_api::kube::core::Status;
use minato_terraform_protocol::{Diagnostic, Diagnostics, Path, Step};

/// Fields of the API and the attributes that set them, the longer before the shorter.
pub(crate) type Fields = &'static [(&'static str, &'static str)];

/// An error of the API: each of its causes at the attribute that it is about.
pub(crate) fn refused(doing: &str, error: &kube::Error, fields: Fields) -> Diagnostics {
    let summary = format!("Failed {doing}");
    let kube::Error::Api(status) = error else {
        return Diagnostic::error(summary, format!("{}.", chain(error))).into();
    };
    let about = |field: &str| attribute(field, fields);
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let told: Vec<Diagnostic> = causes
        .filter_map(|cause| {
            let text = format!("{}: {}", cause.field, cause.message);
            Some(Diagnostic::error(&summary, text).at(about(&cause.field)?))
        })
        .collect();
    if told.is_empty() {
        return Diagnostic::error(summary, status.message.clone()).into();
    }
    Diagnostics(told)
}

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

/// The status of an error that the API answered with.
pub(crate) fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The attribute that sets a field, with the same steps into it.
fn attribute(field: &str, fields: Fields) -> Option<Path> {
    let (rest, attribute) = fields.iter().find_map(|(of_api, attribute)| {
        let rest = field.strip_prefix(of_api)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then_some((rest, *attribute))
    })?;
    let mut path = Path::attribute(attribute);
    let mut rest = rest;
    while !rest.is_empty() {
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']')?;
            let step = key.parse().map_or_else(|_| Step::Key(key.to_owned()), Step::Index);
            (step, after)
        } else {
            let inner = rest.strip_prefix('.')?;
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            (Step::Attribute(inner[..end].to_owned()), &inner[end..])
        };
        path = path.then(step);
        rest = after;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields = &[
        ("spec.taints", "taints"),
        ("spec.labels", "labels"),
        ("spec.cloud.provider", "cloud"),
    ];

    #[test]
    fn fields_are_attributes() {
        let found = |field| attribute(field, FIELDS).map(|path| path.to_string());
        assert_eq!(found("spec.cloud.provider").as_deref(), Some("cloud"));
        assert_eq!(found("spec.taints[2].key").as_deref(), Some("taints[2].key"));
        assert_eq!(found("spec.labels[a.b/c]").as_deref(), Some("labels[\"a.b/c\"]"));
        for unknown in ["spec.taintsy", "metadata.name", "spec.taints[2", ""] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn every_cause_is_told_where_it_is() {
        let status = serde_json::json!({
            "status": "Failure", "code": 422, "reason": "Invalid", "message": "all of it",
            "details": {"causes": [
                {"reason": "FieldValueInvalid", "message": "no", "field": "spec.cloud.provider"},
                {"reason": "FieldValueInvalid", "message": "nor this", "field": "spec.taints[0].effect"},
            ]},
        });
        let status: Status = serde_json::from_value(status).unwrap();
        let told = refused("to make it", &kube::Error::Api(Box::new(status.clone())), FIELDS);
        let told: Vec<_> = told
            .0
            .iter()
            .map(|one| (one.path.to_string(), one.detail.as_str()))
            .collect();
        let wanted = [
            ("cloud".to_owned(), "spec.cloud.provider: no"),
            ("taints[0].effect".to_owned(), "spec.taints[0].effect: nor this"),
        ];
        assert_eq!(told, wanted);
        let told = refused("to make it", &kube::Error::Api(Box::new(status)), &[]);
        assert_eq!(told.0.len(), 1);
        assert_eq!(told.0[0].detail, "all of it");
    }
}
