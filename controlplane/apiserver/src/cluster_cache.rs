//! The server's own view of the cluster, for authorizers and admission: the kinds that they read, kept in memory by
//! following the store.
//!
//! Each kind is listed once and then watched; a watch that ends is taken up again where it broke off, or by a new list.
//! Kinds that nobody inside the server reads are not kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use minato_meta::{ApiError, CachedObject, Change, ClusterReader, GroupResource, Revision};
use minato_storage::{Event, EventKind, KeyValue, ListRequest, Store, StoreError, WatchItem, key, object};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::endpoints::store_error;

/// What is kept: group and plural name.
const FOLLOWED: &[(&str, &str)] = &[
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("networking.k8s.io", "ingressclasses"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
];
/// Changes of a kind that are remembered; a reader that is further behind starts over.
const HISTORY: usize = 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Namespace (empty for none) and name.
type Key = (Box<str>, Box<str>);

#[derive(Default)]
struct Kind {
    objects: BTreeMap<Key, CachedObject>,
    /// Complete up to here; zero until filled.
    revision: Revision,
    history: VecDeque<Change>,
    /// Changes up to and including this one are forgotten.
    forgotten: Revision,
}

impl Kind {
    fn replace(&mut self, prefix: &str, items: Vec<KeyValue>, revision: Revision) {
        self.objects = items
            .into_iter()
            .filter_map(|kv| Some((split(prefix, &kv.key)?, cached(&kv))))
            .collect();
        self.history.clear();
        self.forgotten = revision;
        self.revision = revision;
    }

    fn apply(&mut self, prefix: &str, event: &Event) {
        let Some(key) = split(prefix, &event.kv.key) else {
            return;
        };
        self.revision = self.revision.max(event.kv.mod_revision);
        let change = if event.kind == EventKind::Deleted {
            let Some(mut last) = self.objects.remove(&key) else {
                return;
            };
            last.revision = event.kv.mod_revision;
            Change::Deleted(last)
        } else {
            let object = cached(&event.kv);
            self.objects.insert(key, object.clone());
            Change::Applied(object)
        };
        if self.history.len() == HISTORY
            && let Some(Change::Applied(oldest) | Change::Deleted(oldest)) = self.history.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        self.history.push_back(change);
    }
}

fn split(prefix: &str, key: &str) -> Option<Key> {
    let (namespace, name) = key::split_object_key(prefix, key)?;
    Some((namespace.unwrap_or_default().into(), name.into()))
}

fn cached(kv: &KeyValue) -> CachedObject {
    CachedObject {
        revision: kv.mod_revision,
        json: object::with_revision(&kv.value, kv.mod_revision),
    }
}

/// The view. Empty until [`ClusterCache::follow`] has filled it.
pub(crate) struct ClusterCache {
    store: Arc<dyn Store>,
    kinds: HashMap<GroupResource, Arc<RwLock<Kind>>>,
}

impl ClusterCache {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let kinds = FOLLOWED.iter().map(|(group, resource)| {
            let resource = GroupResource::new(*group, *resource);
            (resource, Arc::new(RwLock::new(Kind::default())))
        });
        Self {
            store,
            kinds: kinds.collect(),
        }
    }

    /// Starts to follow the store, until `stop`; returns when every kind is filled, or at `stop`.
    pub(crate) async fn follow(&self, stop: &CancellationToken) {
        let mut waiting = Vec::new();
        for (resource, kind) in &self.kinds {
            let (send, receive) = watch::channel(false);
            let follower = Follower {
                store: self.store.clone(),
                prefix: key::resource_prefix(resource),
                resource: resource.clone(),
                kind: kind.clone(),
                filled: send,
            };
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = follower.run() => {}
                }
            });
            waiting.push(receive);
        }
        for mut filled in waiting {
            // An error means that the follower has ended, which it does at `stop` only.
            let _ = filled.wait_for(|filled| *filled).await;
        }
    }

    fn kind(&self, resource: &GroupResource) -> Option<&RwLock<Kind>> {
        self.kinds.get(resource).map(Arc::as_ref)
    }
}

struct Follower {
    store: Arc<dyn Store>,
    resource: GroupResource,
    prefix: String,
    kind: Arc<RwLock<Kind>>,
    filled: watch::Sender<bool>,
}

impl Follower {
    async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.kind.read().revision;
            if let Err(error) = self.list_and_watch().await {
                tracing::debug!(resource = %self.resource, %error, "the cluster cache takes up its watch again");
            }
            // Something was seen: the store is well, and the pause starts small again.
            if self.kind.read().revision > before {
                pause = FIRST_PAUSE;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn list_and_watch(&self) -> Result<(), StoreError> {
        let seen = self.kind.read().revision;
        let resumed = if seen > Revision(0) {
            self.store.watch(&self.prefix, seen).await.ok()
        } else {
            None
        };
        let mut events = match resumed {
            Some(events) => events,
            None => {
                let request = ListRequest {
                    prefix: self.prefix.clone(),
                    ..ListRequest::default()
                };
                let page = self.store.list(request).await?;
                self.kind.write().replace(&self.prefix, page.items, page.revision);
                self.filled.send_replace(true);
                self.store.watch(&self.prefix, page.revision).await?
            }
        };
        while let Some(item) = events.next().await {
            match item {
                Ok(WatchItem::Events(events)) => {
                    let mut kind = self.kind.write();
                    events.iter().for_each(|event| kind.apply(&self.prefix, event));
                }
                Ok(WatchItem::Progress(revision)) => {
                    let mut kind = self.kind.write();
                    kind.revision = kind.revision.max(revision);
                }
                Err(error) => {
                    if matches!(error, StoreError::Compacted { .. }) {
                        // What happened in between is gone: the next round lists.
                        self.kind.write().revision = Revision(0);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ClusterReader for ClusterCache {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<CachedObject> {
        let key: Key = (namespace.unwrap_or_default().into(), name.into());
        self.kind(resource)?.read().objects.get(&key).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<CachedObject> {
        let Some(kind) = self.kind(resource) else {
            return Vec::new();
        };
        let kind = kind.read();
        match namespace {
            None => kind.objects.values().cloned().collect(),
            Some(namespace) => {
                let first: Key = (namespace.into(), "".into());
                let range = kind.objects.range(first..);
                let own = range.take_while(|((of, _), _)| &**of == namespace);
                own.map(|(_, object)| object.clone()).collect()
            }
        }
    }

    fn revision(&self, resource: &GroupResource) -> Revision {
        self.kind(resource).map_or(Revision(0), |kind| kind.read().revision)
    }

    fn changes_since(&self, resource: &GroupResource, since: Revision) -> Option<(Vec<Change>, Revision)> {
        let kind = self.kind(resource)?.read();
        if since < kind.forgotten {
            return None;
        }
        let revision_of = |change: &Change| match change {
            Change::Applied(object) | Change::Deleted(object) => object.revision,
        };
        let first = kind.history.partition_point(|change| revision_of(change) <= since);
        Some((kind.history.range(first..).cloned().collect(), kind.revision))
    }

    async fn get_consistent(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<CachedObject>, ApiError> {
        let key = key::object_key(resource, namespace, name);
        let read = self.store.get(&key).await.map_err(store_error)?;
        Ok(read.kv.as_ref().map(cached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn event(kind: EventKind, name: &str, revision: u64) -> Event {
        Event {
            kind,
            kv: KeyValue {
                key: format!("/registry/pods/a/{name}"),
                value: Bytes::from_static(br#"{"metadata":{}}"#),
                create_revision: Revision(1),
                mod_revision: Revision(revision),
            },
            previous: None,
        }
    }

    #[test]
    fn followers_see_each_change_once_or_start_over() {
        let prefix = "/registry/pods/";
        let mut kind = Kind::default();
        kind.replace(prefix, vec![event(EventKind::Created, "p", 3).kv], Revision(5));
        assert_eq!(kind.objects.len(), 1);
        kind.apply(prefix, &event(EventKind::Created, "q", 6));
        kind.apply(prefix, &event(EventKind::Deleted, "p", 8));
        let pods = GroupResource::new("", "pods");
        let cache = ClusterCache {
            store: Arc::new(NoStore),
            kinds: HashMap::from([(pods.clone(), Arc::new(RwLock::new(kind)))]),
        };
        let (changes, reached) = cache.changes_since(&pods, Revision(5)).unwrap();
        assert!(matches!(changes.as_slice(), [Change::Applied(_), Change::Deleted(d)] if d.revision == Revision(8)));
        assert_eq!(reached, Revision(8));
        assert_eq!(cache.changes_since(&pods, Revision(6)).unwrap().0.len(), 1);
        assert!(cache.changes_since(&pods, Revision(8)).unwrap().0.is_empty());
        assert!(cache.changes_since(&pods, Revision(4)).is_none());
        assert_eq!(cache.list(&pods, Some("a")).len(), 1);
        assert!(cache.list(&pods, Some("b")).is_empty());
        assert!(cache.get(&pods, Some("a"), "p").is_none());
        for revision in 9..9 + HISTORY as u64 {
            cache.kinds[&pods]
                .write()
                .apply(prefix, &event(EventKind::Updated, "q", revision));
        }
        assert!(cache.changes_since(&pods, Revision(6)).is_none());
        assert_eq!(cache.changes_since(&pods, Revision(8)).unwrap().0.len(), HISTORY);
    }

    struct NoStore;

    #[async_trait]
    impl Store for NoStore {
        async fn get(&self, _: &str) -> Result<minato_storage::Read, StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
        async fn list(&self, _: ListRequest) -> Result<minato_storage::ListPage, StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
        async fn commit(&self, _: minato_storage::Txn) -> Result<minato_storage::Commit, minato_storage::CommitError> {
            Err(StoreError::Unavailable("none".into()).into())
        }
        async fn watch(&self, _: &str, _: Revision) -> Result<minato_storage::WatchStream, StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
        async fn revision(&self) -> Result<Revision, StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
        async fn request_progress(&self) -> Result<(), StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
        async fn compact(&self, _: Revision) -> Result<(), StoreError> {
            Err(StoreError::Unavailable("none".into()))
        }
    }
}
