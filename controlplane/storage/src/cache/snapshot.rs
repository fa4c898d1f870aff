//! One consistent state of a resource; cheap to take, and unmoved by later writes.

use std::ops::Bound;
use std::sync::Arc;

use minato_meta::Revision;

use super::entry::Entry;
use super::history::Objects;

/// See the module documentation.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) objects: Objects,
    pub(super) revision: Revision,
}

impl Snapshot {
    /// The revision that it shows.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// One object, by its key below the resource.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// The objects whose keys begin with `prefix` (`namespace/`, or empty), in order; from `prefix` + `start` on.
    pub fn range<'s>(&'s self, prefix: &'s str, start: &str) -> impl Iterator<Item = &'s Arc<Entry>> + use<'s> {
        let from = format!("{prefix}{start}");
        let range = self
            .objects
            .range::<_, str>((Bound::Included(from.as_str()), Bound::Unbounded));
        range
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key().starts_with(prefix))
    }
}
