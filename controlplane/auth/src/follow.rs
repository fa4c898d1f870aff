//! Following one resource of the cluster into an index of one's own.

use minato_meta::{CachedObject, Change, ClusterReader, GroupResource, Revision};

/// How far an index has followed a resource.
pub(crate) struct Follower {
    resource: GroupResource,
    seen: Revision,
}

/// What an index has to do to catch up.
pub(crate) enum News {
    /// Nothing has changed.
    None,
    /// Apply these, oldest first; some may be known already.
    Changes(Vec<Change>),
    /// Start over with these.
    All(Vec<CachedObject>),
}

impl Follower {
    pub(crate) fn new(group: &str, resource: &str) -> Self {
        Self {
            resource: GroupResource::new(group, resource),
            seen: Revision(0),
        }
    }

    /// Whether there may be news; cheap.
    pub(crate) fn is_behind(&self, reader: &dyn ClusterReader) -> bool {
        reader.revision(&self.resource) > self.seen
    }

    /// Whether the resource's cache was ever seen filled.
    pub(crate) fn is_filled(&self) -> bool {
        self.seen > Revision(0)
    }

    /// What happened since the last call.
    pub(crate) fn pull(&mut self, reader: &dyn ClusterReader) -> News {
        if !self.is_behind(reader) {
            return News::None;
        }
        if self.is_filled()
            && let Some((changes, reached)) = reader.changes_since(&self.resource, self.seen)
        {
            self.seen = self.seen.max(reached);
            return if changes.is_empty() {
                News::None
            } else {
                News::Changes(changes)
            };
        }
        // The revision is taken first: what comes in between is seen twice, never missed.
        self.seen = reader.revision(&self.resource);
        News::All(reader.list(&self.resource, None))
    }
}
