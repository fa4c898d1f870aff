//! Who depends on whom.

use std::collections::{HashMap, HashSet};

use minato_api::meta_v1::{ObjectMeta, OwnerReference};

use super::ResourceId;
use crate::names::{FOREGROUND, ORPHAN};
use crate::ops;

/// An object that owns or is owned.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) dependents: HashSet<String>,
    /// It waits for its dependents.
    pub(super) foreground: bool,
    pub(super) orphaning: bool,
}

/// How a node is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Seen, under this resource.
    Known(ResourceId),
    /// Only named by a dependent: API version and kind.
    Named { api_version: String, kind: String },
}

/// What a change of the graph makes necessary.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    pub(super) collect: Vec<String>,
    pub(super) orphan: Vec<String>,
}

/// Nodes by uid.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<String, Node>,
}

fn is_deleting_with(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_some() && ops::has_finalizer(meta, finalizer)
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Uids that are known under a resource.
    pub(super) fn of_resource(&self, resource: &ResourceId) -> Vec<String> {
        let known = self
            .nodes
            .iter()
            .filter(|(_, node)| node.place == Place::Known(resource.clone()));
        known.map(|(uid, _)| uid.clone()).collect()
    }

    /// An object was seen.
    pub(super) fn observe(&mut self, resource: &ResourceId, meta: &ObjectMeta) -> Effects {
        let mut effects = Effects::default();
        let uid = ops::uid(meta).to_owned();
        let owners = meta.owner_references.clone().unwrap_or_default();
        let (foreground, orphaning) = (is_deleting_with(meta, FOREGROUND), is_deleting_with(meta, ORPHAN));
        let before = self.nodes.get(&uid);
        // Nobody refers to it, it refers to nobody, and nothing waits: it can be asked for when that changes.
        if uid.is_empty() || before.is_none() && owners.is_empty() && !foreground && !orphaning {
            return effects;
        }
        let old_owners = before.map(|node| node.owners.clone()).unwrap_or_default();
        let (was_foreground, was_orphaning) = before.map_or((false, false), |node| (node.foreground, node.orphaning));
        let node = Node {
            place: Place::Known(resource.clone()),
            name: ops::name(meta).to_owned(),
            namespace: ops::namespace(meta).to_owned(),
            owners: owners.clone(),
            dependents: before.map(|node| node.dependents.clone()).unwrap_or_default(),
            foreground,
            orphaning,
        };
        self.nodes.insert(uid.clone(), node);
        for old in &old_owners {
            let kept = owners.iter().find(|owner| owner.uid == old.uid);
            if kept.is_none() {
                self.unlink(&uid, &old.uid);
            }
            let unblocked = kept.is_none_or(|kept| kept.block_owner_deletion != Some(true));
            if unblocked && old.block_owner_deletion == Some(true) {
                effects.collect.extend(self.waiting(&old.uid));
            }
        }
        for owner in &owners {
            self.link(&uid, ops::namespace(meta), owner, &mut effects);
        }
        if orphaning && !was_orphaning {
            effects.orphan.push(uid.clone());
        }
        if foreground && !was_foreground {
            effects.collect.push(uid.clone());
            effects.collect.extend(
                self.nodes
                    .get(&uid)
                    .into_iter()
                    .flat_map(|node| node.dependents.clone()),
            );
        }
        self.drop_if_alone(&uid);
        effects
    }

    /// A node that was only named exists: `meta` is its live state. Nothing if it went meanwhile.
    pub(super) fn confirm(&mut self, uid: &str, resource: &ResourceId, meta: &ObjectMeta) -> Effects {
        if self.nodes.contains_key(uid) {
            self.observe(resource, meta)
        } else {
            Effects::default()
        }
    }

    fn link(&mut self, dependent: &str, namespace: &str, owner: &OwnerReference, effects: &mut Effects) {
        let node = self.nodes.entry(owner.uid.clone()).or_insert_with(|| {
            effects.collect.push(owner.uid.clone());
            Node {
                place: Place::Named {
                    api_version: owner.api_version.clone(),
                    kind: owner.kind.clone(),
                },
                name: owner.name.clone(),
                namespace: namespace.to_owned(),
                owners: Vec::new(),
                dependents: HashSet::new(),
                foreground: false,
                orphaning: false,
            }
        });
        node.dependents.insert(dependent.to_owned());
        if node.foreground {
            effects.collect.push(dependent.to_owned());
        }
    }

    fn unlink(&mut self, dependent: &str, owner: &str) {
        if let Some(node) = self.nodes.get_mut(owner) {
            node.dependents.remove(dependent);
        }
        self.drop_if_alone(owner);
    }

    /// Forgets a node that neither owns nor is owned, nor waits.
    fn drop_if_alone(&mut self, uid: &str) {
        let alone = self.nodes.get(uid).is_some_and(|node| {
            node.dependents.is_empty() && node.owners.is_empty() && !node.foreground && !node.orphaning
        });
        if alone {
            self.nodes.remove(uid);
        }
    }

    /// The node, if it waits for dependents.
    fn waiting(&self, uid: &str) -> Option<String> {
        self.nodes
            .get(uid)
            .filter(|node| node.foreground)
            .map(|_| uid.to_owned())
    }

    /// An object is gone: its dependents may have to go, and an owner may have waited for it.
    pub(super) fn gone(&mut self, uid: &str) -> Effects {
        let mut effects = Effects::default();
        let Some(node) = self.nodes.remove(uid) else {
            return effects;
        };
        for owner in &node.owners {
            if let Some(owner_node) = self.nodes.get_mut(&owner.uid) {
                owner_node.dependents.remove(uid);
            }
            effects.collect.extend(self.waiting(&owner.uid));
            self.drop_if_alone(&owner.uid);
        }
        effects.collect.extend(node.dependents);
        effects
    }

    /// The dependents that keep `uid` from going.
    pub(super) fn blocking(&self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.get(uid) else {
            return Vec::new();
        };
        let blocks = |dependent: &&String| {
            let owners = self.nodes.get(*dependent).into_iter().flat_map(|node| &node.owners);
            let mut ours = owners.filter(|owner| owner.uid == uid);
            ours.any(|owner| owner.block_owner_deletion == Some(true))
        };
        node.dependents.iter().filter(blocks).cloned().collect()
    }

    /// Whether any dependent of `uid` waits for dependents of its own: then a cycle is possible.
    pub(super) fn dependent_waits(&self, uid: &str) -> bool {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        dependents
            .into_iter()
            .any(|dependent| self.waiting(dependent).is_some())
    }
}
