//! WATCH of a collection, from the watch cache.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>. A watch has no
//! task and no queue: it is the body of its response, which reads the cache's history when the connection has room.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use minato_meta::{ApiError, Revision};
use minato_storage::StoreError;
use minato_storage::cache::{CacheEvent, ChangeKind, Entry, Lost, ReadAt, Resource, Snapshot, Watcher};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Target;
use super::list::{prefix, read_error, selected, too_old};
use super::list_options;
use super::selection::Selection;
use super::view::View;
use crate::negotiate::Ask;
use crate::request::ApiRequest;
use crate::response::{self, BoxError, Response};
use crate::server::ApiServer;

const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Events that are taken from the history at once.
const STRIDE: usize = 64;
/// What is at hand is sent together, up to about this many bytes.
const CHUNK: usize = 32 * 1024;

/// What the client asked for.
struct Options {
    bookmarks: bool,
    initial_events: Option<bool>,
    at: ReadAt,
    deadline: Instant,
}

/// Watches a collection.
///
/// # Errors
/// 400 and 422 for bad parameters, 504 for a revision that is not reached, the store's. A revision that is forgotten is
/// told by an event.
pub(crate) async fn watch(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let view = View::new(server, &request, &target.resource, Ask::Watch)?;
    let selection = Selection::from_query(&request.query, &target.resource)?;
    let options = options(server, &request)?;
    let resource = server.cache.resource(&target.resource.storage);
    let media_type = view.stream_type();
    let filter = Filter {
        prefix: prefix(&target),
        selection,
        target,
    };
    let body = match begin(&resource, &options).await {
        Ok(start) => {
            let stop = Box::pin(server.stopped().clone().cancelled_owned());
            let stream = Stream::new(start, filter, view, &options, stop);
            let frames = futures::stream::unfold(stream, |mut stream| async {
                let bytes = stream.next().await?;
                Some((Ok::<_, BoxError>(Frame::data(bytes)), stream))
            });
            StreamBody::new(frames.boxed()).boxed_unsync()
        }
        Err(Refused::Forgotten(revision)) => response::full_body(view.error_frame(&too_old(revision))),
        Err(Refused::Failed(error)) => return Err(error),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    Ok(response)
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
    list_options::check_watch(query, initial_events)?;
    if initial_events == Some(true) && !bookmarks {
        return Err(bad("sendInitialEvents needs allowWatchBookmarks"));
    }
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
        at: list_options::at_revision(query)?,
        deadline: Instant::now() + life,
    })
}

/// Where a watch begins.
struct Start {
    watcher: Watcher,
    /// The state that is sent first.
    initial: Option<Snapshot>,
}

/// Why a watch does not begin.
enum Refused {
    Forgotten(Revision),
    Failed(ApiError),
}

async fn begin(resource: &Arc<Resource>, options: &Options) -> Result<Start, Refused> {
    let wants_initial = match (options.initial_events, options.at) {
        (Some(wants), _) => wants,
        // As it was before clients could say: without a revision, the state comes first.
        (None, at) => matches!(at, ReadAt::Newest | ReadAt::Any),
    };
    let since = match options.at {
        ReadAt::NotOlderThan(revision) if !wants_initial => Some(revision),
        _ => None,
    };
    let refused = |error| match (error, options.at) {
        (StoreError::Compacted { .. }, ReadAt::NotOlderThan(revision)) => Refused::Forgotten(revision),
        (error, at) => Refused::Failed(read_error(error, at)),
    };
    if let Some(revision) = since {
        let watcher = resource.watch(revision).await.map_err(refused)?;
        return Ok(Start { watcher, initial: None });
    }
    let (snapshot, watcher) = resource.snapshot_and_watch(options.at).await.map_err(refused)?;
    Ok(Start {
        watcher,
        initial: wants_initial.then_some(snapshot),
    })
}

/// Which objects a watch is about.
struct Filter {
    target: Target,
    /// Of keys below the resource: the namespace.
    prefix: String,
    selection: Selection,
}

impl Filter {
    fn selects(&self, entry: &Entry) -> bool {
        let name = &self.target.name;
        entry.key().starts_with(&self.prefix)
            && (name.is_empty() || entry.name() == name)
            && (self.selection.is_everything() || self.selection.selects(entry, &self.target.resource))
    }
}

/// A running watch.
struct Stream {
    filter: Filter,
    view: View,
    watcher: Watcher,
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// The bookmark that ends the initial events is still to be sent.
    initial_end: Option<Revision>,
    pending: VecDeque<Arc<CacheEvent>>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    over: bool,
}

impl Stream {
    fn new(
        start: Start,
        filter: Filter,
        view: View,
        options: &Options,
        stop: Pin<Box<WaitForCancellationFutureOwned>>,
    ) -> Self {
        let mut entries = Vec::new();
        if let Some(snapshot) = &start.initial {
            let found = selected(snapshot, &filter.target, &filter.prefix, "", &filter.selection);
            entries.extend(found.filter(|entry| filter.selects(entry)).cloned());
        }
        let streaming = options.initial_events == Some(true);
        let next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        Self {
            initial: entries.into_iter(),
            initial_end: start.initial.filter(|_| streaming).map(|snapshot| snapshot.revision()),
            filter,
            view,
            watcher: start.watcher,
            pending: VecDeque::new(),
            bookmarks: options.bookmarks,
            next_bookmark,
            deadline: options.deadline,
            timer: Box::pin(tokio::time::sleep_until(next_bookmark.min(options.deadline))),
            stop,
            over: false,
        }
    }

    /// The next bytes for the client; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        match self.step().await {
            Ok(bytes) => bytes,
            Err(error) => {
                self.over = true;
                Some(self.view.error_frame(&error))
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(bytes) = self.initial_events()? {
                return Ok(Some(bytes));
            }
            if self.pending.is_empty() {
                let events = self.watcher.ready(STRIDE);
                self.pending.extend(events.map_err(|Lost| too_slow())?);
            }
            if let Some(bytes) = self.live_events()? {
                return Ok(Some(bytes));
            }
            if !self.pending.is_empty() {
                continue;
            }
            if self.watcher.is_over() {
                return Ok(None);
            }
            tokio::select! {
                () = self.watcher.changed() => {}
                () = &mut self.stop => return Ok(None),
                () = &mut self.timer => if let Some(bytes) = self.on_time().await? {
                    return Ok(Some(bytes));
                } else if self.over {
                    return Ok(None);
                },
            }
        }
    }

    /// The timer has run out: a bookmark is due, or the end, which a bookmark goes before.
    async fn on_time(&mut self) -> Result<Option<Bytes>, ApiError> {
        self.over = Instant::now() >= self.deadline;
        self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        self.timer.as_mut().reset(self.next_bookmark.min(self.deadline));
        if !self.bookmarks {
            return Ok(None);
        }
        match self.watcher.progress().await {
            Some(revision) => self.view.bookmark(revision, false).map(Some),
            None => Ok(None),
        }
    }

    fn initial_events(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.initial.as_slice().is_empty() && self.initial_end.is_none() {
            return Ok(None);
        }
        let mut chunk = Chunk::default();
        while !chunk.is_full() {
            match self.initial.next() {
                Some(entry) => chunk.push(self.view.entry_frame("ADDED", &entry)?),
                None => {
                    if let Some(revision) = self.initial_end.take() {
                        chunk.push(self.view.bookmark(revision, true)?);
                    }
                    break;
                }
            }
        }
        Ok(chunk.finish())
    }

    fn live_events(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full()
            && let Some(event) = self.pending.pop_front()
        {
            if let Some(frame) = self.event(&event)? {
                chunk.push(frame);
            }
        }
        Ok(chunk.finish())
    }

    /// An object that leaves the selection is deleted in the eyes of this watcher, and one that enters it is added. The
    /// frame is made once for all watchers who see the same.
    fn event(&self, event: &CacheEvent) -> Result<Option<Bytes>, ApiError> {
        let now = event.kind != ChangeKind::Deleted && self.filter.selects(&event.object);
        let before = event.previous.as_ref().is_some_and(|p| self.filter.selects(p));
        let kind = match (before, now) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return Ok(None),
        };
        let make = || match &event.previous {
            Some(previous) if kind == "DELETED" && event.kind != ChangeKind::Deleted => {
                self.view.frame(kind, &previous.json_at(event.revision))
            }
            _ => self.view.entry_frame(kind, &event.object),
        };
        let frame = if self.view.tells_time() {
            make()
        } else {
            event.frame(self.view.frame_number(kind), make)
        };
        frame.map(Some)
    }
}

/// 410 for a watch that does not keep up.
fn too_slow() -> ApiError {
    ApiError::expired("the watch fell too far behind and was ended: list anew")
}

/// Frames that are sent together; a lone one is not copied.
#[derive(Default)]
struct Chunk {
    first: Option<Bytes>,
    more: BytesMut,
}

impl Chunk {
    fn push(&mut self, frame: Bytes) {
        match (&self.first, self.more.is_empty()) {
            (None, true) => self.first = Some(frame),
            _ => {
                if let Some(first) = self.first.take() {
                    self.more.reserve(CHUNK);
                    self.more.extend_from_slice(&first);
                }
                self.more.extend_from_slice(&frame);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.more.len() + self.first.as_ref().map_or(0, Bytes::len) >= CHUNK
    }

    fn finish(self) -> Option<Bytes> {
        match self.first {
            Some(first) => Some(first),
            None => (!self.more.is_empty()).then(|| self.more.freeze()),
        }
    }
}
