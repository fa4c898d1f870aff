//! The objects of one kind in memory, in key order, with secondary indexes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use minato_api::kube::Resource;

use crate::key::ObjectKey;

/// Values under which an object is found.
pub type Index<K> = fn(&K) -> Vec<String>;

struct Indexed<K> {
    name: &'static str,
    of: Index<K>,
    entries: HashMap<String, BTreeMap<ObjectKey, Arc<K>>>,
}

/// Objects by key and by index values.
pub(crate) struct Store<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    indexes: Vec<Indexed<K>>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            indexes: Vec::new(),
        }
    }
}

impl<K: Resource> Store<K> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.objects.keys().cloned().collect()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        let range = self
            .objects
            .range(from..)
            .take_while(|(key, _)| key.namespace == namespace);
        range.map(|(_, object)| object.clone()).collect()
    }

    /// Adds an index over present and future objects; one of that name is kept.
    pub(crate) fn add_index(&mut self, name: &'static str, of: Index<K>) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Indexed {
            name,
            of,
            entries: HashMap::new(),
        };
        for (key, object) in &self.objects {
            index.insert(key, object);
        }
        self.indexes.push(index);
    }

    pub(crate) fn indexed(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let index = self.indexes.iter().find(|index| index.name == name);
        let entries = index.and_then(|index| index.entries.get(value));
        entries.map_or_else(Vec::new, |entries| entries.values().cloned().collect())
    }

    /// Puts an object in; returns what was there.
    pub(crate) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let key = ObjectKey::of(object.as_ref());
        let old = self.objects.insert(key.clone(), object.clone());
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &object);
        }
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }
}

impl<K> Indexed<K> {
    fn insert(&mut self, key: &ObjectKey, object: &Arc<K>) {
        for value in (self.of)(object) {
            self.entries
                .entry(value)
                .or_default()
                .insert(key.clone(), object.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.of)(object) {
            if let Some(entries) = self.entries.get_mut(&value) {
                entries.remove(key);
                if entries.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use minato_api::k8s::core::v1::Pod;

    use super::*;

    fn pod(namespace: &str, name: &str, node: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
        Arc::new(pod)
    }

    fn by_node(pod: &Pod) -> Vec<String> {
        pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    #[test]
    fn indexes_follow_updates_and_deletions() {
        let mut store = Store::default();
        store.insert(pod("a", "one", "n1"));
        store.add_index("node", by_node);
        store.insert(pod("a", "two", "n1"));
        store.insert(pod("b", "three", "n2"));
        assert_eq!(names(&store.indexed("node", "n1")), ["one", "two"]);
        store.insert(pod("a", "one", "n2"));
        assert_eq!(names(&store.indexed("node", "n1")), ["two"]);
        store.remove(&ObjectKey::new("b", "three"));
        assert_eq!(names(&store.indexed("node", "n2")), ["one"]);
        assert_eq!(names(&store.in_namespace("a")), ["one", "two"]);
        assert!(store.in_namespace("").is_empty());
    }
}
