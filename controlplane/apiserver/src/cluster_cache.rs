//! The server's own view of the cluster, for authorizers and admission: the kinds that they read, kept warm in the watch
//! cache. Kinds that nobody inside the server reads are not kept.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, CachedObject, Change, ClusterReader, GroupResource, Revision};
use minato_storage::cache::{Entry, Resource, WatchCache};
use minato_storage::{Store, key, object};
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

/// The view. Empty until [`ClusterCache::follow`] has filled it.
pub(crate) struct ClusterCache {
    store: Arc<dyn Store>,
    resources: HashMap<GroupResource, Arc<Resource>>,
}

fn cached(entry: &Arc<Entry>) -> CachedObject {
    CachedObject {
        revision: entry.revision(),
        json: entry.json().clone(),
    }
}

impl ClusterCache {
    pub(crate) fn new(store: Arc<dyn Store>, cache: &WatchCache) -> Self {
        let resources = FOLLOWED.iter().map(|(group, resource)| {
            let name = GroupResource::new(*group, *resource);
            let resource = cache.resource(&name);
            (name, resource)
        });
        Self {
            store,
            resources: resources.collect(),
        }
    }

    /// Starts to follow the store; returns when every kind is filled, or at `stop`.
    pub(crate) async fn follow(&self, stop: &CancellationToken) {
        let filled = self.resources.values().map(|resource| async move {
            while let Err(error) = resource.filled().await {
                tracing::warn!(%error, "the server's view of the cluster is not filled yet");
                if resource.is_closed() {
                    return;
                }
            }
        });
        tokio::select! {
            _ = futures::future::join_all(filled) => {}
            () = stop.cancelled() => {}
        }
    }

    fn resource(&self, name: &GroupResource) -> Option<&Arc<Resource>> {
        self.resources.get(name)
    }
}

#[async_trait]
impl ClusterReader for ClusterCache {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<CachedObject> {
        let resource = self.resource(resource)?;
        let found = match namespace {
            Some(namespace) => resource.peek(&format!("{namespace}/{name}")),
            None => resource.peek(name),
        };
        found.as_ref().map(cached)
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<CachedObject> {
        let Some(resource) = self.resource(resource) else {
            return Vec::new();
        };
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        resource.at_hand().range(&prefix, "").map(cached).collect()
    }

    fn revision(&self, resource: &GroupResource) -> Revision {
        self.resource(resource)
            .map_or(Revision(0), |resource| resource.revision())
    }

    fn changes_since(&self, resource: &GroupResource, since: Revision) -> Option<(Vec<Change>, Revision)> {
        self.resource(resource)?.changes_since(since)
    }

    async fn get_consistent(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<CachedObject>, ApiError> {
        let key = key::object_key(resource, namespace, name);
        let read = self.store.get(&key).await.map_err(store_error)?;
        Ok(read.kv.map(|kv| CachedObject {
            revision: kv.mod_revision,
            json: object::with_revision(&kv.value, kv.mod_revision),
        }))
    }
}

#[cfg(test)]
mod tests {
    use minato_storage::cache::CacheOptions;
    use minato_storage::{EmbeddedOptions, EmbeddedStore, Op, Txn};

    use super::*;

    async fn commit(store: &EmbeddedStore, op: Op) -> Revision {
        let txn = Txn {
            compare: vec![],
            ops: vec![op],
        };
        store.commit(txn).await.unwrap().revision
    }

    fn put(name: &str) -> Op {
        Op::Put {
            key: format!("/registry/pods/a/{name}"),
            value: r#"{"metadata":{}}"#.into(),
            ttl: None,
        }
    }

    async fn reaches(cache: &ClusterCache, pods: &GroupResource, revision: Revision) {
        while cache.revision(pods) < revision {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn followers_see_each_change_once_or_start_over() {
        const HISTORY: u64 = 8;
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&directory.path().join("store.redb"), EmbeddedOptions::default()).unwrap();
        let options = CacheOptions {
            history_events: 8,
            ..CacheOptions::default()
        };
        let watched = WatchCache::new(Arc::new(store.clone()), options);
        let cache = ClusterCache::new(Arc::new(store.clone()), &watched);
        let pods = GroupResource::new("", "pods");
        let filled = commit(&store, put("p")).await;
        assert_eq!(cache.revision(&pods), Revision(0));
        cache.follow(&CancellationToken::new()).await;
        assert_eq!(cache.revision(&pods), filled);
        let q = commit(&store, put("q")).await;
        let key = "/registry/pods/a/p".to_owned();
        let gone = commit(&store, Op::Delete { key }).await;
        reaches(&cache, &pods, gone).await;
        let (changes, reached) = cache.changes_since(&pods, filled).unwrap();
        assert!(matches!(changes.as_slice(), [Change::Applied(_), Change::Deleted(d)] if d.revision == gone));
        assert_eq!(reached, gone);
        assert_eq!(cache.changes_since(&pods, q).unwrap().0.len(), 1);
        assert!(cache.changes_since(&pods, gone).unwrap().0.is_empty());
        assert!(cache.changes_since(&pods, Revision(filled.0 - 1)).is_none());
        assert_eq!(cache.list(&pods, Some("a")).len(), 1);
        assert!(cache.list(&pods, Some("b")).is_empty());
        assert!(cache.get(&pods, Some("a"), "p").is_none());
        assert_eq!(cache.get(&pods, Some("a"), "q").unwrap().revision, q);
        for _ in 0..HISTORY {
            commit(&store, put("q")).await;
        }
        reaches(&cache, &pods, Revision(gone.0 + HISTORY)).await;
        assert!(cache.changes_since(&pods, q).is_none());
        assert_eq!(cache.changes_since(&pods, gone).unwrap().0.len(), 8);
        assert!(cache.get_consistent(&pods, Some("a"), "p").await.unwrap().is_none());
        assert!(cache.get_consistent(&pods, Some("a"), "q").await.unwrap().is_some());
    }
}
