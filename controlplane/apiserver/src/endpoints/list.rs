//! LIST of a collection.

use std::sync::Arc;

use http::StatusCode;
use minato_meta::{ApiError, ContinueToken, Revision};
use minato_storage::{ListPage, ListRequest, StoreError};
use serde_json::{Value, json};

use super::Target;
use super::list_options::{At, ListOptions};
use super::selection::Selection;
use super::transaction::store_error;
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Objects that a page of a selection looks at in one go.
const STRIDE: usize = 500;

/// Lists objects.
///
/// # Errors
/// 400 and 422 for bad selectors and options, 410 for a revision that is forgotten, 504 for one that is not reached.
pub(crate) async fn list(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let selection = Selection::from_query(&request.query, &target.resource)?;
    let options = ListOptions::from_query(&request.query)?;
    let page = Lister {
        server,
        target: &target,
        prefix: prefix(&target),
    }
    .page(&selection, &options)
    .await?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = page.next {
        metadata["continue"] = Value::from(token.encode());
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = Value::from(remaining);
    }
    let list = json!({
        "kind": target.resource.list_kind,
        "apiVersion": target.resource.gvk.group_version().to_string(),
        "metadata": metadata,
        "items": page.items,
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

struct Page {
    items: Vec<Value>,
    revision: Revision,
    next: Option<ContinueToken>,
    remaining: Option<u64>,
}

struct Lister<'a> {
    server: &'a ApiServer,
    target: &'a Target,
    prefix: String,
}

impl Lister<'_> {
    async fn page(&self, selection: &Selection, options: &ListOptions) -> Result<Page, ApiError> {
        let mut revision = match options.at {
            At::Exact(revision) => Some(revision),
            _ => None,
        };
        // A token names the first key that counts, which is the one after a key that was seen.
        let start = options.start.as_deref().map(|start| start.trim_end_matches('\0'));
        let mut after = start.map(|start| format!("{}{start}", self.prefix));
        let mut items = Vec::new();
        loop {
            let limit = match (options.limit, selection.is_everything()) {
                (limit, true) => limit,
                (0, false) => 0,
                (limit, false) => limit.max(STRIDE),
            };
            let page = self.fetch(after.take(), limit, revision, options).await?;
            if let At::NotOlderThan(asked) = options.at
                && asked > page.revision
            {
                return Err(ApiError::too_large_revision(asked, page.revision));
            }
            revision = Some(page.revision);
            for (at, kv) in page.items.iter().enumerate() {
                let mut object = minato_storage::object::decode(&kv.value, kv.mod_revision)
                    .map_err(|e| store_error(StoreError::Corrupt(e.to_string())))?;
                if !selection.matches(&object, &self.target.resource) {
                    continue;
                }
                super::version::from_storage(&self.target.resource, &mut object);
                items.push(object);
                let more = page.more || at + 1 < page.items.len();
                if options.limit > 0 && items.len() == options.limit && more {
                    return Ok(Page {
                        items,
                        revision: page.revision,
                        next: Some(ContinueToken {
                            revision: Some(page.revision),
                            start: format!("{}\0", &kv.key[self.prefix.len()..]),
                        }),
                        remaining: selection.is_everything().then_some(page.remaining),
                    });
                }
            }
            if !page.more {
                return Ok(Page {
                    items,
                    revision: page.revision,
                    next: None,
                    remaining: None,
                });
            }
            after = page.items.last().map(|kv| kv.key.clone());
        }
    }

    async fn fetch(
        &self,
        start_after: Option<String>,
        limit: usize,
        revision: Option<Revision>,
        options: &ListOptions,
    ) -> Result<ListPage, ApiError> {
        let request = ListRequest {
            prefix: self.prefix.clone(),
            start_after,
            limit,
            revision,
        };
        self.server.store.list(request).await.map_err(|error| match error {
            StoreError::Compacted { .. } => expired(options),
            StoreError::Future { current } => ApiError::too_large_revision(revision.unwrap_or_default(), current),
            error => store_error(error),
        })
    }
}

/// 410; a client that was in the midst of a list gets a token to go on with, at the newest revision.
fn expired(options: &ListOptions) -> ApiError {
    match &options.start {
        None => ApiError::expired("The resourceVersion for the provided list is too old."),
        Some(start) => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. Start a new list without \
             it, or use the token in this response for the rest of the list as it is now: objects that were created, \
             changed or deleted since the first page may then be missing, or be there twice.",
        )
        .with_continue(
            ContinueToken {
                revision: None,
                start: start.clone(),
            }
            .encode(),
        ),
    }
}
