//! Creations and deletions that were sent but not yet seen by the informer. Without them a controller would act twice
//! on a stale cache.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::key::ObjectKey;

/// Expectations older than this no longer hold a controller back; the informer surely lost something.
const EXPIRY: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Entry {
    creations: i64,
    deletions: HashSet<String>,
    since: Instant,
}

/// Expectations per owner.
#[derive(Debug, Default)]
pub struct Expectations {
    entries: Mutex<HashMap<ObjectKey, Entry>>,
}

impl Expectations {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether everything that `owner` did has been seen, or is too old to wait for.
    pub fn satisfied(&self, owner: &ObjectKey) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get(owner) else { return true };
        let satisfied = entry.creations <= 0 && entry.deletions.is_empty() || entry.since.elapsed() > EXPIRY;
        if satisfied {
            entries.remove(owner);
        }
        satisfied
    }

    /// Announces creations, before they are sent.
    pub fn expect_creations(&self, owner: &ObjectKey, count: usize) {
        self.entry(owner, |entry| {
            entry.creations += i64::try_from(count).unwrap_or(i64::MAX)
        });
    }

    /// Announces the deletion of the object with this uid, before it is sent.
    pub fn expect_deletion(&self, owner: &ObjectKey, uid: &str) {
        self.entry(owner, |entry| {
            entry.deletions.insert(uid.to_owned());
        });
    }

    /// A creation was seen, or failed.
    pub fn created(&self, owner: &ObjectKey) {
        if let Some(entry) = self.entries.lock().get_mut(owner) {
            entry.creations -= 1;
        }
    }

    /// A deletion was seen, or failed.
    pub fn deleted(&self, owner: &ObjectKey, uid: &str) {
        if let Some(entry) = self.entries.lock().get_mut(owner) {
            entry.deletions.remove(uid);
        }
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &ObjectKey) {
        self.entries.lock().remove(owner);
    }

    fn entry(&self, owner: &ObjectKey, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(owner.clone()).or_insert_with(|| Entry {
            creations: 0,
            deletions: HashSet::new(),
            since: Instant::now(),
        });
        entry.since = Instant::now();
        change(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn holds_back_until_seen_or_expired() {
        let expectations = Expectations::new();
        let owner = ObjectKey::new("a", "b");
        assert!(expectations.satisfied(&owner));
        expectations.expect_creations(&owner, 2);
        expectations.expect_deletion(&owner, "u");
        expectations.created(&owner);
        expectations.created(&owner);
        assert!(!expectations.satisfied(&owner));
        expectations.deleted(&owner, "other");
        assert!(!expectations.satisfied(&owner));
        expectations.deleted(&owner, "u");
        assert!(expectations.satisfied(&owner));
        expectations.expect_creations(&owner, 1);
        assert!(!expectations.satisfied(&owner));
        tokio::time::advance(EXPIRY + Duration::from_secs(1)).await;
        assert!(expectations.satisfied(&owner));
    }
}
