//! ConfigMaps and Secrets that pods here use: each is watched on its own for as long as a pod needs it, because that is all
//! a node may read.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s_openapi::NamespaceResourceScope;
use minato_api::kube::{Api, Client, Resource};
use minato_runtime::{Informer, Object, Tasks, WatchScope};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How long the first answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The object cannot be had now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("timed out waiting for {kind} \"{name}\"")]
    Timeout { kind: &'static str, name: String },
}

type Key = (TypeId, String, String);

struct Watched {
    informer: Box<dyn Any + Send + Sync>,
    tasks: Tasks,
    /// Uids of the pods that use it.
    users: Users,
}

type Users = Arc<Mutex<Vec<String>>>;
/// By uid of a pod: told when an object changed that it uses.
type Listeners = Arc<Mutex<HashMap<String, Arc<Notify>>>>;

/// All watched objects.
pub(crate) struct Objects {
    client: Client,
    tasks: Tasks,
    watched: Mutex<HashMap<Key, Watched>>,
    listeners: Listeners,
}

impl Objects {
    pub(crate) fn new(client: Client, tasks: Tasks) -> Self {
        Self {
            client,
            tasks,
            watched: Mutex::default(),
            listeners: Listeners::default(),
        }
    }

    /// Told whenever an object changed that the pod with that uid uses, until [`Objects::forget`].
    pub(crate) fn changes_for(&self, uid: &str) -> Arc<Notify> {
        self.listeners.lock().entry(uid.to_owned()).or_default().clone()
    }

    /// The pod with that uid is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.release(uid);
        self.listeners.lock().remove(uid);
    }

    /// The object, for the pod with that uid, from then on watched until [`Objects::release`].
    pub(crate) async fn get<K>(&self, uid: &str, namespace: &str, name: &str) -> Result<Arc<K>, ObjectError>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let kind = if K::kind(&()) == "Secret" {
            "secret"
        } else {
            "configmap"
        };
        let informer = self.informer::<K>(uid, namespace, name);
        let missing = |name: &str| ObjectError::Timeout {
            kind,
            name: name.to_owned(),
        };
        if tokio::time::timeout(PATIENCE, informer.synced()).await.is_err() {
            return Err(missing(name));
        }
        informer.get_in(namespace, name).ok_or_else(|| ObjectError::NotFound {
            kind,
            name: name.to_owned(),
        })
    }

    fn informer<K>(&self, uid: &str, namespace: &str, name: &str) -> Informer<K>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let key = (TypeId::of::<K>(), namespace.to_owned(), name.to_owned());
        let mut watched = self.watched.lock();
        let entry = watched.entry(key).or_insert_with(|| {
            let tasks = self.tasks.child();
            let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
            let scope = WatchScope {
                fields: Some(format!("metadata.name={name}")),
                labels: None,
            };
            let informer = Informer::start(api, scope, &tasks);
            let users = Users::default();
            let (told, listeners) = (users.clone(), self.listeners.clone());
            informer.on_change(move |_| {
                let listeners = listeners.lock();
                for listener in told.lock().iter().filter_map(|user| listeners.get(user)) {
                    listener.notify_one();
                }
            });
            Watched {
                informer: Box::new(informer),
                tasks,
                users,
            }
        });
        let mut users = entry.users.lock();
        if !users.iter().any(|user| user == uid) {
            users.push(uid.to_owned());
        }
        drop(users);
        // The key holds the type.
        entry
            .informer
            .downcast_ref::<Informer<K>>()
            .cloned()
            .unwrap_or_else(Informer::detached)
    }

    /// The pod with that uid uses nothing any more.
    pub(crate) fn release(&self, uid: &str) {
        self.watched.lock().retain(|_, watched| {
            let mut users = watched.users.lock();
            users.retain(|user| user != uid);
            if users.is_empty() {
                watched.tasks.token().cancel();
            }
            !users.is_empty()
        });
    }
}
