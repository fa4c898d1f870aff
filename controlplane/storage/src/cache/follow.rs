//! What feeds a resource's cache: one list and then one watch of the store, taken up again when it breaks off.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use minato_meta::Revision;

use super::entry::Entry;
use super::history::{CacheEvent, History};
use super::resource::{Resource, State};
use crate::store::{Event, EventKind, ListRequest, StoreError, WatchItem, WatchStream};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// Feeds a cache until it is closed.
pub(super) async fn run(resource: Arc<Resource>) {
    let stop = resource.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = feed(&resource) => {}
    }
    // Wakes the watchers, who see that it is over.
    resource.appended.send_modify(|_| {});
}

async fn feed(resource: &Resource) {
    let mut pause = FIRST_PAUSE;
    loop {
        let before = resource.revision();
        if let Err(error) = list_and_watch(resource).await {
            tracing::debug!(resource = %resource.name, %error, "the watch cache takes up its watch again");
            *resource.failure.lock() = Some(error);
        }
        // Something was seen: the store is well, and the pause starts small again.
        if resource.revision() > before {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn list_and_watch(resource: &Resource) -> Result<(), StoreError> {
    let mut events = match resume(resource).await? {
        Some(events) => events,
        None => {
            let request = ListRequest {
                prefix: resource.prefix.clone(),
                ..ListRequest::default()
            };
            let page = resource.store.list(request).await?;
            let entries = page
                .items
                .iter()
                .filter_map(|kv| Entry::from_store(&resource.prefix, kv));
            replace(resource, entries.collect(), page.revision);
            resource.store.watch(&resource.prefix, page.revision).await?
        }
    };
    let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
    loop {
        let item = tokio::select! {
            item = events.next() => item,
            _ = housekeeping.tick() => {
                resource.age();
                continue;
            }
        };
        match item {
            None => return Ok(()),
            Some(item) => match item? {
                WatchItem::Events(events) => apply(resource, &events),
                WatchItem::Progress(revision) => {
                    let mut state = resource.state.write();
                    state.revision = state.revision.max(revision);
                    drop(state);
                    reached(resource, revision);
                }
            },
        }
    }
}

/// The watch from where the last one broke off; `None` when there was none, or what came since is forgotten.
async fn resume(resource: &Resource) -> Result<Option<WatchStream>, StoreError> {
    let Some(seen) = *resource.reached.borrow() else {
        return Ok(None);
    };
    match resource.store.watch(&resource.prefix, seen).await {
        Ok(events) => Ok(Some(events)),
        Err(StoreError::Compacted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn replace(resource: &Resource, entries: Vec<Arc<Entry>>, revision: Revision) {
    let objects = entries.into_iter().map(|entry| (entry.key().clone(), entry)).collect();
    let mut state = resource.state.write();
    // Whoever watches has missed something: the numbers that they wait for never come.
    let next = state.history.next() + 1;
    *state = State {
        objects,
        revision: state.revision.max(revision),
        history: History::new(next, revision),
    };
    drop(state);
    *resource.failure.lock() = None;
    reached(resource, revision);
    resource.appended.send_replace(next);
}

fn reached(resource: &Resource, revision: Revision) {
    resource.reached.send_if_modified(|reached| {
        let further = Some(revision) > *reached;
        *reached = (*reached).max(Some(revision));
        further
    });
}

fn apply(resource: &Resource, events: &[Event]) {
    // The copying is done before anybody has to wait.
    let entries: Vec<_> = events
        .iter()
        .map(|event| {
            let put = event.kind != EventKind::Deleted;
            put.then(|| Entry::from_store(&resource.prefix, &event.kv)).flatten()
        })
        .collect();
    let Some(last) = events.last().map(|event| event.kv.mod_revision) else {
        return;
    };
    let mut state = resource.state.write();
    let seen = state.revision;
    let State { objects, history, .. } = &mut *state;
    for (event, entry) in events.iter().zip(entries) {
        if event.kv.mod_revision <= seen {
            continue;
        }
        let change = match entry {
            Some(entry) => {
                let previous = objects.insert(entry.key().clone(), entry.clone());
                Some(CacheEvent::put(entry, previous))
            }
            None => {
                let key = event.kv.key.strip_prefix(&resource.prefix).unwrap_or_default();
                let gone = objects.remove(key);
                gone.map(|previous| CacheEvent::delete(previous, event.kv.mod_revision))
            }
        };
        if let Some(change) = change {
            history.push(change, &resource.options);
        }
    }
    state.revision = last.max(seen);
    let next = state.history.next();
    drop(state);
    reached(resource, last);
    resource.appended.send_replace(next);
}
