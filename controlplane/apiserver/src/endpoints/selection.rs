//! Label and field selectors of a request, checked against what the kind lets one select by.

use std::hash::{DefaultHasher, Hash, Hasher};

use minato_meta::{ApiError, FieldSelector, LabelSelector};
use minato_rules::ResourceInfo;
use minato_storage::cache::Entry;
use serde_json::Value;

use crate::request::Query;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Which objects of a collection are meant.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// What the kind lets one select by; empty unless fields are asked for that are not in the key.
    served: Vec<String>,
    /// Names the kind's field values among those that entries keep.
    view: u64,
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
        let mut asked = fields.terms().iter().map(|term| term.field.as_str());
        let served = if asked.any(|label| !matches!(label, NAME | NAMESPACE)) {
            resource.strategy.selectable_fields()
        } else {
            Vec::new()
        };
        for term in fields.terms() {
            let label = term.field.as_str();
            if !matches!(label, NAME | NAMESPACE) && !served.iter().any(|known| known == label) {
                return Err(ApiError::bad_request(format!("field label not supported: {label}")));
            }
        }
        let mut hasher = DefaultHasher::new();
        (&resource.gvr, &served).hash(&mut hasher);
        Ok(Self {
            labels,
            fields,
            served,
            view: hasher.finish(),
        })
    }

    /// Whether every object is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The one name that objects must have, when the selectors say so.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required_value(NAME)
    }

    /// Whether an object is meant.
    pub(crate) fn selects(&self, entry: &Entry, resource: &ResourceInfo) -> bool {
        if !self.labels.is_everything() && !self.labels.matches(|key| entry.label(key)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let served = &self.served;
        let compute = || -> Box<[String]> {
            let object: Value = serde_json::from_slice(entry.json()).unwrap_or_default();
            served
                .iter()
                .map(|label| resource.strategy.field(&object, label))
                .collect()
        };
        let values = (!served.is_empty()).then(|| entry.fields(self.view, compute));
        self.fields.matches(|label| match label {
            NAME => entry.name().to_owned(),
            NAMESPACE => entry.namespace().to_owned(),
            label => {
                let at = served.iter().position(|l| l == label);
                let value = at.and_then(|at| values.as_ref()?.get(at));
                value.cloned().unwrap_or_default()
            }
        })
    }
}
