//! Pod workers: one task for each pod of this node, from the moment it is bound until its last trace is gone.
//!
//! ```text
//!  API watch ---desired---> worker: read the runtime -> plan -> do the steps -> again, until nothing is to do
//!  runtime events --wake------^            |
//!  probes --------wake--------+            +-> status, computed from the same view
//! ```
//! A worker keeps nothing that matters: what runs is found by the labels of sandboxes and containers, what shall run by
//! the API. So the kubelet can be killed at any time, and pods do not notice.

mod admit;
mod end;
mod execute;
mod memory;
mod plan;
#[cfg(test)]
mod plan_tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::Pod;
use minato_cri::CriError;
use minato_runtime::{Change, EventKind};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::context::Context;
use crate::fields::Place;
use crate::pods::{PodId, is_mirror, is_terminal};
use crate::probes::Probes;
use crate::static_pods;
use crate::status::{Outcome, Situation, StatusSender, compute};
use crate::view::{Ended, PodView};
use crate::volumes::{self, Tokens, Volumes};

pub(crate) use end::end_orphan;
pub(crate) use memory::Memory;

/// A worker looks this often even if nothing happens.
const RESYNC: Duration = Duration::from_secs(60);
/// Rounds of planning in a row; more are a fault of the plan.
const ROUNDS: usize = 100;

/// What is wanted of a pod.
#[derive(Clone)]
pub(crate) struct Desired {
    pub(crate) pod: Arc<Pod>,
    /// It is no longer in the API: what runs must end, and nobody is to be told.
    pub(crate) gone: bool,
}

impl Desired {
    fn must_end(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }
}

struct Handle {
    desired: watch::Sender<Desired>,
    wake: Arc<Notify>,
    /// Of a static pod: its mirror may be gone.
    mirror: Arc<Notify>,
}

/// All workers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Workers {
    context: Arc<Context>,
    handles: Arc<Mutex<HashMap<String, Handle>>>,
    /// Counts workers that ended.
    removals: watch::Sender<u64>,
}

impl Workers {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            handles: Arc::default(),
            removals: watch::Sender::new(0),
        }
    }

    /// Takes a change of the API's pods in. Quick.
    pub(crate) fn on_change(&self, change: &Change<Pod>) {
        let pod = change.object().clone();
        let gone = matches!(change, Change::Deleted(_));
        if is_mirror(&pod) {
            if gone {
                self.mirror_gone(&pod);
            }
            return;
        }
        self.put(Desired { pod, gone });
    }

    fn mirror_gone(&self, mirror: &Pod) {
        let shown = |pod: &Pod| {
            static_pods::is_static(pod)
                && pod.metadata.name == mirror.metadata.name
                && pod.metadata.namespace == mirror.metadata.namespace
        };
        let handles = self.handles.lock();
        for handle in handles.values().filter(|handle| shown(&handle.desired.borrow().pod)) {
            handle.mirror.notify_one();
        }
    }

    /// Says what is wanted of a pod. Quick.
    pub(crate) fn put(&self, desired: Desired) {
        let id = PodId::of(&desired.pod);
        let mut handles = self.handles.lock();
        if let Some(handle) = handles.get(&id.uid) {
            handle.desired.send_replace(desired);
            return;
        }
        if desired.gone {
            return;
        }
        let (sender, receiver) = watch::channel(desired);
        let handle = Handle {
            desired: sender,
            wake: Arc::new(Notify::new()),
            mirror: Arc::new(Notify::new()),
        };
        let worker = Worker::new(self.clone(), id.clone(), receiver, &handle);
        handles.insert(id.uid, handle);
        self.context.tasks.spawn("pod", worker.run());
    }

    /// Waits until the pod has no worker.
    pub(crate) async fn until_removed(&self, uid: &str) {
        let mut removals = self.removals.subscribe();
        while self.has(uid) {
            // The sender lives in `self`.
            let _ = removals.changed().await;
        }
    }

    /// Something happened to that pod in the runtime.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(handle) = self.handles.lock().get(uid) {
            handle.wake.notify_one();
        }
    }

    /// Whether the pod has a worker.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.handles.lock().contains_key(uid)
    }

    /// The pods that have workers.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        self.handles
            .lock()
            .values()
            .map(|handle| handle.desired.borrow().pod.clone())
            .collect()
    }

    /// The pod of that name, if it has a worker.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let fits = |pod: &Arc<Pod>| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        };
        let mut found: Vec<Arc<Pod>> = self.pods().into_iter().filter(fits).collect();
        found.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
        found.pop()
    }

    fn remove(&self, uid: &str) {
        self.handles.lock().remove(uid);
        self.removals.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// The state of one worker.
struct Worker {
    workers: Workers,
    context: Arc<Context>,
    id: PodId,
    desired: watch::Receiver<Desired>,
    wake: Arc<Notify>,
    objects: Arc<Notify>,
    memory: Memory,
    probes: Probes,
    tokens: Tokens,
    ended: Ended,
    volumes: Option<Volumes>,
    status: StatusSender,
    outcome: Option<Outcome>,
    /// Nothing will run again.
    finished: bool,
    /// What a finished pod held is given back.
    swept: bool,
    admitted: bool,
    /// Containers whose preStop hook was run.
    hooked: HashSet<String>,
}

impl Worker {
    fn new(workers: Workers, id: PodId, desired: watch::Receiver<Desired>, handle: &Handle) -> Self {
        let context = workers.context.clone();
        let pod = desired.borrow().pod.clone();
        let client = context.client.clone();
        let status = if static_pods::is_static(&pod) {
            StatusSender::start_mirror(client, pod.clone(), context.node.clone(), handle.mirror.clone())
        } else {
            StatusSender::start(client, &pod)
        };
        Self {
            objects: context.objects.changes_for(&id.uid),
            status,
            wake: handle.wake.clone(),
            finished: is_terminal(&pod),
            workers,
            context,
            id,
            desired,
            memory: Memory::default(),
            probes: Probes::default(),
            tokens: Tokens::default(),
            ended: Ended::new(),
            volumes: None,
            outcome: None,
            swept: false,
            admitted: false,
            hooked: HashSet::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let desired = self.desired.borrow_and_update().clone();
            if desired.must_end() {
                self.end().await;
                return;
            }
            let mut ending = self.desired.clone();
            let next = tokio::select! {
                next = self.sync(&desired.pod) => next,
                // Whatever is being done (a pull, say) is dropped; what it left half done is seen and undone.
                _ = ending.wait_for(Desired::must_end) => continue,
            };
            self.wait(next).await;
        }
    }

    async fn wait(&mut self, next: Option<Timestamp>) {
        let until = next.map_or(RESYNC, |at| {
            Duration::try_from(at.duration_since(Timestamp::now()))
                .unwrap_or_default()
                .min(RESYNC)
        });
        tokio::select! {
            _ = self.desired.changed() => {}
            () = self.wake.notified() => {}
            () = self.objects.notified() => self.memory.objects_changed(Timestamp::now()),
            () = tokio::time::sleep(until) => {}
        }
    }

    async fn read(&mut self) -> Result<PodView, CriError> {
        PodView::read(&self.context.cri, &self.id.uid, &mut self.ended).await
    }

    /// Where the pod is, for its environment and files.
    fn place(&self, pod: &Pod, view: &PodView) -> Place {
        let host_ips: Vec<String> = self.context.host_ips().iter().map(ToString::to_string).collect();
        let pod_ips = match crate::pods::is_host_network(pod) {
            true => host_ips.clone(),
            false => view.sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default(),
        };
        Place {
            node_name: self.context.settings.node_name.clone(),
            host_ips,
            pod_ips,
        }
    }

    /// Brings the pod to what it shall be, as far as that is possible now. When to look again, if at a certain time.
    async fn sync(&mut self, pod: &Arc<Pod>) -> Option<Timestamp> {
        for _ in 0..ROUNDS {
            let view = match self.read().await {
                Ok(view) => view,
                Err(error) => {
                    tracing::warn!(pod = self.id.long(), %error, "the runtime does not answer");
                    return Some(Timestamp::now() + SignedDuration::from_secs(1));
                }
            };
            let now = Timestamp::now();
            self.judge(pod, &view, now);
            if self.finished || self.outcome.is_some() {
                self.probes.stop();
                self.finish(pod, &view).await;
                let unsettled = view.containers.iter().any(|c| c.is_unsettled(now));
                return unsettled.then(|| now + SignedDuration::from_millis(300));
            }
            let context = self.context.clone();
            let ip = self.place(pod, &view).pod_ips.first().cloned();
            self.probes
                .follow(&context, pod, ip.as_deref(), view.running(), &self.wake);
            let plan = plan::plan(&plan::Inputs {
                pod,
                view: &view,
                memory: &self.memory,
                health: &|id| self.probes.health(id),
                now,
            });
            if plan.finished {
                self.finished = true;
                continue;
            }
            self.publish(pod, &view);
            if plan.steps.is_empty() {
                let refresh = self.refresh(pod, &view).await;
                self.collect_garbage(&view).await;
                return plan.wake.into_iter().chain(refresh).chain(plan::deadline(pod)).min();
            }
            let starts = plan
                .steps
                .iter()
                .any(|s| matches!(s, plan::Step::Start { .. } | plan::Step::CreateSandbox { .. }));
            if starts && let Err(until) = self.prepare(pod, &view).await {
                self.publish(pod, &view);
                return Some(until);
            }
            for step in plan.steps {
                self.execute(pod, &view, step).await;
            }
        }
        tracing::error!(pod = self.id.long(), "the pod does not settle");
        Some(Timestamp::now() + SignedDuration::from_secs(10))
    }

    /// Verdicts on the whole pod.
    fn judge(&mut self, pod: &Arc<Pod>, view: &PodView, now: Timestamp) {
        if self.outcome.is_some() || self.finished {
            return;
        }
        if plan::deadline(pod).is_some_and(|deadline| deadline <= now) {
            let message = "Pod was active on the node longer than the specified deadline";
            self.context
                .event(pod, None, EventKind::Normal, "DeadlineExceeded", message);
            self.outcome = Some(Outcome {
                reason: "DeadlineExceeded".to_owned(),
                message: message.to_owned(),
            });
            return;
        }
        // What runs already was admitted by an earlier kubelet.
        if !self.admitted && view.sandboxes.is_empty() {
            let others = self.workers.pods();
            if let Some(outcome) = admit::admit(&self.context, pod, &others) {
                self.context
                    .event(pod, None, EventKind::Warning, &outcome.reason, outcome.message.clone());
                self.outcome = Some(outcome);
                return;
            }
        }
        self.admitted = true;
    }

    fn publish(&self, pod: &Arc<Pod>, view: &PodView) {
        self.status.set(self.status_now(pod, view), pod);
    }

    fn status_now(&self, pod: &Pod, view: &PodView) -> minato_api::k8s::core::v1::PodStatus {
        compute(&Situation {
            pod,
            view,
            memory: &self.memory,
            health: &|id| self.probes.health(id),
            host_ips: &self.context.host_ips(),
            outcome: self.outcome.as_ref(),
            finished: self.finished || self.outcome.is_some(),
            now: Timestamp::now(),
        })
    }

    /// Brings the volumes of a running pod up to date; when a token will be due.
    async fn refresh(&mut self, pod: &Pod, view: &PodView) -> Option<Timestamp> {
        view.sandbox()?;
        let place = self.place(pod, view);
        match volumes::ensure(&self.context, pod, &place, &mut self.tokens).await {
            Ok(volumes) => {
                let refresh = volumes.refresh;
                self.volumes = Some(volumes);
                refresh
            }
            Err(error) => {
                // The containers go on with what they have.
                tracing::warn!(pod = self.id.long(), %error, "bringing volumes up to date failed");
                Some(Timestamp::now() + SignedDuration::from_secs(10))
            }
        }
    }
}
