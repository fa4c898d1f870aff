//! The one watch of the whole prefix, for as long as the store lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_client::{Client, WatchResponse, WatchStream};
use minato_meta::Revision;

use super::Inner;
use super::fault::{self, Fault};
use super::keys::{Keys, revision_of_event};
use super::watch::open;
use crate::store::{Event, StoreError};

/// Wait before the first new attempt to follow, and the longest one.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Writes the mark: an event below the prefix at a revision that is known.
pub(super) async fn mark(client: &Client, keys: &Keys) -> Result<Revision, StoreError> {
    let put = client.kv_client().put(keys.mark(), Vec::new(), None).await;
    let put = put.map_err(|error| Fault::of(error).reading())?;
    Ok(fault::revision(put.header()))
}

/// Why following has ended.
enum End {
    /// The connection, or etcd, is gone; from where it ended it can go on.
    Lost(StoreError),
    /// Changes were compacted before they were seen.
    Missed,
}

/// Follows until it is cancelled, over every loss of the connection.
pub(super) async fn run(inner: Arc<Inner>, stream: WatchStream) {
    let marks_progress = marks_progress(&inner.client).await;
    let mut pause = BACK_OFF.0;
    let mut stream = Some(stream);
    loop {
        let before = inner.hub.published();
        let opened = match stream.take() {
            Some(stream) => Ok(stream),
            None => open(&inner, before).await,
        };
        let end = match opened {
            Ok(stream) => follow(&inner, stream, marks_progress).await,
            Err(error) => End::Lost(error),
        };
        match end {
            End::Lost(error) => tracing::warn!(%error, "the watch of etcd ended and is begun again"),
            End::Missed => match mark(&inner.client, &inner.keys).await {
                Ok(revision) => {
                    tracing::warn!("etcd compacted what was not followed yet: all watches begin again");
                    inner.last_event.store(revision.0, Ordering::Release);
                    inner.hub.restart(revision);
                }
                Err(error) => tracing::warn!(%error, "etcd cannot be followed"),
            },
        }
        if inner.hub.published() > before {
            pause = BACK_OFF.0;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

/// Whether a mark of progress that was asked for is one: before 3.4.25 and 3.5.8 it may overtake events
/// (<https://github.com/etcd-io/etcd/issues/15220>).
async fn marks_progress(client: &Client) -> bool {
    let status = client.maintenance_client().status().await;
    status.is_ok_and(|status| is_sound(status.version()))
}

fn is_sound(version: &str) -> bool {
    let mut numbers = version
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 25,
        (3, 5, patch) => patch >= 8,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

async fn follow(inner: &Inner, mut stream: WatchStream, marks_progress: bool) -> End {
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            () = inner.nudge.notified() => match nudge(inner, &mut stream, marks_progress).await {
                Ok(()) => continue,
                Err(error) => return End::Lost(error),
            },
        };
        match message {
            Ok(Some(response)) if response.canceled() => {
                return match response.compact_revision() {
                    0 => End::Lost(StoreError::Unavailable(response.cancel_reason().to_owned())),
                    _ => End::Missed,
                };
            }
            Ok(Some(response)) => take(inner, &response),
            Ok(None) => return End::Lost(StoreError::Unavailable("etcd closed the watch".to_owned())),
            Err(error) => return End::Lost(Fault::of(error).reading()),
        }
    }
}

/// Makes the watch tell how far it is.
async fn nudge(inner: &Inner, stream: &mut WatchStream, marks_progress: bool) -> Result<(), StoreError> {
    if marks_progress {
        return stream
            .request_progress()
            .await
            .map_err(|error| Fault::of(error).reading());
    }
    mark(&inner.client, &inner.keys).await.map(drop)
}

fn take(inner: &Inner, response: &WatchResponse) {
    let published = inner.hub.published();
    match response.events().last().and_then(revision_of_event) {
        Some(revision) if revision > published => {
            let events: Vec<Event> = response
                .events()
                .iter()
                .filter_map(|event| inner.keys.event(event))
                .collect();
            let fresh: Vec<Event> = events
                .into_iter()
                .filter(|event| event.kv.mod_revision > published)
                .collect();
            // Before the watches are told: one that begins in between reads it from etcd.
            inner.last_event.store(revision.0, Ordering::Release);
            inner.hub.publish(&fresh, revision);
        }
        Some(_) => {}
        // Without events and not the answer to our own request, it is a mark of progress.
        None if !response.created() => {
            let revision = fault::revision(response.header());
            if revision > published {
                inner.hub.publish(&[], revision);
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_trusted_from_the_versions_that_mend_it() {
        for (version, sound) in [
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.5.30", true),
            ("3.6.0-rc.1", true),
            ("4.0.0", true),
            ("3.3.99", false),
            ("", false),
        ] {
            assert_eq!(is_sound(version), sound, "{version}");
        }
    }
}
