//! The loop: pods in, decisions out.

use std::collections::HashMap;
use std::sync::Arc;

use minato_api::k8s::core::v1::{Namespace, Node, Pod};
use minato_api::k8s::policy::v1::PodDisruptionBudget;
use minato_api::kube;
use minato_runtime::{Change, EventKind, Informer, ObjectKey, Recorder, Runtime, Tasks};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::Semaphore;

use crate::bind::Nomination;
use crate::cache::{Cache, PodId};
use crate::config::{Configuration, DEFAULT_NAME};
use crate::framework::{CycleState, Event, Profile, Unschedulable};
use crate::owners::Owners;
use crate::pod::{self, PodInfo};
use crate::preemption::{self, Budget, Outcome};
use crate::queue::{Queue, Waiting};
use crate::{bind, cycle};

/// Settings of a scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// Which `spec.schedulerName`s it serves, and how.
    pub configuration: Configuration,
    /// Requests that carry out decisions at a time.
    pub parallel_binds: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            configuration: Configuration::default(),
            parallel_binds: 64,
        }
    }
}

/// The scheduler of one cluster, as a value.
pub struct Scheduler {
    config: SchedulerConfig,
    runtime: Runtime,
    recorder: Recorder,
    profiles: HashMap<String, Profile>,
    cache: Mutex<Cache>,
    pods: Informer<Pod>,
    budgets: Informer<PodDisruptionBudget>,
    queue: Queue,
    attempts: Family<Attempt, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    result: &'static str,
}

/// What is to be done so that a pod gets room.
struct Room {
    nomination: Nomination,
    victims: Vec<Arc<PodInfo>>,
    /// Less important pods that were to come to the node.
    displaced: Vec<Arc<PodInfo>>,
}

/// A running scheduler. Dropping it does not stop it.
pub struct SchedulerHandle {
    tasks: Tasks,
}

impl SchedulerHandle {
    /// Stops it and waits; decisions that were not carried out yet are made anew by the next one.
    pub async fn stop(&self) {
        self.tasks.stop().await;
    }

    /// Why it stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.tasks.failure()
    }
}

impl Scheduler {
    /// Starts scheduling what `runtime`'s client sees. Of several replicas only the elected leader may call this.
    pub fn start(config: SchedulerConfig, runtime: &Runtime) -> SchedulerHandle {
        let tasks = runtime.tasks.child();
        let attempts = Family::default();
        let help = "Number of attempts to schedule pods, by the result";
        runtime
            .metrics
            .register("scheduler_schedule_attempts", help, attempts.clone());
        let (nodes, pods): (Informer<Node>, Informer<Pod>) = (runtime.informers.of(), runtime.informers.of());
        let owners = Owners::of(&runtime.informers);
        let specs = config.configuration.profiles.iter();
        let profiles = specs
            .map(|spec| (spec.name.clone(), Profile::new(spec, Some(&owners))))
            .collect();
        let this = Arc::new(Self {
            config,
            pods: pods.clone(),
            budgets: runtime.informers.of(),
            recorder: runtime.recorder("default-scheduler"),
            runtime: runtime.with_tasks(tasks.clone()),
            profiles,
            cache: Mutex::default(),
            queue: Queue::default(),
            attempts,
        });
        let namespaces: Informer<Namespace> = runtime.informers.of();
        this.follow(&nodes, &pods);
        this.follow_namespaces(&namespaces);
        tasks.spawn("scheduler", async move {
            nodes.synced().await;
            pods.synced().await;
            namespaces.synced().await;
            this.budgets.synced().await;
            owners.synced().await;
            this.run().await;
        });
        SchedulerHandle { tasks }
    }

    fn follow(self: &Arc<Self>, nodes: &Informer<Node>, pods: &Informer<Pod>) {
        let token = self.runtime.tasks.token().clone();
        let (this, stopped) = (self.clone(), token.clone());
        nodes.on_change(move |change| {
            if !stopped.is_cancelled() {
                this.on_node(change);
            }
        });
        let this = self.clone();
        pods.on_change(move |change| {
            if !token.is_cancelled() {
                this.on_pod(change);
            }
        });
    }

    fn follow_namespaces(self: &Arc<Self>, namespaces: &Informer<Namespace>) {
        let token = self.runtime.tasks.token().clone();
        let this = self.clone();
        namespaces.on_change(move |change| {
            if token.is_cancelled() {
                return;
            }
            let (new, old) = (change.object(), change.old());
            let name = new.metadata.name.as_deref().unwrap_or_default();
            if matches!(change, Change::Deleted(_)) {
                this.cache.lock().remove_namespace(name);
            } else if old.is_none_or(|old| old.metadata.labels != new.metadata.labels) {
                let labels = new.metadata.labels.clone().unwrap_or_default();
                this.cache.lock().set_namespace(name, labels);
                this.tell(Event::NamespaceChanged);
            }
        });
    }

    fn on_node(&self, change: &Change<Node>) {
        match change {
            Change::Added(node) => {
                self.cache.lock().set_node(node);
                self.tell(Event::NodeAdded);
            }
            Change::Updated { old, new } => {
                // Heartbeats change only what is of no interest here.
                let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
                let grown = allocatable(old) != allocatable(new);
                let other = old.metadata.labels != new.metadata.labels || old.spec != new.spec;
                let images = |node: &Node| node.status.as_ref().and_then(|status| status.images.clone());
                if grown || other || images(old) != images(new) {
                    self.cache.lock().set_node(new);
                }
                if grown {
                    self.tell(Event::NodeAdded);
                } else if other {
                    self.tell(Event::NodeChanged);
                }
            }
            Change::Deleted(node) => {
                self.cache
                    .lock()
                    .remove_node(node.metadata.name.as_deref().unwrap_or_default());
                // What is to be spread evenly is compared with what is left.
                self.tell(Event::NodeChanged);
            }
        }
    }

    fn on_pod(&self, change: &Change<Pod>) {
        let pod = change.object();
        let id = PodId {
            key: ObjectKey::of(pod.as_ref()),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
        };
        if let Change::Deleted(_) = change {
            self.queue.remove(&id);
            let mut cache = self.cache.lock();
            cache.remove_pod(&id.uid);
            cache.withdraw(&id.uid);
            drop(cache);
            self.tell(Event::PodGone);
            return;
        }
        if pod::node_name(pod).is_some() {
            self.queue.remove(&id);
            let mut cache = self.cache.lock();
            cache.set_pod(pod);
            cache.withdraw(&id.uid);
            drop(cache);
            let placed = change
                .old()
                .is_none_or(|old| pod::node_name(old).is_none() || old.metadata.labels != pod.metadata.labels);
            if pod::is_finished(pod) {
                if change.old().is_some_and(|old| !pod::is_finished(old)) {
                    self.tell(Event::PodGone);
                }
            } else if placed {
                self.tell(Event::PodPlaced);
            }
            return;
        }
        self.follow_nomination(change, &id);
        self.consider(change, &id);
    }

    /// Keeps in step with what statuses say about pods for which room is being made; a scheduler that starts learns of
    /// them here.
    fn follow_nomination(&self, change: &Change<Pod>, id: &PodId) {
        let of = |pod: &Pod| {
            let name = pod
                .status
                .as_ref()
                .and_then(|status| status.nominated_node_name.clone());
            name.filter(|name| !name.is_empty())
        };
        let pod = change.object();
        let (old, new) = (change.old().and_then(|old| of(old)), of(pod));
        // What is decided here is newer than what is said there until that changes.
        if old == new {
            return;
        }
        match new {
            Some(node) => {
                let info = Arc::new(PodInfo::new(pod.clone()));
                let mut cache = self.cache.lock();
                if !cache.is_placed(&id.uid) && !pod::is_finished(pod) {
                    cache.nominate(info, &node);
                }
            }
            None => {
                self.cache.lock().withdraw(&id.uid);
                self.tell(Event::PodGone);
            }
        }
    }

    /// A pod without a node: queues it if it is ours and has changed in a way that may matter.
    fn consider(&self, change: &Change<Pod>, id: &PodId) {
        let pod = change.object();
        let profile = self
            .profile_of(pod)
            .filter(|_| pod.metadata.deletion_timestamp.is_none() && !pod::is_finished(pod));
        let Some(profile) = profile else {
            return self.queue.remove(id);
        };
        let same = |old: &Pod| old.spec == pod.spec && old.metadata.labels == pod.metadata.labels;
        if change.old().is_some_and(|old| same(old)) || self.cache.lock().is_placed(&id.uid) {
            return;
        }
        let info = Arc::new(PodInfo::new(pod.clone()));
        let gated = profile.pre_enqueue(&info).is_err();
        self.queue.add(info, gated);
    }

    /// The profile that the pod asks for, if it is one of these.
    fn profile_of(&self, pod: &Pod) -> Option<&Profile> {
        let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        self.profiles.get(name.unwrap_or(DEFAULT_NAME))
    }

    fn tell(&self, event: Event) {
        self.queue.on_event(|waiting| {
            self.profile_of(&waiting.pod.pod)
                .is_some_and(|profile| profile.wakes(event, &waiting.pod, &waiting.rejected_by))
        });
    }

    async fn run(self: Arc<Self>) {
        let permits = Arc::new(Semaphore::new(self.config.parallel_binds));
        loop {
            let (waiting, events) = self.queue.next().await;
            let Some(profile) = self.profile_of(&waiting.pod.pod) else {
                self.queue.done(&waiting.pod);
                continue;
            };
            let outcome = {
                let mut cache = self.cache.lock();
                if cache.is_placed(&waiting.pod.uid) {
                    // Somebody else has given it a node.
                    self.queue.done(&waiting.pod);
                    continue;
                }
                let mut state = CycleState::default();
                match cycle::decide(profile, &waiting.pod, &cache, &mut state) {
                    Ok(node) => {
                        cache.assume(waiting.pod.clone(), &node);
                        Ok(node)
                    }
                    Err(mut why) => {
                        let room = self.make_room(profile, &mut cache, &waiting.pod, &state, &mut why);
                        Err((why, room))
                    }
                }
            };
            match outcome {
                Ok(node) => {
                    let Ok(permit) = permits.clone().acquire_owned().await else {
                        return;
                    };
                    let this = self.clone();
                    self.runtime.tasks.spawn("bind", async move {
                        let _permit = permit;
                        this.carry_out(waiting, &node).await;
                    });
                }
                Err((why, room)) => self.reject(waiting, events, why, room),
            }
        }
    }

    async fn carry_out(&self, waiting: Waiting, node: &str) {
        match bind::bind(&self.runtime.client, &waiting.pod, node).await {
            Ok(()) => {
                self.queue.done(&waiting.pod);
                self.count("scheduled");
                let key = &waiting.pod.key;
                let text = format!("Successfully assigned {key} to {node}");
                self.recorder
                    .event(waiting.pod.pod.as_ref(), EventKind::Normal, "Scheduled", text);
            }
            Err(error) => {
                // What its status says of a node that is kept for it holds again.
                let seen = self.pods.get(&waiting.pod.key);
                let kept = seen.and_then(|pod| pod.status.as_ref()?.nominated_node_name.clone());
                let mut cache = self.cache.lock();
                cache.forget(&waiting.pod.uid);
                if let Some(node) = kept.filter(|node| !node.is_empty() && !cache.is_placed(&waiting.pod.uid)) {
                    cache.nominate(waiting.pod.clone(), &node);
                }
                drop(cache);
                self.tell(Event::PodGone);
                if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                    return self.queue.done(&waiting.pod);
                }
                // A conflict may be about anything: what the pod is now decides whether it is tried again.
                let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
                if conflict && !self.waits(&waiting.pod) {
                    return self.queue.done(&waiting.pod);
                }
                self.count("error");
                if !conflict {
                    let text = format!("binding rejected: {error}");
                    self.recorder
                        .event(waiting.pod.pod.as_ref(), EventKind::Warning, "FailedScheduling", text);
                }
                self.queue.retry(waiting);
            }
        }
    }

    /// Whether the pod, as last seen, is still the one that was tried and has no node.
    fn waits(&self, pod: &PodInfo) -> bool {
        self.pods
            .get(&pod.key)
            .is_some_and(|now| now.metadata.uid.as_deref() == Some(pod.uid.as_str()) && pod::node_name(&now).is_none())
    }

    /// Looks whether less important pods could make room, and counts the pod as to come where they will.
    fn make_room(
        &self,
        profile: &Profile,
        cache: &mut Cache,
        pod: &Arc<PodInfo>,
        state: &CycleState,
        why: &mut Unschedulable,
    ) -> Room {
        let mut room = Room {
            nomination: Nomination::Keep,
            victims: Vec::new(),
            displaced: Vec::new(),
        };
        if why.nodes == 0 || profile.preemption.is_none() {
            return room;
        }
        let budgets: Vec<Budget> = self.budgets.list().iter().map(|budget| Budget::new(budget)).collect();
        match preemption::evaluate(profile, pod, cache, state, why, &budgets) {
            Outcome::Wait(text) => why.preemption = text,
            Outcome::Hopeless(text) => {
                why.preemption = text;
                cache.withdraw(&pod.uid);
                room.nomination = Nomination::Clear;
            }
            Outcome::Room(plan) => {
                let lesser = cache
                    .nominated_to(&plan.node)
                    .filter(|other| other.priority < pod.priority);
                room.displaced = lesser.cloned().collect();
                for other in &room.displaced {
                    cache.withdraw(&other.uid);
                }
                cache.nominate(pod.clone(), &plan.node);
                room.victims = plan.victims;
                room.nomination = Nomination::To(plan.node);
            }
        }
        room
    }

    /// Tells the pods to go that make room. If that fails, the pod is tried again.
    async fn preempt(&self, pod: &PodInfo, room: Room) {
        let client = &self.runtime.client;
        for other in &room.displaced {
            if let Err(error) = bind::clear_nomination(client, other).await {
                tracing::warn!(pod = %other.key, %error, "taking back a nomination failed");
            }
        }
        let scheduler = self
            .profile_of(&pod.pod)
            .map_or(DEFAULT_NAME, |profile| profile.name.as_str());
        let Nomination::To(node) = &room.nomination else { return };
        for victim in &room.victims {
            if let Err(error) = bind::preempt(client, victim, scheduler).await {
                tracing::warn!(pod = %victim.key, for_pod = %pod.key, %error, "preempting failed");
                self.cache.lock().withdraw(&pod.uid);
                self.tell(Event::PodGone);
                return;
            }
            let text = format!("Preempted by pod {} on node {node}", pod.uid);
            self.recorder
                .event(victim.pod.as_ref(), EventKind::Normal, "Preempted", text);
        }
    }

    fn reject(self: &Arc<Self>, mut waiting: Waiting, events: u64, why: Unschedulable, room: Room) {
        self.count("unschedulable");
        let message = why.message();
        waiting.rejected_by = why.plugins;
        let pod = waiting.pod.clone();
        self.queue.put_back(waiting, events);
        self.recorder.event(
            pod.pod.as_ref(),
            EventKind::Warning,
            "FailedScheduling",
            message.clone(),
        );
        let this = self.clone();
        // The pod that was queued may be older: only what matters to decisions makes it anew.
        let seen = self.pods.get(&pod.key).unwrap_or_else(|| pod.pod.clone());
        self.runtime.tasks.spawn("say unschedulable", async move {
            let client = &this.runtime.client;
            let told = ("Unschedulable", message.as_str());
            if let Err(error) = bind::say_unschedulable(client, &pod, seen, told, &room.nomination).await {
                tracing::warn!(pod = %pod.key, %error, "writing why the pod is not scheduled failed");
            }
            this.preempt(&pod, room).await;
        });
    }

    fn count(&self, result: &'static str) {
        self.attempts.get_or_create(&Attempt { result }).inc();
    }
}
