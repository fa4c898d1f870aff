//! The work queue: an item is queued once however often it is added, is never worked on twice at the same time, and an
//! item added while being worked on is queued again afterwards.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limiter::{Bucket, Exponential};
use crate::metrics::{Metrics, QueueMetrics};

/// Retries of one item start at this delay and double.
const RETRY_BASE: Duration = Duration::from_millis(5);
/// Retries of one item are at most this far apart.
const RETRY_MAX: Duration = Duration::from_secs(1000);
/// Retries of all items together: rate and burst.
const RETRY_RATE: (f64, f64) = (10.0, 100.0);

/// A queue of distinct items. Clones are the same queue.
pub struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Notify,
    metrics: QueueMetrics,
}

struct State<T> {
    ready: VecDeque<T>,
    /// When each queued (or re-added while worked on) item was first added.
    dirty: HashMap<T, Instant>,
    working: HashMap<T, Instant>,
    delayed: BinaryHeap<Reverse<(Instant, u64)>>,
    delayed_items: HashMap<u64, T>,
    /// The one valid entry of `delayed` for an item.
    due: HashMap<T, (Instant, u64)>,
    sequence: u64,
    retries: Exponential<T>,
    retry_rate: Bucket,
}

impl<T: Hash + Eq + Clone> WorkQueue<T> {
    /// An empty queue; `name` labels its metrics.
    pub fn new(name: &'static str, metrics: &Metrics) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            working: HashMap::new(),
            delayed: BinaryHeap::new(),
            delayed_items: HashMap::new(),
            due: HashMap::new(),
            sequence: 0,
            retries: Exponential::new(RETRY_BASE, RETRY_MAX),
            retry_rate: Bucket::new(RETRY_RATE.0, RETRY_RATE.1),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Notify::new(),
                metrics: metrics.queue(name),
            }),
        }
    }

    /// Queues `item` unless it is queued.
    pub fn add(&self, item: T) {
        let mut state = self.shared.state.lock();
        self.enqueue(&mut state, item);
        drop(state);
        self.shared.wake.notify_one();
    }

    fn enqueue(&self, state: &mut State<T>, item: T) {
        if state.dirty.contains_key(&item) {
            return;
        }
        state.dirty.insert(item.clone(), Instant::now());
        self.shared.metrics.adds.inc();
        if !state.working.contains_key(&item) {
            state.ready.push_back(item);
            self.shared.metrics.depth.inc();
        }
    }

    /// Queues `item` after `delay`. Of several delayed adds of an item the earliest counts.
    pub fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        let at = Instant::now() + delay;
        let mut state = self.shared.state.lock();
        if state.due.get(&item).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        state.sequence += 1;
        let id = state.sequence;
        if let Some((_, old)) = state.due.insert(item.clone(), (at, id)) {
            state.delayed_items.remove(&old);
        }
        state.delayed_items.insert(id, item);
        state.delayed.push(Reverse((at, id)));
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Queues `item` after its back-off, counting a failure.
    pub fn retry(&self, item: T) {
        self.shared.metrics.retries.inc();
        let delay = {
            let mut state = self.shared.state.lock();
            let own = state.retries.next(&item);
            own.max(state.retry_rate.reserve())
        };
        self.add_after(item, delay);
    }

    /// Forgets the failures of `item`.
    pub fn forget(&self, item: &T) {
        self.shared.state.lock().retries.forget(item);
    }

    /// Failures of `item` in a row.
    pub fn failures(&self, item: &T) -> u32 {
        self.shared.state.lock().retries.failures(item)
    }

    /// Items ready and not yet taken.
    pub fn len(&self) -> usize {
        self.shared.state.lock().ready.len()
    }

    /// Whether nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next item when there is one. [`WorkQueue::done`] must follow. Cancel-safe.
    pub async fn next(&self) -> T {
        loop {
            let notified = self.shared.wake.notified();
            let due = {
                let mut state = self.shared.state.lock();
                self.promote(&mut state);
                if let Some(item) = state.ready.pop_front() {
                    let now = Instant::now();
                    if let Some(added) = state.dirty.remove(&item) {
                        self.shared.metrics.waited.observe((now - added).as_secs_f64());
                    }
                    state.working.insert(item.clone(), now);
                    self.shared.metrics.depth.dec();
                    if !state.ready.is_empty() {
                        // Adds between two calls leave one permit; another worker may be needed.
                        self.shared.wake.notify_one();
                    }
                    return item;
                }
                state.delayed.peek().map(|Reverse((at, _))| *at)
            };
            match due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, notified).await;
                }
                None => notified.await,
            }
        }
    }

    /// Moves items whose time has come to the ready ones.
    fn promote(&self, state: &mut State<T>) {
        let now = Instant::now();
        while let Some(Reverse((at, id))) = state.delayed.peek().copied() {
            let Some(item) = state.delayed_items.get(&id).cloned() else {
                state.delayed.pop();
                continue;
            };
            if at > now {
                break;
            }
            state.delayed.pop();
            state.delayed_items.remove(&id);
            state.due.remove(&item);
            self.enqueue(state, item);
        }
    }

    /// Ends the work on `item`; queues it if it was added meanwhile.
    pub fn done(&self, item: &T) {
        let mut state = self.shared.state.lock();
        if let Some(begun) = state.working.remove(item) {
            self.shared.metrics.worked.observe(begun.elapsed().as_secs_f64());
        }
        if state.dirty.contains_key(item) {
            state.ready.push_back(item.clone());
            self.shared.metrics.depth.inc();
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Items added, delayed or worked on, for tests and debugging.
    pub fn known(&self) -> HashSet<T> {
        let state = self.shared.state.lock();
        let known = state.dirty.keys().chain(state.working.keys()).chain(state.due.keys());
        known.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new("test", &Metrics::new())
    }

    #[tokio::test]
    async fn an_item_is_queued_once() {
        let queue = queue();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(queue.len(), 2);
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
    }

    #[tokio::test]
    async fn an_item_added_while_worked_on_comes_again_after_done() {
        let queue = queue();
        queue.add("a");
        let item = queue.next().await;
        queue.add("a");
        queue.add("a");
        assert!(queue.is_empty());
        queue.done(&item);
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_counts_and_a_delayed_item_comes_once() {
        let queue = queue();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(30));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 10);
        queue.done(&"a");
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(
            tokio::time::timeout(Duration::from_secs(100), queue.next())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn retries_back_off_per_item() {
        let queue = queue();
        let mut delays = Vec::new();
        for _ in 0..4 {
            let start = Instant::now();
            queue.retry("a");
            queue.next().await;
            queue.done(&"a");
            delays.push(start.elapsed().as_millis());
        }
        assert_eq!(delays, [5, 10, 20, 40]);
        assert_eq!(queue.failures(&"a"), 4);
        queue.forget(&"a");
        assert_eq!(queue.failures(&"a"), 0);
    }

    #[tokio::test]
    async fn two_workers_share_a_burst() {
        let queue = queue();
        let both = tokio::spawn({
            let queue = queue.clone();
            async move { tokio::join!(queue.next(), queue.next()) }
        });
        tokio::task::yield_now().await;
        queue.add("a");
        queue.add("b");
        let (first, second) = both.await.unwrap();
        assert_ne!(first, second);
    }
}
