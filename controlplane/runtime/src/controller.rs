//! The harness of a controller: what it watches gives keys, keys are reconciled one at a time each, failures are tried
//! again later.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::informer::{Change, Informer, Object};
use crate::key::ObjectKey;
use crate::queue::WorkQueue;
use crate::tasks::panic_message;
use crate::{Runtime, Tasks};

/// What follows a reconciliation that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Done,
    /// Another one after this time, because time itself is an input.
    After(Duration),
}

impl Next {
    /// The sooner of two.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::Done, next) | (next, Self::Done) => next,
        }
    }
}

/// One controller in the making. `T` is what it reconciles, by name.
pub struct Controller<T = ObjectKey> {
    name: &'static str,
    queue: WorkQueue<T>,
    workers: usize,
    synced: Vec<BoxFuture<'static, ()>>,
    resync: Option<Box<dyn Fn() -> Vec<T> + Send + Sync>>,
    tasks: Tasks,
}

/// How often everything is reconciled without cause: a safety net against lost events, so rare and spread.
const RESYNC: Duration = Duration::from_secs(1800);

impl<T: Hash + Eq + Clone + Debug + Display + Send + Sync + 'static> Controller<T> {
    /// A controller with upstream's five workers.
    pub fn new(name: &'static str, runtime: &Runtime) -> Self {
        Self {
            name,
            queue: WorkQueue::new(name, &runtime.metrics),
            workers: 5,
            synced: Vec::new(),
            resync: None,
            tasks: runtime.tasks.clone(),
        }
    }

    /// How many keys may be reconciled at a time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// The queue, to add keys from elsewhere.
    pub fn queue(&self) -> WorkQueue<T> {
        self.queue.clone()
    }

    /// Queues the keys that `keys` gives for each change of a kind.
    #[must_use]
    pub fn watch<K: Object>(
        self,
        informer: &Informer<K>,
        keys: impl Fn(&Change<K>, &mut dyn FnMut(T)) + Send + Sync + 'static,
    ) -> Self {
        let (queue, token) = (self.queue.clone(), self.tasks.token().clone());
        informer.on_change(move |change| {
            // An informer may outlive a controller that was stopped.
            if !token.is_cancelled() {
                keys(change, &mut |key| queue.add(key));
            }
        });
        self.reads(informer)
    }

    /// Does not start before `informer` has synced.
    #[must_use]
    pub fn reads<K: Object>(mut self, informer: &Informer<K>) -> Self {
        let informer = informer.clone();
        self.synced.push(Box::pin(async move { informer.synced().await }));
        self
    }

    /// Does not start before `ready` has ended.
    #[must_use]
    pub fn after(mut self, ready: impl Future<Output = ()> + Send + 'static) -> Self {
        self.synced.push(Box::pin(ready));
        self
    }

    /// Reconciles what `keys` gives from time to time.
    #[must_use]
    pub fn resync(mut self, keys: impl Fn() -> Vec<T> + Send + Sync + 'static) -> Self {
        self.resync = Some(Box::new(keys));
        self
    }

    /// Starts: `reconcile` compares desired with observed for a key, changes what differs, and is safe to repeat.
    pub fn run<F, R, E>(self, reconcile: F)
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Next, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let tasks = self.tasks.clone();
        tasks.spawn(self.name, async move {
            let Self {
                name,
                queue,
                workers,
                synced,
                resync,
                ..
            } = self;
            futures::future::join_all(synced).await;
            tracing::debug!(controller = name, "started");
            let dispatch = dispatch(name, queue.clone(), workers, Arc::new(reconcile));
            tokio::join!(dispatch, resync_forever(queue, resync));
        });
    }
}

impl Controller<ObjectKey> {
    /// [`Controller::watch`] for the kind that is reconciled itself; also resyncs it.
    #[must_use]
    pub fn watch_primary<K: Object>(self, informer: &Informer<K>) -> Self {
        let all = informer.clone();
        self.watch(informer, |change, add| add(ObjectKey::of(change.object().as_ref())))
            .resync(move || all.keys())
    }
}

async fn resync_forever<T: Hash + Eq + Clone>(
    queue: WorkQueue<T>,
    keys: Option<Box<dyn Fn() -> Vec<T> + Send + Sync>>,
) {
    let Some(keys) = keys else { return };
    loop {
        tokio::time::sleep(RESYNC.mul_f64(rand::random_range(0.75..1.25))).await;
        for key in keys() {
            queue.add_after(key, Duration::from_secs(60).mul_f64(rand::random_range(0.0..1.0)));
        }
    }
}

async fn dispatch<T, F, R, E>(name: &'static str, queue: WorkQueue<T>, workers: usize, reconcile: Arc<F>)
where
    T: Hash + Eq + Clone + Debug + Display + Send + Sync + 'static,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Next, E>> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(workers));
    // Dropped with the dispatcher, and with it the running reconciliations.
    let mut running = JoinSet::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let key = queue.next().await;
        while running.try_join_next().is_some() {}
        let (queue, reconcile) = (queue.clone(), reconcile.clone());
        let span = tracing::debug_span!("reconcile", controller = name, key = %key);
        running.spawn(
            async move {
                let _permit = permit;
                let outcome = AssertUnwindSafe(async { reconcile(key.clone()).await })
                    .catch_unwind()
                    .await;
                match outcome {
                    Ok(Ok(next)) => {
                        queue.forget(&key);
                        if let Next::After(delay) = next {
                            queue.add_after(key.clone(), delay);
                        }
                    }
                    Ok(Err(error)) => {
                        report(name, &key, &error, queue.failures(&key));
                        queue.retry(key.clone());
                    }
                    Err(panic) => {
                        let message = panic_message(panic.as_ref());
                        tracing::error!(controller = name, %key, panic = message, "reconciliation panicked");
                        queue.retry(key.clone());
                    }
                }
                queue.done(&key);
            }
            .instrument(span),
        );
    }
}

/// The first failures of a key are often races that the next attempt settles.
fn report<T: Display>(name: &str, key: &T, error: &(dyn std::error::Error + 'static), failures: u32) {
    let chain = std::iter::successors(error.source(), |error| error.source());
    let cause = chain.last().map(ToString::to_string).unwrap_or_default();
    if failures < 3 {
        tracing::debug!(controller = name, %key, %error, cause, "reconciliation failed; will retry");
    } else {
        tracing::warn!(controller = name, %key, %error, cause, failures, "reconciliation keeps failing");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use minato_api::k8s::core::v1::ConfigMap;
    use parking_lot::Mutex;

    use super::*;
    use crate::Metrics;

    fn controller() -> (Controller, Tasks) {
        let tasks = Tasks::new();
        let controller = Controller {
            name: "test",
            queue: WorkQueue::new("test", &Metrics::new()),
            workers: 2,
            synced: Vec::new(),
            resync: None,
            tasks: tasks.clone(),
        };
        (controller, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_caches_and_retries_failures_and_panics() {
        let (controller, tasks) = controller();
        let informer: Informer<ConfigMap> = Informer::detached();
        let controller = controller.watch_primary(&informer);
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let (sender, mut done) = tokio::sync::mpsc::channel(1);
        let log = attempts.clone();
        controller.run(move |key: ObjectKey| {
            let attempt = {
                let mut log = log.lock();
                log.push(key.name.clone());
                log.len()
            };
            let sender = sender.clone();
            async move {
                match attempt {
                    1 => Err(std::io::Error::other("first")),
                    2 => panic!("second"),
                    3 => Ok(Next::After(Duration::from_secs(7))),
                    _ => {
                        let _ = sender.send(()).await;
                        Ok(Next::Done)
                    }
                }
            }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(attempts.lock().is_empty());
        let mut map = ConfigMap::default();
        map.metadata.name = Some("x".to_owned());
        let start = tokio::time::Instant::now();
        informer.feed(vec![map]);
        done.recv().await.unwrap();
        assert_eq!(*attempts.lock(), ["x", "x", "x", "x"]);
        // 5 ms after the first failure, 10 ms after the second, then what was asked for.
        assert_eq!(start.elapsed().as_millis(), 5 + 10 + 7000);
        tasks.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_reconciled_twice_at_a_time_and_workers_are_bounded() {
        let (controller, tasks) = controller();
        let queue = controller.queue();
        let running = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let counters = running.clone();
        controller.run(move |_key: ObjectKey| {
            let counters = counters.clone();
            async move {
                let now = counters.0.fetch_add(1, Ordering::SeqCst) + 1;
                counters.1.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                counters.0.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, std::io::Error>(Next::Done)
            }
        });
        for name in ["a", "b", "c", "d"] {
            queue.add(ObjectKey::cluster(name));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(running.1.load(Ordering::SeqCst), 2);
        assert!(queue.known().is_empty());
        tasks.stop().await;
    }
}
