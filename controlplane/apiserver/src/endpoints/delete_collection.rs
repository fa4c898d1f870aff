//! DELETE of a collection: every object that the selectors take, each by the rules of a single delete.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use http::StatusCode;
use minato_meta::{ApiError, ErrorKind};
use minato_storage::cache::{Entry, ReadAt};
use serde_json::{Value, json};

use super::options::DeleteOptions;
use super::selection::Selection;
use super::transaction::{Outcome, store_error};
use super::{Target, delete, list};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Deletes that run at once.
const CONCURRENCY: usize = 16;

/// Deletes the objects of a collection.
///
/// # Errors
/// 400 for bad selectors; the first failure of a single delete, but for objects that are gone already.
pub(crate) async fn delete_collection(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = DeleteOptions::from_request(&mut request).await?;
    let selector = Selection::from_query(&request.query, &target.resource)?;
    let resource = server.cache.resource(&target.resource.storage);
    let snapshot = resource.snapshot(ReadAt::Newest).await.map_err(store_error)?;
    let revision = snapshot.revision();
    let prefix = list::prefix(&target);
    let mut deletes: Vec<BoxFuture<'_, Result<Option<Value>, ApiError>>> = Vec::new();
    for entry in list::selected(&snapshot, &target, &prefix, "", &selector) {
        deletes.push(delete_one(server, &target, &request, &options, entry.clone()).boxed());
    }
    let items: Vec<Option<Value>> = futures::stream::iter(deletes)
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let mut items: Vec<_> = items.into_iter().flatten().collect();
    for item in &mut items {
        super::version::from_storage(&target.resource, item);
    }
    let list = json!({
        "kind": target.resource.list_kind,
        "apiVersion": target.resource.gvk.group_version().to_string(),
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    });
    response::json(StatusCode::OK, &list)
}

/// Deletes one of them; `None` when somebody else was faster.
async fn delete_one(
    server: &Arc<ApiServer>,
    target: &Target,
    request: &ApiRequest,
    options: &DeleteOptions,
    entry: Arc<Entry>,
) -> Result<Option<Value>, ApiError> {
    let namespace = target.resource.namespaced.then(|| entry.namespace().to_owned());
    let one = Target {
        namespace,
        name: entry.name().to_owned(),
        ..target.clone()
    };
    match delete::delete_object(server, &one, &request.user, &request.warnings, options).await {
        Ok(Outcome::Deleted { object }) => Ok(Some(object)),
        Ok(Outcome::Written { stored, .. } | Outcome::Kept(stored)) => Ok(Some(stored.object)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
