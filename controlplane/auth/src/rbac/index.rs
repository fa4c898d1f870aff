//! Roles and bindings, indexed by who is bound and where.
//!
//! ```text
//! user or group ─ (cluster | namespace) ─ grants ─ role ─ rules
//! ```
//!
//! A decision looks at the grants of the requester's own names only, so its cost does not grow with the cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use minato_meta::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::rule::Rule;
use crate::UserInfo;

/// A role's place: namespace (empty for cluster roles) and name.
type Place = (String, String);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleObject {
    metadata: Meta,
    rules: Option<Vec<Rule>>,
    aggregation_rule: Option<Aggregation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Aggregation {
    cluster_role_selectors: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingObject {
    metadata: Meta,
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

struct Role {
    own: Arc<[Rule]>,
    /// What a decision goes by: its own rules, or those of the roles that it gathers.
    effective: Arc<[Rule]>,
    labels: BTreeMap<String, String>,
    gathers: Option<Vec<LabelSelector>>,
}

/// One binding, as seen from one of its subjects.
#[derive(Clone)]
struct Grant {
    binding: Arc<Binding>,
    /// `User "jane"`, for reasons.
    subject: Arc<str>,
}

struct Binding {
    name: String,
    namespace: String,
    role: Place,
    role_kind: String,
    /// Users and groups bound, to find the grants again.
    users: Vec<String>,
    groups: Vec<String>,
}

#[derive(Default)]
struct Grants {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

impl Grants {
    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Grant> {
        let own = self.users.get(&user.name).into_iter().flatten();
        own.chain(user.groups.iter().filter_map(|g| self.groups.get(g)).flatten())
    }

    fn remove(&mut self, binding: &Binding) {
        let forget = |map: &mut HashMap<String, Vec<Grant>>, key: &String| {
            if let Some(grants) = map.get_mut(key) {
                grants.retain(|g| g.binding.name != binding.name || g.binding.namespace != binding.namespace);
                if grants.is_empty() {
                    map.remove(key);
                }
            }
        };
        binding.users.iter().for_each(|u| forget(&mut self.users, u));
        binding.groups.iter().for_each(|g| forget(&mut self.groups, g));
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

/// What a decision came to.
pub(super) enum Outcome {
    /// Allowed; the reason.
    Allowed(String),
    /// Not allowed; roles that bindings of the requester name and that do not exist.
    NotAllowed(Vec<String>),
}

/// Roles and bindings of a cluster.
#[derive(Default)]
pub(super) struct Index {
    roles: HashMap<Place, Role>,
    bindings: HashMap<Place, Arc<Binding>>,
    cluster: Grants,
    namespaces: HashMap<String, Grants>,
}

impl Index {
    /// Takes a Role or ClusterRole; malformed ones grant nothing.
    pub(super) fn put_role(&mut self, json: &[u8]) {
        let object: RoleObject = match serde_json::from_slice(json) {
            Ok(object) => object,
            Err(error) => return tracing::warn!(%error, "a role cannot be read and grants nothing"),
        };
        let place = (object.metadata.namespace, object.metadata.name);
        let gathers = object.aggregation_rule.map(|aggregation| {
            let selectors = aggregation.cluster_role_selectors.unwrap_or_default();
            let parsed = selectors.iter().map(LabelSelector::from_object);
            parsed.map(|s| s.unwrap_or_else(|_| LabelSelector::nothing())).collect()
        });
        let own: Arc<[Rule]> = object.rules.unwrap_or_default().into();
        let role = Role {
            effective: own.clone(),
            own,
            labels: object.metadata.labels.unwrap_or_default(),
            gathers,
        };
        let old_labels = self.roles.insert(place.clone(), role).map(|r| r.labels);
        if place.0.is_empty() {
            self.gather(&place, old_labels);
        }
    }

    /// Forgets a Role or ClusterRole.
    pub(super) fn remove_role(&mut self, json: &[u8]) {
        if let Some(place) = place(json)
            && let Some(role) = self.roles.remove(&place)
            && place.0.is_empty()
        {
            self.gather(&place, Some(role.labels));
        }
    }

    /// Brings aggregated roles up to date after a change of one cluster role.
    fn gather(&mut self, changed: &Place, old_labels: Option<BTreeMap<String, String>>) {
        let now = self.roles.get(changed);
        let itself = now.is_some_and(|r| r.gathers.is_some());
        let labels = [now.map(|r| r.labels.clone()), old_labels];
        let touched = |role: &Role| {
            let selectors = role.gathers.iter().flatten();
            let mut pairs = selectors.flat_map(|s| labels.iter().flatten().map(move |l| (s, l)));
            pairs.any(|(selector, labels)| selector.matches_map(labels))
        };
        if !itself && !self.roles.values().any(touched) {
            return;
        }
        let aggregated: Vec<Place> = self
            .roles
            .iter()
            .filter(|(_, role)| role.gathers.is_some())
            .map(|(place, _)| place.clone())
            .collect();
        let gathered: Vec<(Place, Arc<[Rule]>)> = aggregated
            .into_iter()
            .map(|place| {
                let mut rules = Vec::new();
                self.collect(&place, &mut HashSet::new(), &mut rules);
                (place, rules.into())
            })
            .collect();
        for (place, rules) in gathered {
            if let Some(role) = self.roles.get_mut(&place) {
                role.effective = rules;
            }
        }
    }

    /// Rules of a role and, where it gathers others, of those; each role once.
    fn collect<'a>(&'a self, place: &'a Place, seen: &mut HashSet<&'a Place>, rules: &mut Vec<Rule>) {
        if !seen.insert(place) {
            return;
        }
        let Some(role) = self.roles.get(place) else {
            return;
        };
        let Some(selectors) = &role.gathers else {
            rules.extend(
                role.own
                    .iter()
                    .filter(|r| !rules.contains(r))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            return;
        };
        for (other, candidate) in &self.roles {
            if other.0.is_empty() && selectors.iter().any(|s| s.matches_map(&candidate.labels)) {
                self.collect(other, seen, rules);
            }
        }
    }

    /// Takes a RoleBinding or ClusterRoleBinding; malformed ones bind nobody.
    pub(super) fn put_binding(&mut self, json: &[u8]) {
        self.remove_binding(json);
        let object: BindingObject = match serde_json::from_slice(json) {
            Ok(object) => object,
            Err(error) => return tracing::warn!(%error, "a role binding cannot be read and binds nobody"),
        };
        let Meta { name, namespace, .. } = object.metadata;
        let role_namespace = match object.role_ref.kind.as_str() {
            "ClusterRole" => String::new(),
            "Role" if !namespace.is_empty() => namespace.clone(),
            _ => return,
        };
        let (mut users, mut groups, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for subject in object.subjects.unwrap_or_default() {
            let label: Arc<str> = match subject.kind.as_str() {
                "User" => format!("User {:?}", subject.name).into(),
                "Group" => format!("Group {:?}", subject.name).into(),
                _ => String::new().into(),
            };
            match subject.kind.as_str() {
                "User" => {
                    labels.push((true, subject.name.clone(), label));
                    users.push(subject.name);
                }
                "Group" => {
                    labels.push((false, subject.name.clone(), label));
                    groups.push(subject.name);
                }
                "ServiceAccount" => {
                    let of = if subject.namespace.is_empty() {
                        &namespace
                    } else {
                        &subject.namespace
                    };
                    if of.is_empty() {
                        continue;
                    }
                    let user = crate::service_account::user_name(of, &subject.name);
                    let account = format!("{}/{of}", subject.name);
                    labels.push((true, user.clone(), format!("ServiceAccount {account:?}").into()));
                    users.push(user);
                }
                _ => {}
            }
        }
        let binding = Arc::new(Binding {
            role: (role_namespace, object.role_ref.name),
            role_kind: object.role_ref.kind,
            name,
            namespace,
            users,
            groups,
        });
        let grants = if binding.namespace.is_empty() {
            &mut self.cluster
        } else {
            self.namespaces.entry(binding.namespace.clone()).or_default()
        };
        for (is_user, key, subject) in labels {
            let map = if is_user { &mut grants.users } else { &mut grants.groups };
            map.entry(key).or_default().push(Grant {
                binding: binding.clone(),
                subject,
            });
        }
        self.bindings
            .insert((binding.namespace.clone(), binding.name.clone()), binding);
    }

    /// Forgets a RoleBinding or ClusterRoleBinding.
    pub(super) fn remove_binding(&mut self, json: &[u8]) {
        let Some(binding) = place(json).and_then(|place| self.bindings.remove(&place)) else {
            return;
        };
        if binding.namespace.is_empty() {
            self.cluster.remove(&binding);
        } else if let Some(grants) = self.namespaces.get_mut(&binding.namespace) {
            grants.remove(&binding);
            if grants.is_empty() {
                self.namespaces.remove(&binding.namespace);
            }
        }
    }

    /// Forgets all roles of namespaces, or all cluster roles.
    pub(super) fn clear_roles(&mut self, namespaced: bool) {
        self.roles.retain(|place, _| place.0.is_empty() == namespaced);
    }

    /// Forgets all bindings of namespaces, or all cluster bindings.
    pub(super) fn clear_bindings(&mut self, namespaced: bool) {
        self.bindings.retain(|place, _| place.0.is_empty() == namespaced);
        if namespaced {
            self.namespaces.clear();
        } else {
            self.cluster = Grants::default();
        }
    }

    fn grants<'a>(&'a self, user: &'a UserInfo, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = self.namespaces.get(namespace).filter(|_| !namespace.is_empty());
        let local = local.into_iter().flat_map(|grants| grants.of(user));
        self.cluster.of(user).chain(local)
    }

    /// Looks for a rule that satisfies `allows` among those that hold for a user in a namespace (and everywhere).
    pub(super) fn decide(&self, user: &UserInfo, namespace: &str, allows: impl Fn(&Rule) -> bool) -> Outcome {
        let mut absent = Vec::new();
        // Many bindings may lead to one role: a user of a hundred bindings to `view` costs one look at it.
        let mut tried: Vec<&Place> = Vec::new();
        for grant in self.grants(user, namespace) {
            let place = &grant.binding.role;
            if tried.contains(&place) {
                continue;
            }
            if tried.len() < 32 {
                tried.push(place);
            }
            match self.roles.get(place) {
                Some(role) if role.effective.iter().any(&allows) => return Outcome::Allowed(reason(grant)),
                Some(_) => {}
                None => {
                    let kind = grant.binding.role_kind.to_lowercase();
                    absent.push(format!("{kind}.rbac.authorization.k8s.io {:?} not found", place.1));
                }
            }
        }
        Outcome::NotAllowed(absent)
    }

    /// All rules that hold for a user in a namespace, and whether some bindings lead nowhere.
    pub(super) fn rules(&self, user: &UserInfo, namespace: &str) -> (Vec<Arc<[Rule]>>, bool) {
        let (mut rules, mut tried, mut incomplete) = (Vec::new(), HashSet::new(), false);
        for grant in self.grants(user, namespace) {
            if tried.insert(&grant.binding.role) {
                match self.roles.get(&grant.binding.role) {
                    Some(role) => rules.push(role.effective.clone()),
                    None => incomplete = true,
                }
            }
        }
        (rules, incomplete)
    }

    /// Rules of a role, or `None` when there is no such role.
    pub(super) fn role(&self, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        let place = (namespace.to_owned(), name.to_owned());
        self.roles.get(&place).map(|r| r.effective.clone())
    }
}

fn place(json: &[u8]) -> Option<Place> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    let meta = serde_json::from_slice::<Object>(json).ok()?.metadata;
    Some((meta.namespace, meta.name))
}

fn reason(grant: &Grant) -> String {
    let binding = &grant.binding;
    let (kind, name) = if binding.namespace.is_empty() {
        ("ClusterRoleBinding", binding.name.clone())
    } else {
        ("RoleBinding", format!("{}/{}", binding.name, binding.namespace))
    };
    format!(
        "RBAC: allowed by {kind} {name:?} of {} {:?} to {}",
        binding.role_kind, binding.role.1, grant.subject
    )
}
