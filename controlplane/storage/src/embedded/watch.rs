//! Watches: the past from the history, then what the hub hands out; a watch that falls behind reads the history again.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures::stream;
use minato_meta::Revision;
use redb::ReadableDatabase;

use super::Shared;
use super::fault::failed;
use super::tables::Snapshot;
use crate::hub::Subscription;
use crate::store::{Event, StoreError, WatchItem, WatchStream};

struct Watch {
    /// Weak, so that a watch neither keeps a closed store's file locked nor waits for it for ever.
    shared: Weak<Shared>,
    prefix: String,
    seen: Revision,
    subscription: Subscription,
    ready: VecDeque<WatchItem>,
    failed: bool,
}

pub(super) fn start(shared: &Arc<Shared>, prefix: String, after: Revision) -> Result<WatchStream, StoreError> {
    // Subscribed before the history is read: nothing can fall in between.
    let subscription = shared.hub.subscribe(&prefix);
    let mut watch = Watch {
        shared: Arc::downgrade(shared),
        prefix,
        seen: after,
        subscription,
        ready: VecDeque::new(),
        failed: false,
    };
    watch.catch_up()?;
    Ok(Box::pin(stream::unfold(watch, |mut watch| async move {
        if watch.failed {
            return None;
        }
        let item = watch.next().await;
        watch.failed = item.is_err();
        Some((item, watch))
    })))
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

impl Watch {
    fn catch_up(&mut self) -> Result<(), StoreError> {
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let snapshot = Snapshot::new(shared.database.begin_read().map_err(failed)?);
        let compacted = snapshot.compacted()?;
        if self.seen < compacted {
            return Err(StoreError::Compacted { compacted });
        }
        let events = snapshot.events(&self.prefix, self.seen)?;
        self.seen = self.seen.max(snapshot.revision()?);
        if !events.is_empty() {
            self.ready.push_back(WatchItem::Events(events));
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            if self.subscription.has_missed() {
                self.catch_up()?;
                // A progress mark that was asked for may be among what was missed.
                self.ready.push_back(WatchItem::Progress(self.seen));
                continue;
            }
            match self.subscription.queue.recv().await.ok_or_else(closed)? {
                WatchItem::Progress(revision) => {
                    // What did not fit lies before the mark.
                    if !self.subscription.has_missed() {
                        self.seen = self.seen.max(revision);
                        return Ok(WatchItem::Progress(self.seen));
                    }
                    self.catch_up()?;
                    self.ready.push_back(WatchItem::Progress(self.seen));
                }
                WatchItem::Events(events) => {
                    if self.subscription.has_missed() {
                        self.catch_up()?;
                        continue;
                    }
                    let fresh: Vec<Event> = events
                        .into_iter()
                        .filter(|event| event.kv.mod_revision > self.seen)
                        .collect();
                    if let Some(last) = fresh.last() {
                        self.seen = last.kv.mod_revision;
                        return Ok(WatchItem::Events(fresh));
                    }
                }
            }
        }
    }
}
