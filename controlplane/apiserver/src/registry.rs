//! Which kinds are served, by path.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use minato_meta::{GroupKind, GroupResource, GroupVersionKind, GroupVersionResource};
use minato_rules::ResourceInfo;
use minato_schema::SchemaRef;

/// One state of the registry; never changes.
#[derive(Default, Clone)]
struct Snapshot {
    generation: u64,
    ordered: Vec<Arc<ResourceInfo>>,
    by_path: HashMap<GroupVersionResource, Arc<ResourceInfo>>,
    schemas: HashMap<GroupVersionResource, SchemaRef>,
}

/// All served kinds. Reads are lock-free; additions and removals (custom resources) replace the whole table.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Snapshot>,
}

impl Registry {
    /// A registry of these kinds; a later one replaces an earlier one of the same path.
    pub fn new(resources: impl IntoIterator<Item = ResourceInfo>) -> Self {
        let registry = Self::default();
        registry.add(resources);
        registry
    }

    /// Adds or replaces kinds.
    pub fn add(&self, resources: impl IntoIterator<Item = ResourceInfo>) {
        let resources: Vec<Arc<ResourceInfo>> = resources.into_iter().map(Arc::new).collect();
        self.change(|snapshot| {
            for resource in &resources {
                match snapshot.ordered.iter_mut().find(|r| r.gvr == resource.gvr) {
                    Some(slot) => *slot = resource.clone(),
                    None => snapshot.ordered.push(resource.clone()),
                }
                snapshot.by_path.insert(resource.gvr.clone(), resource.clone());
            }
        });
    }

    /// Adds or replaces a kind whose schema is not among the built-in definitions.
    pub fn add_custom(&self, resource: ResourceInfo, schema: SchemaRef) {
        let gvr = resource.gvr.clone();
        self.change(|snapshot| {
            snapshot.schemas.insert(gvr.clone(), schema.clone());
        });
        self.add([resource]);
    }

    /// Schema of a custom kind.
    pub fn custom_schema(&self, gvr: &GroupVersionResource) -> Option<SchemaRef> {
        self.current.load().schemas.get(gvr).cloned()
    }

    /// Schema of a kind.
    pub fn schema(&self, resource: &ResourceInfo) -> Option<SchemaRef> {
        self.custom_schema(&resource.gvr)
            .or_else(|| minato_schema::builtin().reference(&resource.definition))
    }

    /// Stops serving a kind.
    pub fn remove(&self, gvr: &GroupVersionResource) {
        self.change(|snapshot| {
            snapshot.ordered.retain(|r| r.gvr != *gvr);
            snapshot.by_path.remove(gvr);
            snapshot.schemas.remove(gvr);
        });
    }

    fn change(&self, edit: impl Fn(&mut Snapshot)) {
        self.current.rcu(|old| {
            let mut next = Snapshot::clone(old);
            edit(&mut next);
            next.generation += 1;
            next
        });
    }

    /// Changes with every addition and removal; lets discovery documents be cached.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// The kind served at a path.
    pub fn get(&self, gvr: &GroupVersionResource) -> Option<Arc<ResourceInfo>> {
        self.current.load().by_path.get(gvr).cloned()
    }

    /// The kind by its type, as object bodies name it.
    pub fn by_kind(&self, gvk: &GroupVersionKind) -> Option<Arc<ResourceInfo>> {
        self.current.load().ordered.iter().find(|r| r.gvk == *gvk).cloned()
    }

    /// The first served version of a kind.
    pub fn by_group_kind(&self, kind: &GroupKind) -> Option<Arc<ResourceInfo>> {
        let current = self.current.load();
        current.ordered.iter().find(|r| r.gvk.group_kind() == *kind).cloned()
    }

    /// The first served version of a resource.
    pub fn by_group_resource(&self, resource: &GroupResource) -> Option<Arc<ResourceInfo>> {
        let current = self.current.load();
        current
            .ordered
            .iter()
            .find(|r| r.gvr.group_resource() == *resource)
            .cloned()
    }

    /// All kinds, in the order of registration.
    pub fn all(&self) -> Vec<Arc<ResourceInfo>> {
        self.current.load().ordered.clone()
    }

    /// Whether anything of a group and version is served.
    pub fn serves_version(&self, group: &str, version: &str) -> bool {
        let current = self.current.load();
        current
            .ordered
            .iter()
            .any(|r| r.gvr.group == group && r.gvr.version == version)
    }

    /// Distinct storage locations, for caches.
    pub fn storages(&self) -> Vec<GroupResource> {
        let mut all = Vec::new();
        for resource in &self.current.load().ordered {
            if resource.verbs.contains(&minato_rules::Verb::List) && !all.contains(&resource.storage) {
                all.push(resource.storage.clone());
            }
        }
        all
    }
}
