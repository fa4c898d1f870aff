//! LIST of a collection, from the watch cache.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use minato_meta::{ApiError, ContinueToken, Revision};
use minato_storage::StoreError;
use minato_storage::cache::{Entry, ReadAt, Resource, Snapshot};

use super::Target;
use super::list_options::ListOptions;
use super::selection::Selection;
use super::transaction::store_error;
use super::view::{ListHead, View};
use crate::negotiate::{self, Ask};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Bodies larger than this are compressed for clients that take that; upstream's figure.
const COMPRESS: u64 = 128 * 1024;

/// Lists objects.
///
/// # Errors
/// 400 and 422 for bad selectors and options, 410 for a revision that is forgotten, 504 for one that is not reached.
pub(crate) async fn list(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let view = View::new(server, &request, &target.resource, Ask::List)?;
    let selection = Selection::from_query(&request.query, &target.resource)?;
    let options = ListOptions::from_query(&request.query)?;
    let resource = server.cache.resource(&target.resource.storage);
    let snapshot = snapshot(&resource, &options).await?;
    let page = page(&snapshot, &target, &selection, &options);
    if page.next.is_some() {
        resource.keep(&snapshot);
    }
    let head = ListHead {
        revision: snapshot.revision(),
        token: page.next.map(|token| token.encode()),
        remaining: page.remaining,
    };
    let mut body = view.list(&head, &page.entries)?;
    let compress = body.length() > COMPRESS && negotiate::accepts_gzip(&request);
    if compress {
        body = body.compressed();
    }
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, view.media_type());
    if compress {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    Ok(response)
}

/// What the keys of a collection begin with, below their resource.
pub(crate) fn prefix(target: &Target) -> String {
    let namespace = target.namespace.as_ref();
    namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default()
}

async fn snapshot(resource: &Arc<Resource>, options: &ListOptions) -> Result<Snapshot, ApiError> {
    resource.snapshot(options.at).await.map_err(|error| match error {
        StoreError::Compacted { .. } => expired(options),
        error => read_error(error, options.at),
    })
}

/// A failed read as the client gets it.
pub(crate) fn read_error(error: StoreError, at: ReadAt) -> ApiError {
    match (error, at) {
        (StoreError::Future { current }, ReadAt::NotOlderThan(asked) | ReadAt::Exact(asked)) => {
            ApiError::too_large_revision(asked, current)
        }
        (error, _) => store_error(error),
    }
}

struct Page {
    entries: Vec<Arc<Entry>>,
    next: Option<ContinueToken>,
    remaining: Option<u64>,
}

/// The objects of a collection that a selection takes, in order.
pub(crate) fn selected<'s>(
    snapshot: &'s Snapshot,
    target: &'s Target,
    prefix: &'s str,
    start: &str,
    selection: &'s Selection,
) -> Box<dyn Iterator<Item = &'s Arc<Entry>> + 's> {
    // One object by name: no need to look at the others.
    if let Some(name) = selection.name()
        && target.namespace.is_some() == target.resource.namespaced
    {
        let found = snapshot.get(&format!("{prefix}{name}"));
        let start = format!("{prefix}{start}");
        let found = found.filter(move |entry| **entry.key() >= *start);
        return Box::new(
            found
                .into_iter()
                .filter(|entry| selection.selects(entry, &target.resource)),
        );
    }
    let range = snapshot.range(prefix, start);
    if selection.is_everything() {
        return Box::new(range);
    }
    Box::new(range.filter(|entry| selection.selects(entry, &target.resource)))
}

fn page(snapshot: &Snapshot, target: &Target, selection: &Selection, options: &ListOptions) -> Page {
    let prefix = prefix(target);
    let start = options.start.as_deref().unwrap_or_default();
    let mut found = selected(snapshot, target, &prefix, start, selection);
    let most = if options.limit == 0 { usize::MAX } else { options.limit };
    let entries: Vec<Arc<Entry>> = found.by_ref().take(most).cloned().collect();
    let mut rest = found.peekable();
    if options.limit == 0 || rest.peek().is_none() {
        return Page {
            entries,
            next: None,
            remaining: None,
        };
    }
    let last = entries.last().map(|entry| &entry.key()[prefix.len()..]);
    let next = last.map(|last| ContinueToken {
        revision: Some(snapshot.revision()),
        start: format!("{last}\0"),
    });
    Page {
        next,
        entries,
        // Clients are told what they can rely on: not what a selection would leave.
        remaining: selection.is_everything().then(|| rest.count() as u64),
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

/// 410 for a watch from a revision that is forgotten.
pub(crate) fn too_old(revision: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {revision}"))
}
