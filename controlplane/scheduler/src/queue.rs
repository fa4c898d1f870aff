//! The pods that wait: those to be tried now by priority, those that failed just now, and those that wait for a change.
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>; times are upstream's.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::PodId;
use crate::pod::PodInfo;

/// First and longest pause between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long a pod waits for a change at most.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A pod in the queue.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) attempts: u32,
    /// Plug-ins that rejected it last.
    pub(crate) rejected_by: BTreeSet<&'static str>,
    entered: Instant,
    tried: Instant,
}

impl Waiting {
    fn backoff_ends(&self) -> Instant {
        let doublings = self.attempts.saturating_sub(1).min(10);
        self.tried + (BACKOFF.0 * 2_u32.pow(doublings)).min(BACKOFF.1)
    }
}

/// Highest priority first, then who came first.
type Order = (std::cmp::Reverse<i32>, Instant, u64);

#[derive(Default)]
struct Inner {
    active: BTreeMap<Order, Waiting>,
    backoff: BTreeMap<(Instant, u64), Waiting>,
    unschedulable: HashMap<PodId, Waiting>,
    /// Not to be tried before the pod itself changes.
    gated: HashMap<PodId, Waiting>,
    /// Where each pod is.
    places: HashMap<PodId, Place>,
    /// Taken out to be tried. A pod that is not among them when its attempt ends is gone, or has changed meanwhile.
    tried: HashSet<PodId>,
    /// Number of events so far; a pod that failed while one happened is tried again.
    events: u64,
    sequence: u64,
}

#[derive(Clone, Copy)]
enum Place {
    Active(Order),
    Backoff((Instant, u64)),
    Unschedulable,
    Gated,
}

/// The queue. One task takes, any number put.
#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

fn id(pod: &PodInfo) -> PodId {
    PodId {
        key: pod.key.clone(),
        uid: pod.uid.clone(),
    }
}

impl Inner {
    fn take_out(&mut self, id: &PodId) -> Option<Waiting> {
        match self.places.remove(id)? {
            Place::Active(order) => self.active.remove(&order),
            Place::Backoff(at) => self.backoff.remove(&at),
            Place::Unschedulable => self.unschedulable.remove(id),
            Place::Gated => self.gated.remove(id),
        }
    }

    fn activate(&mut self, waiting: Waiting) {
        self.sequence += 1;
        let order = (std::cmp::Reverse(waiting.pod.priority), waiting.entered, self.sequence);
        self.places.insert(id(&waiting.pod), Place::Active(order));
        self.active.insert(order, waiting);
    }

    fn back_off(&mut self, waiting: Waiting, now: Instant) {
        let ends = waiting.backoff_ends();
        if ends <= now {
            return self.activate(waiting);
        }
        self.sequence += 1;
        let at = (ends, self.sequence);
        self.places.insert(id(&waiting.pod), Place::Backoff(at));
        self.backoff.insert(at, waiting);
    }

    /// Moves what has waited long enough to the active pods; returns when that is next due.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.backoff.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let waiting = entry.remove();
            self.activate(waiting);
        }
        let stale: Vec<PodId> = self
            .unschedulable
            .iter()
            .filter(|(_, waiting)| waiting.tried + LONGEST_WAIT <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in stale {
            if let Some(waiting) = self.take_out(&id) {
                self.activate(waiting);
            }
        }
        let backoff = self.backoff.first_key_value().map(|((at, _), _)| *at);
        let longest = self
            .unschedulable
            .values()
            .map(|waiting| waiting.tried + LONGEST_WAIT)
            .min();
        backoff.into_iter().chain(longest).min()
    }
}

impl Queue {
    /// A pod that is new, or changed in a way that may matter. With `gated`, it is only remembered.
    pub(crate) fn add(&self, pod: Arc<PodInfo>, gated: bool) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let old = inner.take_out(&id(&pod));
        inner.tried.remove(&id(&pod));
        let waiting = Waiting {
            attempts: old.as_ref().map_or(0, |old| old.attempts),
            entered: old.as_ref().map_or(now, |old| old.entered),
            tried: old.as_ref().map_or(now, |old| old.tried),
            rejected_by: BTreeSet::new(),
            pod,
        };
        if gated {
            inner.places.insert(id(&waiting.pod), Place::Gated);
            inner.gated.insert(id(&waiting.pod), waiting);
        } else if waiting.attempts == 0 {
            inner.activate(waiting);
        } else {
            inner.back_off(waiting, now);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Forgets a pod.
    pub(crate) fn remove(&self, pod: &PodId) {
        let mut inner = self.inner.lock();
        inner.take_out(pod);
        inner.tried.remove(pod);
    }

    /// The next pod to try, and the number of events so far. The pod is out of the queue until it is put back.
    pub(crate) async fn next(&self) -> (Waiting, u64) {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                let due = inner.ripen(Instant::now());
                if let Some((_, mut waiting)) = inner.active.pop_first() {
                    inner.places.remove(&id(&waiting.pod));
                    inner.tried.insert(id(&waiting.pod));
                    waiting.attempts += 1;
                    waiting.tried = Instant::now();
                    return (waiting, inner.events);
                }
                due
            };
            match due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Puts a pod back that no node could take. If something has happened since it was taken out, that may have been
    /// what it waits for.
    pub(crate) fn put_back(&self, waiting: Waiting, events: u64) {
        let mut inner = self.inner.lock();
        if !inner.tried.remove(&id(&waiting.pod)) {
            return;
        }
        if inner.events == events {
            inner.places.insert(id(&waiting.pod), Place::Unschedulable);
            inner.unschedulable.insert(id(&waiting.pod), waiting);
        } else {
            inner.back_off(waiting, Instant::now());
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Puts a pod back whose attempt failed for reasons that have nothing to do with nodes.
    pub(crate) fn retry(&self, waiting: Waiting) {
        let mut inner = self.inner.lock();
        if inner.tried.remove(&id(&waiting.pod)) {
            inner.back_off(waiting, Instant::now());
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// The pod has been given a node.
    pub(crate) fn done(&self, pod: &PodInfo) {
        self.inner.lock().tried.remove(&id(pod));
    }

    /// Something happened: pods that may profit are tried again.
    pub(crate) fn on_event(&self, profits: impl Fn(&Waiting) -> bool) {
        let mut inner = self.inner.lock();
        inner.events += 1;
        let now = Instant::now();
        let woken: Vec<PodId> = inner
            .unschedulable
            .iter()
            .filter(|(_, waiting)| profits(waiting))
            .map(|(id, _)| id.clone())
            .collect();
        if woken.is_empty() {
            return;
        }
        for id in woken {
            if let Some(waiting) = inner.take_out(&id) {
                inner.back_off(waiting, now);
            }
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Numbers of pods: active, backing off, unschedulable, gated.
    #[cfg(test)]
    fn lengths(&self) -> [usize; 4] {
        let inner = self.inner.lock();
        [
            inner.active.len(),
            inner.backoff.len(),
            inner.unschedulable.len(),
            inner.gated.len(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
        let value = json!({
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"priority": priority, "containers": []},
        });
        Arc::new(PodInfo::new(Arc::new(
            serde_json::from_value(value).unwrap_or_default(),
        )))
    }

    #[tokio::test(start_paused = true)]
    async fn higher_priority_first_then_who_came_first() {
        let queue = Queue::default();
        for (name, priority) in [("a", 0), ("b", 10), ("c", 0)] {
            queue.add(pod(name, priority), false);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let mut names = Vec::new();
        for _ in 0..3 {
            names.push(queue.next().await.0.pod.key.name.clone());
        }
        assert_eq!(names, ["b", "a", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_pod_waits_for_an_event_and_its_back_off() {
        let queue = Queue::default();
        queue.add(pod("a", 0), false);
        let (waiting, events) = queue.next().await;
        let start = Instant::now();
        queue.put_back(waiting, events);
        assert_eq!(queue.lengths(), [0, 0, 1, 0]);
        queue.on_event(|_| false);
        assert_eq!(queue.lengths(), [0, 0, 1, 0]);
        queue.on_event(|_| true);
        assert_eq!(queue.lengths(), [0, 1, 0, 0]);
        let (waiting, events) = queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        // An event while it was being tried.
        queue.on_event(|_| true);
        queue.put_back(waiting, events);
        let (waiting, events) = queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        queue.put_back(waiting, events);
        queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(303));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_goes_while_it_is_tried_does_not_come_back() {
        let queue = Queue::default();
        queue.add(pod("a", 0), false);
        let (waiting, events) = queue.next().await;
        queue.remove(&id(&pod("a", 0)));
        queue.put_back(waiting.clone(), events);
        queue.retry(waiting);
        assert_eq!(queue.lengths(), [0, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn gated_pods_are_not_tried_and_removed_ones_are_gone() {
        let queue = Queue::default();
        queue.add(pod("a", 0), true);
        queue.on_event(|_| true);
        assert_eq!(queue.lengths(), [0, 0, 0, 1]);
        queue.add(pod("a", 0), false);
        assert_eq!(queue.lengths(), [1, 0, 0, 0]);
        queue.remove(&id(&pod("a", 0)));
        assert_eq!(queue.lengths(), [0, 0, 0, 0]);
    }
}
