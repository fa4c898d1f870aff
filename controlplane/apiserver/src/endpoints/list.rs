//! LIST of a collection.

use std::sync::Arc;

use http::StatusCode;
use minato_meta::ApiError;
use minato_rules::ResourceInfo;
use minato_storage::ListRequest;
use serde_json::{Value, json};

use super::Target;
use super::transaction::store_error;
use crate::request::{ApiRequest, Query};
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Lists objects, straight from the store.
///
/// # Errors
/// The store's; 400 for bad selectors.
pub(crate) async fn list(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let selector = Selector::from_query(&request.query, &target.resource)?;
    let list = ListRequest {
        prefix: prefix(&target),
        ..ListRequest::default()
    };
    let page = server.store.list(list).await.map_err(store_error)?;
    let mut items = Vec::with_capacity(page.items.len());
    for kv in &page.items {
        let mut object = minato_storage::object::decode(&kv.value, kv.mod_revision).map_err(ApiError::internal)?;
        if selector.matches(&object, &target.resource) {
            super::version::from_storage(&target.resource, &mut object);
            items.push(object);
        }
    }
    let list = json!({
        "kind": target.resource.list_kind,
        "apiVersion": target.resource.gvk.group_version().to_string(),
        "metadata": {"resourceVersion": page.revision.to_string()},
        "items": items,
    });
    response::json(StatusCode::OK, &list)
}

/// Prefix of a collection's keys.
pub(crate) fn prefix(target: &Target) -> String {
    match &target.namespace {
        Some(namespace) => minato_storage::key::namespace_prefix(&target.resource.storage, namespace),
        None => minato_storage::key::resource_prefix(&target.resource.storage),
    }
}

/// Label and field selectors of a request.
pub(crate) struct Selector {
    labels: Vec<(String, String)>,
    fields: Vec<(String, String)>,
}

impl Selector {
    /// Reads them; equality only, until the selector library lands.
    pub(crate) fn from_query(query: &Query, _resource: &ResourceInfo) -> Result<Self, ApiError> {
        let pairs = |text: &str| -> Result<Vec<(String, String)>, ApiError> {
            let terms = text.split(',').filter(|t| !t.is_empty());
            let pair = |term: &str| {
                let (key, value) = term
                    .split_once("==")
                    .or_else(|| term.split_once('='))
                    .ok_or_else(|| ApiError::bad_request(format!("unable to parse requirement: {term}")))?;
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            };
            terms.map(pair).collect()
        };
        Ok(Self {
            labels: pairs(query.get("labelSelector").unwrap_or_default())?,
            fields: pairs(query.get("fieldSelector").unwrap_or_default())?,
        })
    }

    /// Whether an object is taken.
    pub(crate) fn matches(&self, object: &Value, resource: &ResourceInfo) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.labels
            .iter()
            .all(|(key, value)| labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value))
            && self.fields.iter().all(|(label, value)| match label.as_str() {
                "metadata.name" => super::metadata::text(object, "name") == value,
                "metadata.namespace" => super::metadata::text(object, "namespace") == value,
                label => resource.strategy.field(object, label) == *value,
            })
    }
}
