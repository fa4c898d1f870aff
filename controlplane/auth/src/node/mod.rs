//! What a kubelet may do: read what its own pods need, and write about itself.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/node/>.

mod graph;
mod references;

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{CachedObject, Change, ClusterReader, FieldSelector, GroupResource};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::follow::{Follower, News};
use crate::policy;
use crate::rbac::Rule;
use crate::{Attributes, Authorizer, Decision, RulesFor, UserInfo};
use graph::Graph;
pub(crate) use references::Kind;

const NODES: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// The node that a user is; `None` for everybody else.
pub fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    (!name.is_empty() && user.in_group(NODES)).then_some(name)
}

/// Decides for kubelets; has no opinion on others. Follows pods and volumes by itself.
pub struct NodeAuthorizer {
    reader: Arc<dyn ClusterReader>,
    graph: RwLock<Graph>,
    followers: Mutex<[Follower; 2]>,
    rules: Vec<Rule>,
}

impl NodeAuthorizer {
    /// Of a cluster's pods and volumes.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self {
            reader,
            graph: RwLock::new(Graph::default()),
            followers: Mutex::new([Follower::new("", "pods"), Follower::new("", "persistentvolumes")]),
            rules: policy::node_rules(),
        }
    }

    fn catch_up(&self) {
        let reader = self.reader.as_ref();
        let mut followers = self.followers.lock();
        let [pods, volumes] = &mut *followers;
        if !pods.is_behind(reader) && !volumes.is_behind(reader) {
            return;
        }
        let (pods, volumes) = (pods.pull(reader), volumes.pull(reader));
        let mut graph = self.graph.write();
        take(&mut graph, pods, Graph::clear_pods, Graph::put_pod, Graph::remove_pod);
        take(
            &mut graph,
            volumes,
            Graph::clear_volumes,
            Graph::put_volume,
            Graph::remove_volume,
        );
    }

    /// The decision for one request.
    pub fn decide(&self, request: &Attributes) -> Decision {
        let Some(node) = node_of(&request.user) else {
            return Decision::NoOpinion(String::new());
        };
        match self.special(node, request) {
            Some(Ok(())) => Decision::Allow(String::new()),
            Some(Err(why)) => Decision::NoOpinion(why),
            None if self.rules.iter().any(|rule| rule.allows(request)) => Decision::Allow(String::new()),
            None => Decision::NoOpinion(String::new()),
        }
    }

    /// Resources on which the general rules are too wide; `None` for all others.
    fn special(&self, node: &str, request: &Attributes) -> Option<Result<(), String>> {
        if !request.is_resource {
            return None;
        }
        let verb = request.verb.as_str();
        let (resource, subresource) = (request.resource.as_str(), request.subresource.as_str());
        let read = matches!(verb, "get" | "list" | "watch");
        Some(match (request.group.as_str(), resource, subresource) {
            ("", "secrets", "") => self.if_related(read, Kind::Secret, node, request),
            ("", "configmaps", "") => self.if_related(read, Kind::ConfigMap, node, request),
            ("", "persistentvolumeclaims", "") => self.if_related(verb == "get", Kind::Claim, node, request),
            ("", "persistentvolumeclaims", "status") => {
                self.if_related(matches!(verb, "get" | "update" | "patch"), Kind::Claim, node, request)
            }
            ("", "persistentvolumes", "") => self.if_related(verb == "get", Kind::Volume, node, request),
            ("", "serviceaccounts", "") => self.if_related(verb == "get", Kind::ServiceAccount, node, request),
            ("", "serviceaccounts", "token") => self.if_related(verb == "create", Kind::ServiceAccount, node, request),
            ("resource.k8s.io", "resourceclaims", "") => {
                self.if_related(verb == "get", Kind::ResourceClaim, node, request)
            }
            ("storage.k8s.io", "volumeattachments", "") => self.attachment(verb, node, request),
            ("coordination.k8s.io", "leases", "") if request.namespace == LEASES => {
                own_object(&["get", "create", "update", "patch", "delete"], node, request)
            }
            ("coordination.k8s.io", "leases", "") => {
                Err(format!("can only access leases in the {LEASES:?} system namespace"))
            }
            ("storage.k8s.io", "csinodes", "") => {
                own_object(&["get", "create", "update", "patch", "delete"], node, request)
            }
            ("", "nodes", "") if read && request.name != node => Err(format!(
                "node {node:?} cannot read {:?}, only its own Node object",
                request.name
            )),
            ("", "pods", "") if read => self.pods(verb, node, request),
            _ => return None,
        })
    }

    fn if_related(&self, verb_fits: bool, kind: Kind, node: &str, request: &Attributes) -> Result<(), String> {
        let (namespace, name) = (request.namespace.as_str(), request.name.as_str());
        if !verb_fits || name.is_empty() || namespace.is_empty() && kind != Kind::Volume {
            return Err(format!("can only read {} by name", request.resource));
        }
        self.catch_up();
        if self.graph.read().relates(node, kind, namespace, name) {
            return Ok(());
        }
        Err(format!("no relationship found between node {node:?} and this object"))
    }

    fn attachment(&self, verb: &str, node: &str, request: &Attributes) -> Result<(), String> {
        let resource = GroupResource::new("storage.k8s.io", "volumeattachments");
        let found = self.reader.get(&resource, None, &request.name);
        let attachment = found.and_then(|o| serde_json::from_slice::<Value>(&o.json).ok());
        let of = attachment.as_ref().and_then(|a| a.pointer("/spec/nodeName"));
        if verb == "get" && of.and_then(Value::as_str) == Some(node) {
            return Ok(());
        }
        Err(format!("no relationship found between node {node:?} and this object"))
    }

    /// Pods are read by name, or by a selector of the node.
    fn pods(&self, verb: &str, node: &str, request: &Attributes) -> Result<(), String> {
        if verb == "get" {
            self.catch_up();
            if self.graph.read().runs(node, &request.namespace, &request.name) {
                return Ok(());
            }
            return Err(format!("no relationship found between node {node:?} and this object"));
        }
        let selector = FieldSelector::parse(&request.field_selector).unwrap_or_default();
        if selector.required_value("spec.nodeName") == Some(node) {
            return Ok(());
        }
        Err("can only list/watch pods with spec.nodeName field selector".to_owned())
    }
}

/// The object is named as the node. A create has no name yet: NodeRestriction sees to that.
fn own_object(verbs: &[&str], node: &str, request: &Attributes) -> Result<(), String> {
    let verb = request.verb.as_str();
    if !verbs.contains(&verb) {
        return Err(format!("can only {} a {}", verbs.join(", "), request.resource));
    }
    if verb != "create" && request.name != node {
        return Err(format!(
            "can only access {} with the same name as the requesting node",
            request.resource
        ));
    }
    Ok(())
}

fn take(
    graph: &mut Graph,
    news: News,
    clear: impl Fn(&mut Graph),
    put: impl Fn(&mut Graph, &Value),
    remove: impl Fn(&mut Graph, &Value),
) {
    let parse = |object: &CachedObject| serde_json::from_slice::<Value>(&object.json).ok();
    match news {
        News::None => {}
        News::All(objects) => {
            clear(graph);
            objects.iter().filter_map(parse).for_each(|object| put(graph, &object));
        }
        News::Changes(changes) => {
            for change in changes {
                match change {
                    Change::Applied(object) => parse(&object).iter().for_each(|o| put(graph, o)),
                    Change::Deleted(object) => parse(&object).iter().for_each(|o| remove(graph, o)),
                }
            }
        }
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.decide(attributes)
    }

    async fn rules_for(&self, user: &UserInfo, _namespace: &str) -> RulesFor {
        // Which objects depends on the pods: it cannot be told as rules.
        RulesFor {
            incomplete: node_of(user).is_some(),
            ..RulesFor::default()
        }
    }
}
