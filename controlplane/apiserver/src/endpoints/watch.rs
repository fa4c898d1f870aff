//! WATCH of a collection, over the store's own watch.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>. Each watcher has
//! a store watch of its own; a cache that shares one per kind is to come between.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use minato_meta::{ApiError, Revision};
use minato_rules::ResourceInfo;
use minato_storage::{Event, EventKind, KeyValue, ListRequest, StoreError, WatchItem, WatchStream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Target;
use super::selection::Selection;
use super::transaction::store_error;
use crate::request::ApiRequest;
use crate::response::{Body, BoxError, Response};
use crate::server::ApiServer;

/// Annotation of the bookmark that ends the initial events of a streaming list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Frames that may wait for a slow client; then reading from the store pauses.
const QUEUE: usize = 64;

/// What the client asked for.
struct Options {
    bookmarks: bool,
    initial_events: Option<bool>,
    since: Option<Revision>,
    deadline: Instant,
}

/// Watches a collection.
///
/// # Errors
/// 400 for bad parameters, 410 for a compacted revision, the store's.
pub(crate) async fn watch(
    server: &Arc<ApiServer>,
    request: ApiRequest,
    mut target: Target,
) -> Result<Response, ApiError> {
    let selection = Selection::from_query(&request.query, &target.resource)?;
    let options = options(server, &request)?;
    let only = std::mem::take(&mut target.name);
    let prefix = super::list::prefix(&target);
    let initial = match (options.since, options.initial_events) {
        (Some(_), None | Some(false)) => None,
        _ => {
            let list = ListRequest {
                prefix: prefix.clone(),
                ..ListRequest::default()
            };
            Some(server.store.list(list).await.map_err(store_error)?)
        }
    };
    let after = match (&initial, options.since) {
        (Some(page), _) => page.revision,
        (None, since) => since.unwrap_or_default(),
    };
    let wants_initial = options.initial_events != Some(false);
    let events = server.store.watch(&prefix, after).await.map_err(store_error)?;
    let (send, receive) = mpsc::channel(QUEUE);
    let watcher = Watcher {
        resource: target.resource.clone(),
        selection,
        only,
        send,
        bookmarks: options.bookmarks,
    };
    let stopped = server.stopped().clone();
    tokio::spawn(async move {
        let items = initial
            .filter(|_| wants_initial)
            .map(|page| page.items)
            .unwrap_or_default();
        let streaming = options.initial_events == Some(true);
        let run = watcher.run(items, streaming, after, events);
        // A watch ends by its deadline, with the server, or when the client has gone.
        tokio::select! {
            () = tokio::time::sleep_until(options.deadline) => {}
            () = stopped.cancelled() => {}
            _ = run => {}
        }
    });
    let mut response = Response::new(stream_body(receive));
    *response.status_mut() = StatusCode::OK;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn stream_body(mut receive: mpsc::Receiver<Bytes>) -> Body {
    let frames = futures::stream::poll_fn(move |context| receive.poll_recv(context));
    let frames = frames.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes)));
    StreamBody::new(frames).boxed_unsync()
}

fn options(server: &ApiServer, request: &ApiRequest) -> Result<Options, ApiError> {
    let query = &request.query;
    let bad = |what: &str| ApiError::bad_request(format!("invalid watch options: {what}"));
    let initial_events = match query.get_non_empty("sendInitialEvents") {
        None => None,
        Some(value) => Some(
            value
                .parse::<bool>()
                .map_err(|_| bad("sendInitialEvents must be true or false"))?,
        ),
    };
    let bookmarks = query.is_true("allowWatchBookmarks");
    super::list_options::check_watch(query, initial_events)?;
    if initial_events == Some(true) && !bookmarks {
        return Err(bad("sendInitialEvents needs allowWatchBookmarks"));
    }
    let since = match query.get_non_empty("resourceVersion") {
        None | Some("0") => None,
        Some(text) => Some(super::list_options::parse_revision(text)?),
    };
    let seconds = match query.get_non_empty("timeoutSeconds") {
        None => None,
        Some(text) => Some(
            text.parse::<u64>()
                .map_err(|_| bad("timeoutSeconds must be a number"))?,
        ),
    };
    let least = server.config.min_watch_timeout;
    let life = match seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(86_400)),
        // Spread, so that the watches of many clients do not all end and start over at once.
        _ => least.mul_f64(1.0 + rand::random::<f64>()),
    };
    Ok(Options {
        bookmarks,
        initial_events,
        since,
        deadline: Instant::now() + life,
    })
}

/// The client is gone.
struct Gone;

struct Watcher {
    resource: Arc<ResourceInfo>,
    selection: Selection,
    /// Name of the one object watched; empty for the collection.
    only: String,
    send: mpsc::Sender<Bytes>,
    bookmarks: bool,
}

impl Watcher {
    async fn run(
        self,
        items: Vec<KeyValue>,
        streaming: bool,
        after: Revision,
        mut events: WatchStream,
    ) -> Result<(), Gone> {
        for kv in &items {
            if let Some(object) = self.selected(kv, kv.mod_revision) {
                self.frame("ADDED", &object).await?;
            }
        }
        drop(items);
        if streaming {
            self.bookmark(after, true).await?;
        }
        let mut seen = after;
        let mut ticks = tokio::time::interval_at(Instant::now() + BOOKMARK_INTERVAL, BOOKMARK_INTERVAL);
        loop {
            tokio::select! {
                () = self.send.closed() => return Err(Gone),
                _ = ticks.tick(), if self.bookmarks => self.bookmark(seen, false).await?,
                item = next(&mut events) => match item {
                    Some(Ok(WatchItem::Progress(revision))) => seen = seen.max(revision),
                    Some(Ok(WatchItem::Events(batch))) => {
                        for event in &batch {
                            seen = event.kv.mod_revision;
                            self.event(event).await?;
                        }
                    }
                    Some(Err(error)) => return self.failed(error).await,
                    None => return Ok(()),
                },
            }
        }
    }

    /// The object as the client sees it, if it is one that it asked for.
    fn selected(&self, kv: &KeyValue, revision: Revision) -> Option<Value> {
        let mut object = minato_storage::object::decode(&kv.value, revision).ok()?;
        let named = self.only.is_empty() || kv.key.rsplit('/').next() == Some(self.only.as_str());
        if !named || !self.selection.matches(&object, &self.resource) {
            return None;
        }
        super::version::from_storage(&self.resource, &mut object);
        Some(object)
    }

    /// An object that leaves the selection is deleted in the eyes of this watcher, and one that enters it is added.
    async fn event(&self, event: &Event) -> Result<(), Gone> {
        let revision = event.kv.mod_revision;
        let now = (event.kind != EventKind::Deleted)
            .then(|| self.selected(&event.kv, revision))
            .flatten();
        let before = event.previous.as_ref().and_then(|kv| self.selected(kv, revision));
        match (before, now) {
            (None, Some(object)) => self.frame("ADDED", &object).await,
            (Some(_), Some(object)) => self.frame("MODIFIED", &object).await,
            (Some(object), None) => self.frame("DELETED", &object).await,
            (None, None) => Ok(()),
        }
    }

    async fn bookmark(&self, revision: Revision, ends_initial: bool) -> Result<(), Gone> {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = json!({
            "kind": self.resource.gvk.kind,
            "apiVersion": self.resource.gvk.group_version().to_string(),
            "metadata": metadata,
        });
        self.frame("BOOKMARK", &object).await
    }

    async fn failed(&self, error: StoreError) -> Result<(), Gone> {
        let status = serde_json::to_value(store_error(error).to_status()).unwrap_or_default();
        self.frame("ERROR", &status).await
    }

    async fn frame(&self, kind: &str, object: &Value) -> Result<(), Gone> {
        let mut bytes = serde_json::to_vec(&json!({"type": kind, "object": object})).unwrap_or_default();
        bytes.push(b'\n');
        self.send.send(bytes.into()).await.map_err(|_| Gone)
    }
}

async fn next(
    events: &mut (impl Stream<Item = Result<WatchItem, StoreError>> + Unpin),
) -> Option<Result<WatchItem, StoreError>> {
    events.next().await
}
