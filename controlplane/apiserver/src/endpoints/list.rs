//! LIST of a collection.

use std::sync::Arc;

use http::StatusCode;
use minato_meta::ApiError;
use minato_storage::ListRequest;
use serde_json::json;

use super::Target;
use super::selection::Selection;
use super::transaction::store_error;
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Lists objects, straight from the store.
///
/// # Errors
/// The store's; 400 for bad selectors.
pub(crate) async fn list(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let selector = Selection::from_query(&request.query, &target.resource)?;
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
