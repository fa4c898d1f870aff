//! Supervision of tasks: every task of a component has a name and ends with the component; a panic stops the whole
//! component, whose owner may then start it anew. A half-dead component is worse than a dead one.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A group of tasks with one stop signal. Cheap to clone; clones are the same group.
#[derive(Clone)]
pub struct Tasks {
    token: CancellationToken,
    /// This group's tracker, then those of its parents: a parent's stop waits for its children's tasks too.
    trackers: Vec<TaskTracker>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// A group of its own.
    pub fn new() -> Self {
        Self {
            token: CancellationToken::new(),
            trackers: vec![TaskTracker::new()],
            failure: Arc::default(),
        }
    }

    /// A group that also ends when this one does, but can be stopped by itself.
    pub fn child(&self) -> Self {
        let mut trackers = vec![TaskTracker::new()];
        trackers.extend(self.trackers.iter().cloned());
        Self {
            token: self.token.child_token(),
            trackers,
            failure: Arc::default(),
        }
    }

    /// The stop signal.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Runs `task` until it ends or the group stops, in which case it is dropped at its next await.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.token.clone();
        // Boxed here and not further on: each wrapper around a future holds it twice, as argument and while awaiting.
        let task = task.boxed();
        self.spawn_graceful(name, async move {
            token.run_until_cancelled(task).await;
        });
    }

    /// Runs `task`, which must watch [`Tasks::token`] itself and end soon after it fires.
    pub fn spawn_graceful(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let group = self.clone();
        let task = task.boxed();
        let supervised = async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let message = panic_message(panic.as_ref());
                tracing::error!(task = name, panic = message, "a task panicked; its component stops");
                group
                    .failure
                    .lock()
                    .get_or_insert(format!("task {name} panicked: {message}"));
                group.token.cancel();
            }
        };
        let mut tracked: futures::future::BoxFuture<'static, ()> = supervised.boxed();
        for tracker in &self.trackers {
            tracked = tracker.track_future(tracked).boxed();
        }
        tokio::spawn(tracked);
    }

    /// Fires the stop signal and waits until all tasks have ended.
    pub async fn stop(&self) {
        self.token.cancel();
        if let Some(own) = self.trackers.first() {
            own.close();
            own.wait().await;
        }
    }

    /// Why the group stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// The text of a panic, as far as it has one.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_stops_the_group_and_names_the_task() {
        let tasks = Tasks::new();
        tasks.spawn("endless", futures::future::pending());
        tasks.spawn("faulty", async { panic!("no luck") });
        tasks.token().cancelled().await;
        tasks.stop().await;
        assert_eq!(tasks.failure().as_deref(), Some("task faulty panicked: no luck"));
    }

    #[tokio::test]
    async fn a_child_stops_alone_and_a_parent_takes_its_children_along() {
        let parent = Tasks::new();
        let (first, second) = (parent.child(), parent.child());
        first.spawn("a", futures::future::pending());
        second.spawn("b", futures::future::pending());
        first.stop().await;
        assert!(!parent.token().is_cancelled() && !second.token().is_cancelled());
        parent.stop().await;
        assert!(second.token().is_cancelled());
    }
}
