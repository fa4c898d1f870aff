//! Watches: the past from etcd, then what the hub hands out; a watch that falls behind reads from etcd again.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use etcd_client::{Client, WatchOptions, WatchStream as EtcdStream};
use futures::stream;
use minato_meta::Revision;

use super::Inner;
use super::fault::{Fault, number, revision_of};
use super::keys::{Keys, revision_of_event};
use crate::hub::Subscription;
use crate::store::{Event, StoreError, WatchItem, WatchStream};

struct Watch {
    /// Weak, so that a watch does not keep a closed store's connection.
    inner: Weak<Inner>,
    prefix: String,
    seen: Revision,
    subscription: Subscription,
    ready: VecDeque<WatchItem>,
    failed: bool,
}

/// Follows everything below the prefix from `after` on. It begins with the events *at* that revision, to be skipped by the
/// caller: so etcd refuses exactly the revisions whose successors may be gone.
pub(super) async fn open(inner: &Inner, after: Revision) -> Result<EtcdStream, StoreError> {
    open_at(&inner.client, &inner.keys, number(after).max(1)).await
}

/// Follows everything below the prefix from now on; when this returns, the watch is in place.
pub(super) async fn open_now(client: &Client, keys: &Keys) -> Result<EtcdStream, StoreError> {
    let mut stream = open_at(client, keys, 0).await?;
    match stream.message().await {
        Ok(Some(response)) if response.created() && !response.canceled() => Ok(stream),
        Ok(Some(response)) => Err(StoreError::Unavailable(format!("etcd: {}", response.cancel_reason()))),
        Ok(None) => Err(StoreError::Unavailable("etcd closed the watch".to_owned())),
        Err(error) => Err(Fault::of(error).reading()),
    }
}

async fn open_at(client: &Client, keys: &Keys, start: i64) -> Result<EtcdStream, StoreError> {
    let (from, to) = keys.everything();
    let options = WatchOptions::new()
        .with_range(to)
        .with_start_revision(start)
        .with_prev_key()
        .with_progress_notify();
    let mut client = client.watch_client().max_decoding_message_size(usize::MAX);
    let stream = client.watch(from, Some(options)).await;
    stream.map_err(|error| Fault::of(error).reading())
}

/// Up to where etcd has compacted: what a watch from the beginning is told.
pub(super) async fn compacted(inner: &Inner) -> Result<Revision, StoreError> {
    let mut stream = open(inner, Revision(1)).await?;
    let lost = || StoreError::Unavailable("etcd closed the watch".to_owned());
    loop {
        let response = stream.message().await.map_err(|error| Fault::of(error).reading())?;
        let response = response.ok_or_else(lost)?;
        if response.canceled() || !response.created() {
            return Ok(revision_of(response.compact_revision()));
        }
    }
}

pub(super) async fn start(inner: &Arc<Inner>, prefix: String, after: Revision) -> Result<WatchStream, StoreError> {
    // Subscribed before it is asked what was: nothing can fall in between.
    let subscription = inner.hub.subscribe(&prefix);
    let mut watch = Watch {
        inner: Arc::downgrade(inner),
        prefix,
        seen: after,
        subscription,
        ready: VecDeque::new(),
        failed: false,
    };
    watch.catch_up().await?;
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
    /// Reads what happened between what was seen and what the hub has handed out.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let inner = self.inner.upgrade().ok_or_else(closed)?;
        let target = inner.last_event();
        if target <= self.seen {
            return Ok(());
        }
        let mut events = Vec::new();
        let mut stream = open(&inner, self.seen).await?;
        let mut reached = self.seen;
        // There is an event at the target, so this ends.
        while reached < target {
            let response = stream.message().await.map_err(|error| Fault::of(error).reading())?;
            let response = response.ok_or_else(|| StoreError::Unavailable("etcd closed the watch".to_owned()))?;
            if response.canceled() {
                return Err(match response.compact_revision() {
                    0 => StoreError::Unavailable(response.cancel_reason().to_owned()),
                    compacted => StoreError::Compacted {
                        compacted: revision_of(compacted),
                    },
                });
            }
            let passed = response.events().last().and_then(revision_of_event);
            reached = passed.map_or(reached, |passed| reached.max(passed));
            let ours = response.events().iter().filter_map(|event| inner.keys.event(event));
            events.extend(ours.filter(|event| {
                let revision = event.kv.mod_revision;
                event.kv.key.starts_with(&self.prefix) && revision > self.seen && revision <= target
            }));
        }
        self.seen = target;
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
                self.catch_up().await?;
                // A progress mark that was asked for may be among what was missed.
                self.ready.push_back(WatchItem::Progress(self.seen));
                continue;
            }
            match self.subscription.queue.recv().await {
                None => return Err(self.ended()),
                Some(WatchItem::Progress(revision)) => {
                    // What did not fit lies before the mark.
                    if !self.subscription.has_missed() {
                        self.seen = self.seen.max(revision);
                        return Ok(WatchItem::Progress(self.seen));
                    }
                    self.catch_up().await?;
                    self.ready.push_back(WatchItem::Progress(self.seen));
                }
                Some(WatchItem::Events(events)) => {
                    if self.subscription.has_missed() {
                        self.catch_up().await?;
                        continue;
                    }
                    let seen = self.seen;
                    let fresh: Vec<Event> = events
                        .into_iter()
                        .filter(|event| event.kv.mod_revision > seen)
                        .collect();
                    if let Some(last) = fresh.last() {
                        self.seen = last.kv.mod_revision;
                        return Ok(WatchItem::Events(fresh));
                    }
                }
            }
        }
    }

    /// The hub let go of this watch.
    fn ended(&self) -> StoreError {
        match self.inner.upgrade() {
            None => closed(),
            Some(inner) => StoreError::Compacted {
                compacted: inner.hub.published(),
            },
        }
    }
}
