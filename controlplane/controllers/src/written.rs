//! What we wrote last: an older state in a cache knows less than we do.

use std::collections::HashMap;

use minato_api::meta_v1::ObjectMeta;
use minato_runtime::ObjectKey;
use parking_lot::Mutex;

/// Revisions of the objects that a controller wrote. All of it can be lost: then a conflict tells.
#[derive(Default)]
pub(crate) struct Written {
    revisions: Mutex<HashMap<ObjectKey, u64>>,
}

/// Revisions of one kind can be compared.
fn revision(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref()?.parse().ok()
}

impl Written {
    /// Remembers what a write gave back.
    pub(crate) fn note(&self, key: &ObjectKey, meta: &ObjectMeta) {
        if let Some(revision) = revision(meta) {
            self.revisions.lock().insert(key.clone(), revision);
        }
    }

    /// Whether a cached object is older than what we wrote; the event of what we wrote is still to come.
    pub(crate) fn is_behind(&self, key: &ObjectKey, cached: &ObjectMeta) -> bool {
        let written = self.revisions.lock().get(key).copied();
        matches!((revision(cached), written), (Some(cached), Some(written)) if cached < written)
    }

    /// The object is gone or will not be written any more.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.revisions.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_older_is_behind() {
        let at = |revision: &str| ObjectMeta {
            resource_version: Some(revision.to_owned()),
            ..ObjectMeta::default()
        };
        let (written, key) = (Written::default(), ObjectKey::new("n", "a"));
        assert!(!written.is_behind(&key, &at("9")));
        written.note(&key, &at("10"));
        assert!(written.is_behind(&key, &at("9")));
        assert!(!written.is_behind(&key, &at("10")) && !written.is_behind(&key, &at("11")));
        assert!(!written.is_behind(&ObjectKey::new("n", "b"), &at("9")));
        written.forget(&key);
        assert!(!written.is_behind(&key, &at("9")));
    }
}
