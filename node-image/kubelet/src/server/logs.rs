//! `/containerLogs`: which container's log, and how much of it.

use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::routes::Query;
use super::{Body, Server, answer};
use crate::logs::{LogOptions, LogReader};
use crate::pods::{PodId, any_container};
use crate::view::{Ended, PodView, State};

/// Chunks waiting for a slow client.
const CHUNKS: usize = 8;

fn options(query: &Query, now: Timestamp) -> Result<LogOptions, String> {
    let number = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| format!("{name} is not a number: {text:?}")),
    };
    let whole = |name: &str, least: i64| match number(name)? {
        Some(value) if value < least => Err(format!("{name} must be at least {least}")),
        value => Ok(value.and_then(|value| u64::try_from(value).ok())),
    };
    let seconds = number("sinceSeconds")?.map(|seconds| now - SignedDuration::from_secs(seconds));
    let time = match query.get("sinceTime") {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|_| format!("sinceTime is not a time: {text:?}"))?,
        ),
    };
    if seconds.is_some() && time.is_some() {
        return Err("at most one of sinceTime and sinceSeconds may be given".to_owned());
    }
    Ok(LogOptions {
        follow: query.is_set("follow"),
        tail: whole("tailLines", 0)?,
        since: seconds.or(time),
        timestamps: query.is_set("timestamps"),
        limit: whole("limitBytes", 1)?,
        stream: query
            .get("stream")
            .filter(|stream| *stream != "All")
            .map(str::to_lowercase),
    })
}

impl Server {
    pub(super) async fn container_logs(&self, namespace: &str, name: &str, of: &str, query: &Query) -> Response<Body> {
        self.open_log(namespace, name, of, query)
            .await
            .unwrap_or_else(|refusal| refusal)
    }

    async fn open_log(
        &self,
        namespace: &str,
        name: &str,
        of: &str,
        query: &Query,
    ) -> Result<Response<Body>, Response<Body>> {
        let bad = |text: String| answer(StatusCode::BAD_REQUEST, text);
        let pod = self.find(namespace, name)?;
        if any_container(&pod, of).is_none() {
            return Err(answer(
                StatusCode::NOT_FOUND,
                format!("container \"{of}\" not found in pod \"{name}\""),
            ));
        }
        let options = options(query, Timestamp::now()).map_err(bad)?;
        let id = PodId::of(&pod);
        let view = PodView::read(&self.context.cri, &id.uid, &mut Ended::new()).await;
        let view = view.map_err(|error| answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let mut attempts = view.attempts(of).filter(|c| c.state != State::Created);
        let (newest, before) = (attempts.next(), attempts.next());
        let wanted = match query.is_set("previous") {
            true => before.ok_or_else(|| {
                bad(format!(
                    "previous terminated container \"{of}\" in pod \"{name}\" not found"
                ))
            })?,
            false => newest.ok_or_else(|| {
                let statuses = pod
                    .status
                    .iter()
                    .flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses).flatten());
                let waiting = statuses
                    .filter(|s| s.name == of)
                    .find_map(|s| s.state.as_ref()?.waiting.as_ref()?.reason.clone());
                let why = waiting.unwrap_or_else(|| "ContainerCreating".to_owned());
                bad(format!(
                    "container \"{of}\" in pod \"{name}\" is waiting to start: {why}"
                ))
            })?,
        };
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let reader = LogReader {
            path: wanted.log.clone(),
            options,
            container: wanted.id.clone(),
            cri: self.context.cri.clone(),
            news: self.context.news.subscribe(),
        };
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        self.context.tasks.spawn("log", async move {
            let read = reader.run(&sender);
            // The client hung up, or all was read.
            tokio::select! {
                result = read => if let Err(error) = result {
                    tracing::debug!(%error, "reading a log failed");
                },
                () = ended.cancelled() => {}
            }
        });
        let stream = futures::stream::unfold((chunks, guard), |(mut chunks, guard)| async move {
            let chunk: bytes::Bytes = chunks.recv().await?;
            Some((Ok::<_, std::io::Error>(Frame::data(chunk)), (chunks, guard)))
        });
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(stream)))));
        let kind = http::HeaderValue::from_static("text/plain");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

type Frames = std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<bytes::Bytes>, std::io::Error>> + Send + Sync>>;

/// Names the type of a boxed stream.
struct SyncStream(Frames);

impl futures::Stream for SyncStream {
    type Item = Result<Frame<bytes::Bytes>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}
