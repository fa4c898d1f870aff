//! Informers: one watch and one cache per kind and process, shared by everyone who reads that kind.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use minato_api::kube::runtime::watcher::{self, Event, watcher};
use minato_api::kube::{Api, Client, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::key::ObjectKey;
use crate::store::{Index, Store};
use crate::tasks::Tasks;

/// A kind that can be watched.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<K> Object for K where K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

/// First and longest pause after a failed watch; in between it doubles.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

/// What happened to an object in the cache.
#[derive(Debug)]
pub enum Change<K> {
    /// It is new here.
    Added(Arc<K>),
    /// It replaced what was here.
    Updated {
        /// Before.
        old: Arc<K>,
        /// Now.
        new: Arc<K>,
    },
    /// It is gone; this is its last known state.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Deleted(object) => object,
            Self::Updated { new, .. } => new,
        }
    }

    /// The state before, of an update.
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added(_) | Self::Deleted(_) => None,
        }
    }
}

/// Which objects of a kind an informer of its own holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WatchScope {
    /// Such as `spec.nodeName=node-1`.
    pub fields: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

struct Shared<K> {
    store: RwLock<Store<K>>,
    /// Held while a change is applied and told, so that a new handler misses nothing and sees nothing twice.
    handlers: Mutex<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
}

/// The cache of one kind. Cheap to clone. Objects in it lack `managedFields`: never send one back whole as an apply.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

/// Handlers usually hold who registered them, who holds the informer: with the watch that circle ends, and with it all
/// that its members hold, such as the client and whatever is behind it.
struct ForgetHandlers<K>(Informer<K>);

impl<K> Drop for ForgetHandlers<K> {
    fn drop(&mut self) {
        let handlers = std::mem::take(&mut *self.0.shared.handlers.lock());
        // Outside of the lock: what they hold may end here, and look at this informer.
        drop(handlers);
    }
}

impl<K: Object> Informer<K> {
    /// Starts a watch of its own; see [`Informers`] for shared ones.
    pub fn start(api: Api<K>, scope: WatchScope, tasks: &Tasks) -> Self {
        let this = Self::detached();
        let forget = ForgetHandlers(this.clone());
        // What a watch keeps between events is large; see `Tasks::spawn`.
        let run = this.clone().run(api, scope).boxed();
        tasks.spawn("informer", async move {
            let _forget = forget;
            run.await;
        });
        this
    }

    /// A cache that nothing feeds but [`Informer::feed`]: for tests of what reads informers.
    pub fn detached() -> Self {
        Self {
            shared: Arc::new(Shared {
                store: RwLock::new(Store::default()),
                handlers: Mutex::new(Vec::new()),
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// Replaces the content of a detached cache and marks it as in step.
    pub fn feed(&self, objects: Vec<K>) {
        self.replace(objects);
    }

    /// The object of that key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.store.read().get(key)
    }

    /// The namespaced object of that name.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectKey::new(namespace, name))
    }

    /// The cluster-scoped object of that name.
    pub fn get_cluster(&self, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectKey::cluster(name))
    }

    /// All objects, in key order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.store.read().all()
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.shared.store.read().keys()
    }

    /// The objects of one namespace, in order of names.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.store.read().in_namespace(namespace)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.store.read().len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an index, unless one of that name exists.
    pub fn add_index(&self, name: &'static str, of: Index<K>) {
        self.shared.store.write().add_index(name, of);
    }

    /// The objects with `value` in the index `name`; none if there is no such index.
    pub fn indexed(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        self.shared.store.read().indexed(name, value)
    }

    /// Adds the index [`Informer::controlled_by`] needs.
    pub fn index_by_controller(&self) {
        self.add_index("controller", |object| {
            let owners = object.meta().owner_references.iter().flatten();
            owners
                .filter(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone())
                .collect()
        });
    }

    /// The objects whose controlling owner has this uid, after [`Informer::index_by_controller`].
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.indexed("controller", uid)
    }

    /// Calls `handler` for every object that is there and for every change from now on, in order. It runs on the
    /// watching task: it must be quick, must not block, and must not add handlers to the same informer.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.lock();
        for object in self.list() {
            handler(&Change::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    /// Whether the cache was in step with the server once.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until [`Informer::has_synced`].
    pub async fn synced(&self) {
        // The sender lives in `shared`, which `self` holds: the wait cannot fail.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    async fn run(self, api: Api<K>, scope: WatchScope) {
        let mut streaming = true;
        let mut pause = RECONNECT.0;
        loop {
            let mut config = watcher::Config::default();
            config.label_selector.clone_from(&scope.labels);
            config.field_selector.clone_from(&scope.fields);
            if streaming {
                config = config.streaming_lists();
            }
            let mut events = std::pin::pin!(watcher(api.clone(), config));
            let mut fresh: Option<Vec<K>> = None;
            // The watcher resumes by itself after errors; it is only made anew to change the way of listing.
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        pause = RECONNECT.0;
                        self.apply(event, &mut fresh);
                    }
                    Err(error) if streaming && refuses_streaming(&error) => {
                        tracing::debug!(kind = %K::kind(&()), "the server does not stream lists; listing instead");
                        streaming = false;
                        break;
                    }
                    Err(error) => {
                        let kind = K::kind(&());
                        tracing::warn!(%kind, error = &error as &dyn std::error::Error, "watch failed; resuming");
                        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                        pause = (pause * 2).min(RECONNECT.1);
                    }
                }
            }
        }
    }

    fn apply(&self, event: Event<K>, fresh: &mut Option<Vec<K>>) {
        match event {
            Event::Init => *fresh = Some(Vec::new()),
            Event::InitApply(mut object) => {
                object.meta_mut().managed_fields = None;
                fresh.get_or_insert_default().push(object);
            }
            Event::InitDone => self.replace(fresh.take().unwrap_or_default()),
            Event::Apply(mut object) => {
                object.meta_mut().managed_fields = None;
                let handlers = self.shared.handlers.lock();
                self.put(&handlers, object);
            }
            Event::Delete(object) => {
                let handlers = self.shared.handlers.lock();
                self.take(&handlers, &ObjectKey::of(&object), Some(object));
            }
        }
    }

    fn replace(&self, objects: Vec<K>) {
        let handlers = self.shared.handlers.lock();
        let kept: HashSet<ObjectKey> = objects.iter().map(ObjectKey::of).collect();
        for key in self.keys() {
            if !kept.contains(&key) {
                self.take(&handlers, &key, None);
            }
        }
        for object in objects {
            self.put(&handlers, object);
        }
        self.shared.synced.send_replace(true);
    }

    fn put(&self, handlers: &[Handler<K>], object: K) {
        let new = Arc::new(object);
        let mut changes = Vec::with_capacity(2);
        {
            let mut store = self.shared.store.write();
            match store.insert(new.clone()) {
                // Recreated under the same name while the watch was down: two objects, not an update.
                Some(old) if old.meta().uid != new.meta().uid => {
                    changes.push(Change::Deleted(old));
                    changes.push(Change::Added(new));
                }
                Some(old) if old.meta().resource_version == new.meta().resource_version => {}
                Some(old) => changes.push(Change::Updated { old, new }),
                None => changes.push(Change::Added(new)),
            }
        }
        tell(handlers, &changes);
    }

    fn take(&self, handlers: &[Handler<K>], key: &ObjectKey, last: Option<K>) {
        let removed = self.shared.store.write().remove(key);
        if let Some(removed) = removed {
            let last = last.map_or(removed, Arc::new);
            tell(handlers, &[Change::Deleted(last)]);
        }
    }
}

fn tell<K>(handlers: &[Handler<K>], changes: &[Change<K>]) {
    for change in changes {
        for handler in handlers {
            handler(change);
        }
    }
}

/// Whether the server does not stream lists: those before 1.27, and many that imitate one, answer 400, 403 or 422 to
/// `sendInitialEvents`.
pub fn refuses_streaming(error: &watcher::Error) -> bool {
    use minato_api::kube::Error::Api;
    match error {
        watcher::Error::WatchStartFailed(Api(status)) | watcher::Error::InitialListFailed(Api(status)) => {
            matches!(status.code, 400 | 403 | 422)
        }
        watcher::Error::WatchError(status) => matches!(status.code, 400 | 403 | 422),
        _ => false,
    }
}

/// All informers of a process: whoever asks for a kind first starts its watch. Cheap to clone.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    tasks: Tasks,
    informers: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Informers {
    /// No watch runs yet; those that start end with `tasks`.
    pub fn new(client: Client, tasks: Tasks) -> Self {
        Self {
            client,
            tasks,
            informers: Arc::default(),
        }
    }

    /// The client that they watch with.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The informer of `K` over all namespaces.
    pub fn of<K: Object>(&self) -> Informer<K> {
        let mut informers = self.informers.lock();
        let known = informers
            .get(&TypeId::of::<K>())
            .and_then(|any| any.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let informer = Informer::start(Api::<K>::all(self.client.clone()), WatchScope::default(), &self.tasks);
        informers.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        informer
    }
}

#[cfg(test)]
mod tests {
    use minato_api::k8s::core::v1::ConfigMap;

    use super::*;

    fn config_map(name: &str, uid: &str, version: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("a".to_owned());
        map.metadata.name = Some(name.to_owned());
        map.metadata.uid = Some(uid.to_owned());
        map.metadata.resource_version = Some(version.to_owned());
        map.metadata.managed_fields = Some(Vec::new());
        map
    }

    #[tokio::test]
    async fn what_handlers_hold_is_let_go_with_the_watch() {
        // Nobody listens there: the watch never succeeds, which is as good as one that does.
        let config = minato_api::kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let tasks = Tasks::new();
        let informer = Informer::<ConfigMap>::start(Api::all(client), WatchScope::default(), &tasks);
        let held = Arc::new(informer.clone());
        let holder = held.clone();
        informer.on_change(move |_| assert!(holder.is_empty()));
        assert_eq!(Arc::strong_count(&held), 2);
        tasks.stop().await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    fn recorded(informer: &Informer<ConfigMap>) -> Arc<Mutex<Vec<String>>> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        informer.on_change(move |change| {
            let verb = match change {
                Change::Added(_) => "added",
                Change::Updated { .. } => "updated",
                Change::Deleted(_) => "deleted",
            };
            let meta = &change.object().metadata;
            sink.lock()
                .push(format!("{verb} {}", meta.uid.clone().unwrap_or_default()));
        });
        seen
    }

    #[test]
    fn a_relist_tells_what_changed_and_nothing_else() {
        let informer = Informer::detached();
        let mut fresh = None;
        informer.apply(Event::Init, &mut fresh);
        for (name, uid) in [("one", "1"), ("two", "2"), ("three", "3")] {
            informer.apply(Event::InitApply(config_map(name, uid, "10")), &mut fresh);
        }
        assert!(!informer.has_synced() && informer.is_empty());
        informer.apply(Event::InitDone, &mut fresh);
        assert!(informer.has_synced());
        let seen = recorded(&informer);
        assert_eq!(*seen.lock(), ["added 1", "added 3", "added 2"]);
        seen.lock().clear();

        informer.feed(vec![
            config_map("one", "1", "10"),
            config_map("two", "2", "11"),
            config_map("three", "4", "12"),
        ]);
        assert_eq!(*seen.lock(), ["updated 2", "deleted 3", "added 4"]);
        seen.lock().clear();

        informer.apply(Event::Delete(config_map("two", "2", "13")), &mut fresh);
        informer.apply(Event::Apply(config_map("five", "5", "14")), &mut fresh);
        assert_eq!(*seen.lock(), ["deleted 2", "added 5"]);
        let five = informer.get_in("a", "five").unwrap();
        assert_eq!(five.metadata.managed_fields, None);
    }
}
