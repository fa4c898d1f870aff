//! Role-based access control.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

mod escalation;
mod index;
mod rule;

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::api::k8s::authorization::v1::{NonResourceRule, ResourceRule};
use minato_meta::{CachedObject, Change, ClusterReader};
use parking_lot::{Mutex, RwLock};

use crate::follow::{Follower, News};
use crate::{Attributes, Authorizer, Decision, RulesFor, UserInfo};
use index::{Index, Outcome};

pub use escalation::RoleWrite;
pub use rule::Rule;

/// Decides by roles and bindings. Follows the cluster by itself: each decision first takes in what has changed.
pub struct RbacAuthorizer {
    reader: Arc<dyn ClusterReader>,
    index: RwLock<Index>,
    /// Locked only to take in changes.
    followers: Mutex<Followers>,
}

struct Followers {
    roles: Follower,
    cluster_roles: Follower,
    bindings: Follower,
    cluster_bindings: Follower,
}

impl Followers {
    fn all(&self) -> [&Follower; 4] {
        [&self.roles, &self.cluster_roles, &self.bindings, &self.cluster_bindings]
    }
}

impl RbacAuthorizer {
    /// Of a cluster's roles and bindings.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        let follow = |resource| Follower::new("rbac.authorization.k8s.io", resource);
        Self {
            reader,
            index: RwLock::new(Index::default()),
            followers: Mutex::new(Followers {
                roles: follow("roles"),
                cluster_roles: follow("clusterroles"),
                bindings: follow("rolebindings"),
                cluster_bindings: follow("clusterrolebindings"),
            }),
        }
    }

    /// Takes in what has changed. One request does it; those that come meanwhile wait, and find it done.
    fn catch_up(&self) {
        let reader = self.reader.as_ref();
        let mut followers = self.followers.lock();
        if !followers.all().iter().any(|f| f.is_behind(reader)) {
            return;
        }
        let cluster_bindings = followers.cluster_bindings.pull(reader);
        let bindings = followers.bindings.pull(reader);
        let cluster_roles = followers.cluster_roles.pull(reader);
        let roles = followers.roles.pull(reader);
        let mut index = self.index.write();
        take(
            &mut index,
            cluster_roles,
            |i| i.clear_roles(false),
            Index::put_role,
            Index::remove_role,
        );
        take(
            &mut index,
            roles,
            |i| i.clear_roles(true),
            Index::put_role,
            Index::remove_role,
        );
        take(
            &mut index,
            cluster_bindings,
            |i| i.clear_bindings(false),
            Index::put_binding,
            Index::remove_binding,
        );
        take(
            &mut index,
            bindings,
            |i| i.clear_bindings(true),
            Index::put_binding,
            Index::remove_binding,
        );
    }

    /// The decision for one request.
    pub fn decide(&self, attributes: &Attributes) -> Decision {
        self.catch_up();
        let index = self.index.read();
        let namespace = if attributes.is_resource {
            attributes.namespace.as_str()
        } else {
            ""
        };
        match index.decide(&attributes.user, namespace, |rule| rule.allows(attributes)) {
            Outcome::Allowed(reason) => Decision::Allow(reason),
            Outcome::NotAllowed(absent) => Decision::NoOpinion(match absent.as_slice() {
                [] => String::new(),
                [one] => format!("RBAC: {one}"),
                many => format!("RBAC: [{}]", many.join(", ")),
            }),
        }
    }

    /// All rules that hold for a user in a namespace, and whether some could not be found.
    fn rules(&self, user: &UserInfo, namespace: &str) -> (Vec<Arc<[Rule]>>, bool) {
        self.catch_up();
        let (rules, incomplete) = self.index.read().rules(user, namespace);
        let filled = self.followers.lock().all().iter().all(|f| f.is_filled());
        (rules, incomplete || !filled)
    }
}

fn take(
    index: &mut Index,
    news: News,
    clear: impl Fn(&mut Index),
    put: impl Fn(&mut Index, &[u8]),
    remove: impl Fn(&mut Index, &[u8]),
) {
    match news {
        News::None => {}
        News::All(objects) => {
            clear(index);
            for CachedObject { json, .. } in objects {
                put(index, &json);
            }
        }
        News::Changes(changes) => {
            for change in changes {
                match change {
                    Change::Applied(object) => put(index, &object.json),
                    Change::Deleted(object) => remove(index, &object.json),
                }
            }
        }
    }
}

#[async_trait]
impl Authorizer for RbacAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.decide(attributes)
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> RulesFor {
        let (rules, incomplete) = self.rules(user, namespace);
        let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        let mut all = RulesFor {
            incomplete,
            ..RulesFor::default()
        };
        for rule in rules.iter().flat_map(|r| r.iter()) {
            if !rule.resources.is_empty() {
                all.resource_rules.push(ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: some(&rule.api_groups),
                    resources: some(&rule.resources),
                    resource_names: some(&rule.resource_names),
                });
            }
            if !rule.non_resource_urls.is_empty() {
                all.non_resource_rules.push(NonResourceRule {
                    verbs: rule.verbs.clone(),
                    non_resource_urls: some(&rule.non_resource_urls),
                });
            }
        }
        all
    }
}
