//! How long a node must wait before a pod that failed on it is replaced.

use std::collections::HashMap;
use std::time::Duration;

use minato_runtime::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Since when a node waits, and how long it has to.
type Waits = HashMap<String, (Instant, Duration)>;

/// Waits by DaemonSet and node. All of it can be lost.
#[derive(Default)]
pub(super) struct Backoff {
    waits: Mutex<HashMap<ObjectKey, Waits>>,
}

impl Backoff {
    /// How long to wait, if at all.
    pub(super) fn left(&self, set: &ObjectKey, node: &str) -> Option<Duration> {
        let waits = self.waits.lock();
        let (since, wait) = waits.get(set)?.get(node)?;
        let left = wait.saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// A pod failed on the node and goes.
    pub(super) fn failed(&self, set: &ObjectKey, node: &str) {
        let mut waits = self.waits.lock();
        let nodes = waits.entry(set.clone()).or_default();
        nodes.retain(|_, (since, _)| since.elapsed() < LONGEST * 2);
        let next = nodes.get(node).map_or(FIRST, |(_, wait)| (*wait * 2).min(LONGEST));
        nodes.insert(node.to_owned(), (Instant::now(), next));
    }

    /// The set is gone.
    pub(super) fn forget(&self, set: &ObjectKey) {
        self.waits.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_and_are_forgotten_after_long_peace() {
        let (backoff, set) = (Backoff::default(), ObjectKey::new("n", "d"));
        assert_eq!(backoff.left(&set, "a"), None);
        backoff.failed(&set, "a");
        assert_eq!(backoff.left(&set, "a"), Some(Duration::from_secs(1)));
        assert_eq!(backoff.left(&set, "b"), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(backoff.left(&set, "a"), None);
        backoff.failed(&set, "a");
        assert_eq!(backoff.left(&set, "a"), Some(Duration::from_secs(2)));
        tokio::time::advance(LONGEST * 2).await;
        backoff.failed(&set, "a");
        assert_eq!(backoff.left(&set, "a"), Some(Duration::from_secs(1)));
        backoff.forget(&set);
        assert_eq!(backoff.left(&set, "a"), None);
    }
}
