//! What happened to a resource lately: a bounded window of events that all its watchers read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use imbl::OrdMap;
use minato_meta::Revision;

use super::CacheOptions;
use super::entry::{Entry, Forms, form};

/// The objects of a resource by key.
pub(super) type Objects = OrdMap<Arc<str>, Arc<Entry>>;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object; shared by all watchers.
#[derive(Debug)]
pub struct CacheEvent {
    /// What happened.
    pub kind: ChangeKind,
    /// Revision of the change.
    pub revision: Revision,
    /// The state after it; for a deleted object its last state, with the revision of the delete.
    pub object: Arc<Entry>,
    /// The state before it.
    pub previous: Option<Arc<Entry>>,
    frames: Forms,
}

impl CacheEvent {
    pub(super) fn put(object: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self {
            kind: if previous.is_some() {
                ChangeKind::Modified
            } else {
                ChangeKind::Added
            },
            revision: object.revision(),
            object,
            previous,
            frames: Forms::default(),
        }
    }

    pub(super) fn delete(previous: Arc<Entry>, revision: Revision) -> Self {
        Self {
            kind: ChangeKind::Deleted,
            revision,
            object: previous.ended(revision),
            previous: Some(previous),
            frames: Forms::default(),
        }
    }

    /// The event encoded for a kind of watcher, made once for all of them. Numbers are the caller's to choose.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn frame<E>(&self, number: u64, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        form(&self.frames, number, make)
    }

    /// Bytes that the event alone keeps alive, about.
    fn weight(&self) -> usize {
        self.object.json().len() + 256
    }
}

/// A window over the events of a resource. Events are numbered without gaps; watchers remember the next number.
pub(super) struct History {
    events: VecDeque<Arc<CacheEvent>>,
    /// Number of the oldest event.
    first: u64,
    weight: usize,
    /// Everything after this revision is in the window.
    forgotten: Revision,
    /// What was the next number when; for forgetting by age.
    marks: VecDeque<(Instant, u64)>,
}

impl History {
    /// A window that begins after `revision`.
    pub(super) fn new(first: u64, revision: Revision) -> Self {
        Self {
            events: VecDeque::new(),
            first,
            weight: 0,
            forgotten: revision,
            marks: VecDeque::new(),
        }
    }

    /// Everything after this revision is in the window.
    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// Number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(super) fn push(&mut self, event: CacheEvent, options: &CacheOptions) {
        self.weight += event.weight();
        self.events.push_back(Arc::new(event));
        while self.events.len() > options.history_events || self.weight > options.history_bytes && self.events.len() > 1
        {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.first += 1;
            self.weight -= event.weight();
            self.forgotten = self.forgotten.max(event.revision);
        }
    }

    /// Forgets what is older than the options say; to be called now and then.
    pub(super) fn age(&mut self, now: Instant, options: &CacheOptions) {
        while let Some((at, number)) = self.marks.front().copied()
            && now.saturating_duration_since(at) >= options.history_age
        {
            self.marks.pop_front();
            while self.first < number && !self.events.is_empty() {
                self.pop();
            }
        }
        if self.marks.back().is_none_or(|(_, number)| *number != self.next()) {
            self.marks.push_back((now, self.next()));
        }
    }

    /// Number of the first event after a revision; `None` when the window does not reach back that far.
    pub(super) fn position(&self, after: Revision) -> Option<u64> {
        if after < self.forgotten {
            return None;
        }
        let index = self.events.partition_point(|event| event.revision <= after);
        Some(self.first + index as u64)
    }

    /// Up to `most` events from a number on; `None` when they are forgotten.
    pub(super) fn read(&self, from: u64, most: usize) -> Option<Vec<Arc<CacheEvent>>> {
        let index = usize::try_from(from.checked_sub(self.first)?).ok()?;
        let end = self.events.len().min(index.saturating_add(most));
        Some(self.events.range(index.min(end)..end).cloned().collect())
    }

    /// The events after a revision; `None` when the window does not reach back that far.
    pub(super) fn since(&self, after: Revision) -> Option<impl Iterator<Item = &Arc<CacheEvent>>> {
        let index = usize::try_from(self.position(after)? - self.first).ok()?;
        Some(self.events.range(index..))
    }
}

/// The objects as they were before some events, from what they are after them.
pub(super) fn undo(mut objects: Objects, events: &[Arc<CacheEvent>]) -> Objects {
    for event in events.iter().rev() {
        match &event.previous {
            Some(previous) => drop(objects.insert(previous.key().clone(), previous.clone())),
            None => drop(objects.remove(&**event.object.key())),
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(key: &str, revision: u64) -> Arc<Entry> {
        Arc::new(Entry::new(key.into(), Revision(revision), Bytes::from_static(b"{}")))
    }

    fn options(history_events: usize) -> CacheOptions {
        CacheOptions {
            history_events,
            ..CacheOptions::default()
        }
    }

    fn keys(objects: &Objects) -> Vec<(&str, u64)> {
        objects.iter().map(|(k, v)| (&**k, v.revision().0)).collect()
    }

    #[test]
    fn the_past_is_the_present_undone() {
        let mut history = History::new(0, Revision(5));
        let mut objects = Objects::new();
        let first = entry("a", 4);
        objects.insert("a".into(), first.clone());
        let second = entry("a", 7);
        history.push(CacheEvent::put(second.clone(), Some(first)), &options(10));
        history.push(CacheEvent::put(entry("b", 8), None), &options(10));
        history.push(CacheEvent::delete(second, Revision(9)), &options(10));
        let at = |objects: &Objects, revision| {
            let events: Vec<_> = history.since(Revision(revision))?.cloned().collect();
            Some(undo(objects.clone(), &events))
        };
        let mut now = Objects::new();
        now.insert("b".into(), entry("b", 8));
        assert_eq!(keys(&at(&now, 9).unwrap()), [("b", 8)]);
        assert_eq!(keys(&at(&now, 8).unwrap()), [("a", 7), ("b", 8)]);
        assert_eq!(keys(&at(&now, 7).unwrap()), [("a", 7)]);
        assert_eq!(keys(&at(&now, 5).unwrap()), [("a", 4)]);
        assert!(at(&now, 4).is_none());
    }

    #[test]
    fn the_window_is_bounded_by_number_weight_and_age() {
        let mut history = History::new(3, Revision(1));
        for revision in 2..=6 {
            history.push(CacheEvent::put(entry("a", revision), None), &options(3));
        }
        assert_eq!((history.forgotten(), history.next()), (Revision(3), 8));
        assert_eq!(history.position(Revision(2)), None);
        assert_eq!(history.position(Revision(3)), Some(5));
        assert_eq!(history.position(Revision(100)), Some(8));
        assert!(history.read(4, 10).is_none());
        let read = |from, most| {
            history
                .read(from, most)
                .unwrap()
                .iter()
                .map(|e| e.revision.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(read(5, 2), [4, 5]);
        assert_eq!(read(7, 10), [6]);
        assert!(read(8, 10).is_empty() && read(9, 10).is_empty());

        let light = CacheOptions {
            history_bytes: 2 * 258,
            ..CacheOptions::default()
        };
        history.push(CacheEvent::put(entry("a", 7), None), &light);
        assert_eq!(history.forgotten(), Revision(5));

        let start = Instant::now();
        let quick = CacheOptions {
            history_age: Duration::from_secs(10),
            ..CacheOptions::default()
        };
        history.age(start, &quick);
        history.push(CacheEvent::put(entry("a", 8), None), &quick);
        history.age(start + Duration::from_secs(9), &quick);
        assert_eq!(history.forgotten(), Revision(5));
        history.age(start + Duration::from_secs(10), &quick);
        assert_eq!((history.forgotten(), history.next()), (Revision(7), 10));
    }
}
