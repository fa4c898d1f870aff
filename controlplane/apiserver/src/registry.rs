//! Which kinds are served, by path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use minato_meta::{GroupKind, GroupResource, GroupVersionKind, GroupVersionResource};
use minato_rules::ResourceInfo;
use minato_schema::SchemaRef;
use serde_json::Value;

/// One state of the registry; never changes.
#[derive(Default, Clone)]
struct Snapshot {
    generation: u64,
    ordered: Vec<Arc<ResourceInfo>>,
    by_path: HashMap<GroupVersionResource, Arc<ResourceInfo>>,
    schemas: HashMap<GroupVersionResource, SchemaRef>,
    documents: HashMap<GroupVersionResource, Arc<Value>>,
    /// Kinds of custom resource definitions.
    custom: HashSet<GroupVersionResource>,
}

impl Snapshot {
    fn remove(&mut self, gvr: &GroupVersionResource) {
        self.by_path.remove(gvr);
        self.schemas.remove(gvr);
        self.documents.remove(gvr);
        self.custom.remove(gvr);
    }
}

/// A kind that a custom resource definition describes.
#[derive(Clone)]
pub struct CustomKind {
    /// Its descriptor.
    pub info: Arc<ResourceInfo>,
    /// Its schema.
    pub schema: SchemaRef,
    /// Its schema as OpenAPI publishes it.
    pub document: Option<Arc<Value>>,
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
            snapshot.remove(gvr);
        });
    }

    /// Makes these the kinds of custom resource definitions, all at once. Paths of built-in kinds stay theirs.
    pub fn replace_custom(&self, kinds: Vec<CustomKind>) {
        self.change(|snapshot| {
            let old: Vec<GroupVersionResource> = snapshot.custom.iter().cloned().collect();
            let custom = std::mem::take(&mut snapshot.custom);
            snapshot.ordered.retain(|r| !custom.contains(&r.gvr));
            old.iter().for_each(|gvr| snapshot.remove(gvr));
            for kind in &kinds {
                let gvr = &kind.info.gvr;
                if snapshot.by_path.contains_key(gvr) {
                    continue;
                }
                snapshot.ordered.push(kind.info.clone());
                snapshot.by_path.insert(gvr.clone(), kind.info.clone());
                snapshot.schemas.insert(gvr.clone(), kind.schema.clone());
                if let Some(document) = &kind.document {
                    snapshot.documents.insert(gvr.clone(), document.clone());
                }
                snapshot.custom.insert(gvr.clone());
            }
        });
    }

    /// The kinds that are not those of custom resource definitions.
    pub fn builtin(&self) -> Vec<Arc<ResourceInfo>> {
        let current = self.current.load();
        let builtin = current.ordered.iter().filter(|r| !current.custom.contains(&r.gvr));
        builtin.cloned().collect()
    }

    /// What OpenAPI publishes of a kind that brings its own schema.
    pub fn document(&self, gvr: &GroupVersionResource) -> Option<Arc<Value>> {
        self.current.load().documents.get(gvr).cloned()
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
