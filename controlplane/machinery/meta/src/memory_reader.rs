//! A cluster view that is fed by hand: objects, revisions and history in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{ApiError, CachedObject, Change, ClusterReader, GroupResource, Revision};

/// Namespace (empty for none) and name.
type Key = (String, String);

#[derive(Default)]
struct Resource {
    objects: BTreeMap<Key, CachedObject>,
    history: VecDeque<(Revision, Change)>,
    /// Changes up to and including this one are forgotten.
    forgotten: Revision,
}

#[derive(Default)]
struct State {
    revision: Revision,
    resources: HashMap<GroupResource, Resource>,
}

/// A [`ClusterReader`] of whatever it is given; every write gets the next revision. For tests of authorizers and
/// admission plug-ins, and for tools that judge a set of manifests without a server.
#[derive(Default)]
pub struct MemoryReader {
    state: RwLock<State>,
}

impl MemoryReader {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates or updates an object. Namespace and name are its metadata's; the revision is put into it.
    pub fn put(&self, resource: &GroupResource, mut object: Value) -> Revision {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.revision.0 += 1;
        let revision = state.revision;
        let key = key_of(&object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
        }
        let cached = CachedObject {
            revision,
            json: Bytes::from(object.to_string()),
        };
        let resource = state.resources.entry(resource.clone()).or_default();
        resource.history.push_back((revision, Change::Applied(cached.clone())));
        resource.objects.insert(key, cached);
        revision
    }

    /// Deletes an object; nothing happens when it is not there.
    pub fn remove(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let revision = Revision(state.revision.0 + 1);
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        let Some(of) = state.resources.get_mut(resource) else {
            return;
        };
        if let Some(mut last) = of.objects.remove(&key) {
            last.revision = revision;
            of.history.push_back((revision, Change::Deleted(last)));
            state.revision = revision;
        }
    }

    /// Forgets the history of a resource, so that followers have to start over.
    pub fn forget_history(&self, resource: &GroupResource) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(resource) = state.resources.get_mut(resource)
            && let Some((revision, _)) = resource.history.back()
        {
            resource.forgotten = *revision;
            resource.history.clear();
        }
    }
}

fn key_of(object: &Value) -> Key {
    let text = |field: &str| {
        let value = object.get("metadata").and_then(|m| m.get(field));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    (text("namespace"), text("name"))
}

#[async_trait]
impl ClusterReader for MemoryReader {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<CachedObject> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        state.resources.get(resource)?.objects.get(&key).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<CachedObject> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let objects = state.resources.get(resource).into_iter().flat_map(|r| &r.objects);
        objects
            .filter(|((of, _), _)| namespace.is_none_or(|n| n == of))
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn revision(&self, resource: &GroupResource) -> Revision {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let newest = state.resources.get(resource).and_then(|r| r.history.back());
        let forgotten = state.resources.get(resource).map_or(Revision(0), |r| r.forgotten);
        newest.map_or(forgotten, |(revision, _)| *revision)
    }

    fn changes_since(&self, resource: &GroupResource, since: Revision) -> Option<(Vec<Change>, Revision)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let resource = state.resources.get(resource)?;
        if since < resource.forgotten {
            return None;
        }
        let changes = resource.history.iter().filter(|(at, _)| *at > since);
        let changes: Vec<Change> = changes.map(|(_, change)| change.clone()).collect();
        let reached = resource.history.back().map_or(since, |(at, _)| *at);
        Some((changes, reached))
    }

    async fn get_consistent(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<CachedObject>, ApiError> {
        Ok(self.get(resource, namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_sees_every_change_or_is_told_to_start_over() {
        let reader = MemoryReader::new();
        let pods = GroupResource::new("", "pods");
        let pod = |name: &str| json!({"metadata": {"namespace": "a", "name": name}});
        assert_eq!(reader.revision(&pods), Revision(0));
        let first = reader.put(&pods, pod("p"));
        reader.put(&pods, pod("q"));
        reader.remove(&pods, Some("a"), "p");
        let (changes, reached) = reader.changes_since(&pods, first).unwrap();
        assert!(matches!(changes.as_slice(), [Change::Applied(_), Change::Deleted(_)]));
        assert_eq!(reached, reader.revision(&pods));
        assert_eq!(reader.list(&pods, Some("a")).len(), 1);
        assert!(reader.list(&pods, Some("b")).is_empty());
        assert!(reader.get_consistent(&pods, Some("a"), "p").await.unwrap().is_none());
        reader.forget_history(&pods);
        assert!(reader.changes_since(&pods, first).is_none());
        assert_eq!(reader.revision(&pods), reached);
        assert!(reader.changes_since(&pods, reached).unwrap().0.is_empty());
    }
}
