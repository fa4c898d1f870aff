//! A watcher's place in the history of a resource.

use std::collections::VecDeque;
use std::sync::Arc;

use minato_meta::Revision;
use tokio::sync::watch;

use super::history::CacheEvent;
use super::resource::Resource;

/// The watcher's next event is forgotten: it was too slow, or the cache had to start over. Its client must list anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the history no longer reaches back to this watch")]
pub struct Lost;

/// Reads the events of a resource in order, without gap or duplicate.
pub struct Watcher {
    resource: Arc<Resource>,
    /// Events from before the window of the cache, read from the store.
    backlog: VecDeque<Arc<CacheEvent>>,
    /// Number of the next event.
    next: u64,
    /// Events up to here are not wanted, or were seen.
    after: Revision,
    appended: watch::Receiver<u64>,
}

impl Watcher {
    pub(super) fn new(
        resource: Arc<Resource>,
        backlog: VecDeque<Arc<CacheEvent>>,
        next: u64,
        after: Revision,
        appended: watch::Receiver<u64>,
    ) -> Self {
        Self {
            resource,
            backlog,
            next,
            after,
            appended,
        }
    }

    /// Up to `most` events that are at hand; empty when there are none at the moment.
    ///
    /// # Errors
    /// [`Lost`]; also ever after.
    pub fn ready(&mut self, most: usize) -> Result<Vec<Arc<CacheEvent>>, Lost> {
        // Before the look, so that what comes after it is not missed.
        self.appended.mark_unchanged();
        if !self.backlog.is_empty() {
            let most = self.backlog.len().min(most);
            return Ok(self.backlog.drain(..most).collect());
        }
        loop {
            let mut events = self.resource.read(self.next, most).ok_or(Lost)?;
            self.next += events.len() as u64;
            let end = events.is_empty();
            events.retain(|event| event.revision > self.after);
            if end || !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Waits until there may be more; ends at once when the cache has ended, and [`Watcher::is_over`] then.
    pub async fn changed(&mut self) {
        // An error is the end of the cache.
        let _ = self.appended.changed().await;
    }

    /// Whether the cache of the resource has ended.
    pub fn is_over(&self) -> bool {
        self.resource.is_closed()
    }

    /// A revision up to which this watcher has been given everything, as new as can be had: what a bookmark says. `None`
    /// when there are events that it has not read.
    pub async fn progress(&self) -> Option<Revision> {
        let reached = self.resource.fresh().await.ok()?;
        let caught_up = self.backlog.is_empty() && self.resource.is_caught_up(self.next);
        // More may have come since, which is then beyond `reached`.
        caught_up.then_some(reached.max(self.after))
    }
}
