//! Label and field selectors of a request, checked against what the kind lets one select by.

use minato_meta::{ApiError, FieldSelector, LabelSelector};
use minato_rules::ResourceInfo;
use serde_json::Value;

use super::metadata;
use crate::request::Query;

/// Which objects of a collection are meant.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Reads them.
    ///
    /// # Errors
    /// 400 for bad syntax, and for field labels that the kind does not have.
    pub(crate) fn from_query(query: &Query, resource: &ResourceInfo) -> Result<Self, ApiError> {
        let bad = |what: &str, why: String| ApiError::bad_request(format!("unable to parse {what} selector: {why}"));
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|e| bad("label", e.to_string()))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|e| bad("field", e.to_string()))?;
        let served = resource.strategy.field_labels();
        for term in fields.terms() {
            let label = term.field.as_str();
            if !matches!(label, "metadata.name" | "metadata.namespace") && !served.contains(&label) {
                return Err(ApiError::bad_request(format!("field label not supported: {label}")));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether every object is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object is meant.
    pub(crate) fn matches(&self, object: &Value, resource: &ResourceInfo) -> bool {
        self.labels.matches_object(object)
            && self.fields.matches(|label| match label {
                "metadata.name" => metadata::text(object, "name").to_owned(),
                "metadata.namespace" => metadata::text(object, "namespace").to_owned(),
                label => resource.strategy.field(object, label),
            })
    }
}
