//! From one source of changes (the embedded writer, the watch of an etcd) to the watches: who is interested in what, and
//! how far everybody has been told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minato_meta::Revision;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::store::{Event, LastChange, WatchItem};

/// Items that may wait for one watch; a watch that is further behind reads the history.
const QUEUE: usize = 256;

/// One watch as the hub sees it.
struct Slot {
    prefix: String,
    queue: mpsc::Sender<WatchItem>,
    missed: Arc<AtomicBool>,
}

/// The watch's end of a slot.
pub(crate) struct Subscription {
    pub(crate) queue: mpsc::Receiver<WatchItem>,
    missed: Arc<AtomicBool>,
}

impl Subscription {
    /// Whether something did not fit into the queue since the last call. What did fit may be stale or may come again.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed.swap(false, Ordering::AcqRel)
    }
}

struct State {
    slots: Vec<Slot>,
    /// Last change of each area that changed since the store was opened.
    changed: HashMap<Box<str>, Revision>,
    /// Bound for the areas that did not.
    opened: Revision,
}

/// See the module documentation.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Everything up to here is committed, and with the watches that want it.
    published: watch::Sender<Revision>,
}

/// The part of a key by which changes are remembered: its first two segments, `/registry/pods/`.
fn area(key: &str) -> Option<&str> {
    let mut slashes = key.match_indices('/').map(|(at, _)| at);
    let end = slashes.nth(2)?;
    Some(&key[..=end])
}

impl Hub {
    pub(crate) fn new(revision: Revision) -> Self {
        Self {
            state: Mutex::new(State {
                slots: Vec::new(),
                changed: HashMap::new(),
                opened: revision,
            }),
            published: watch::Sender::new(revision),
        }
    }

    /// Everything published from here on that the prefix is concerned by.
    pub(crate) fn subscribe(&self, prefix: &str) -> Subscription {
        let (send, receive) = mpsc::channel(QUEUE);
        let missed = Arc::new(AtomicBool::new(false));
        self.state.lock().slots.push(Slot {
            prefix: prefix.to_owned(),
            queue: send,
            missed: missed.clone(),
        });
        Subscription { queue: receive, missed }
    }

    /// Hands out what was committed, all of it up to `revision`. Called by the source alone.
    pub(crate) fn publish(&self, events: &[Event], revision: Revision) {
        let mut state = self.state.lock();
        let State { slots, changed, .. } = &mut *state;
        for event in events {
            match area(&event.kv.key) {
                Some(area) => match changed.get_mut(area) {
                    Some(revision) => *revision = event.kv.mod_revision,
                    None => drop(changed.insert(area.into(), event.kv.mod_revision)),
                },
                None => drop(changed.insert(event.kv.key.as_str().into(), event.kv.mod_revision)),
            }
        }
        slots.retain(|slot| !slot.queue.is_closed());
        for slot in slots {
            let concerned: Vec<Event> = events
                .iter()
                .filter(|event| event.kv.key.starts_with(&slot.prefix))
                .cloned()
                .collect();
            if !concerned.is_empty() {
                slot.offer(WatchItem::Events(concerned));
            }
        }
        self.published.send_replace(revision);
    }

    /// How far everybody has been told.
    pub(crate) fn published(&self) -> Revision {
        *self.published.borrow()
    }

    /// Begins anew at a revision, after changes were missed that cannot be had any more: every watch ends.
    pub(crate) fn restart(&self, revision: Revision) {
        let mut state = self.state.lock();
        state.slots.clear();
        state.changed.clear();
        state.opened = revision;
        self.published.send_replace(revision);
    }

    /// Marks the present revision in every watch.
    pub(crate) fn mark_progress(&self) {
        let state = self.state.lock();
        let revision = *self.published.borrow();
        for slot in &state.slots {
            slot.offer(WatchItem::Progress(revision));
        }
    }

    /// Waits until what is committed is also published: a moment, unless it is already.
    pub(crate) async fn reach(&self, revision: Revision) {
        if *self.published.borrow() >= revision {
            return;
        }
        // The sender is in `self`, so this ends by the condition only.
        let _ = self.published.subscribe().wait_for(|p| *p >= revision).await;
    }

    /// When a prefix last changed.
    pub(crate) fn last_change(&self, prefix: &str) -> LastChange {
        let state = self.state.lock();
        let revision = *self.published.borrow();
        let (changed, exact) = match area(prefix) {
            // What was before the store was opened is in whatever was read from it since.
            Some(area) => (state.changed.get(area).copied().unwrap_or(state.opened), true),
            // Several areas: the whole store is their bound.
            None => (revision, false),
        };
        LastChange {
            changed,
            revision,
            exact,
        }
    }
}

impl Slot {
    fn offer(&self, item: WatchItem) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(item) {
            self.missed.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_the_first_two_segments() {
        assert_eq!(area("/registry/pods/a/b"), Some("/registry/pods/"));
        assert_eq!(area("/registry/pods/"), Some("/registry/pods/"));
        assert_eq!(area("/registry/"), None);
        assert_eq!(area("x"), None);
    }
}
