//! `NodeRestriction`: a kubelet changes its own Node and the pods that run there, and nothing else.
//!
//! The Node authorizer decides what a kubelet may reach; this plug-in looks at what it writes there.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::Value;

use crate::objects::{is_mirror, list, parse, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const USER: &str = "system:node:";
const GROUP: &str = "system:nodes";

/// Labels of Kubernetes' own that a kubelet may give its Node. Source: the same page.
const LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const LABEL_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// See the module.
pub struct NodeRestriction {
    reader: Arc<dyn ClusterReader>,
}

impl NodeRestriction {
    /// Looks pods up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    async fn pod(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
        match (request.operation, request.subresource) {
            (Operation::Create, "") => new_pod(&request.object, node),
            (Operation::Delete, "") | (Operation::Update, "status" | "resize") => own_pod(request.old_object, node),
            (Operation::Create, "eviction") => match self.stored_pod(request.namespace, request.name).await? {
                Some(pod) => own_pod(&pod, node),
                None => Ok(()),
            },
            (operation, subresource) => Err(format!("unexpected operation {operation:?} on pods/{subresource}")),
        }
    }

    /// Not from the cache: a kubelet may know of a pod a moment before it does.
    async fn stored_pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let pods = GroupResource::new("", "pods");
        let found = self.reader.get_consistent(&pods, Some(namespace), name).await;
        Ok(found
            .map_err(|error| error.message().to_owned())?
            .and_then(|object| parse(&object.json)))
    }

    /// Tokens only for pods that run there.
    async fn token(&self, request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
        let reference = request.object.pointer("/spec/boundObjectRef");
        let Some(reference) = reference.filter(|reference| text(reference, "/kind") == "Pod") else {
            return Err(format!("node requested token not bound to a pod ({node})"));
        };
        let (name, uid) = (text(reference, "/name"), text(reference, "/uid"));
        let Some(pod) = self.stored_pod(request.namespace, name).await? else {
            return Err(format!("node requested token bound to a pod that is not known: {name}"));
        };
        if text(&pod, "/metadata/uid") != uid {
            return Err(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record"
            ));
        }
        if text(&pod, "/spec/nodeName") != node {
            return Err("node requested token bound to a pod scheduled on a different node".to_owned());
        }
        let account = text(&pod, "/spec/serviceAccountName");
        if account != request.name {
            return Err(format!(
                "node requested token for another account than the pod's, {account}"
            ));
        }
        Ok(())
    }
}

fn own_pod(pod: &Value, node: &str) -> Result<(), String> {
    if text(pod, "/spec/nodeName") == node {
        return Ok(());
    }
    Err(format!(
        "node {node:?} can only change pods with spec.nodeName set to itself"
    ))
}

/// Only a static pod's mirror, on the node itself, and without anything secret.
fn new_pod(pod: &Value, node: &str) -> Result<(), String> {
    if !is_mirror(pod) {
        return Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        ));
    }
    own_pod(pod, node)?;
    let owners = list(pod, "/metadata/ownerReferences");
    let its_node = |owner: &Value| text(owner, "/kind") == "Node" && text(owner, "/name") == node;
    if owners.len() != 1 || !owners.iter().all(its_node) {
        return Err(format!("node {node:?} can only create pods that are owned by its Node"));
    }
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Err(format!(
            "node {node:?} can not create pods that reference a service account"
        ));
    }
    let secret = |volume: &Value| {
        ["secret", "configMap", "persistentVolumeClaim", "projected"]
            .iter()
            .any(|kind| volume.get(kind).is_some())
    };
    if list(pod, "/spec/volumes").iter().any(secret) {
        return Err(format!(
            "node {node:?} can not create pods that reference other objects"
        ));
    }
    Ok(())
}

fn node_object(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    let name = if request.name.is_empty() {
        text(&request.object, "/metadata/name")
    } else {
        request.name
    };
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match request.operation {
        Operation::Create => {
            let labels = request.object.pointer("/metadata/labels").and_then(Value::as_object);
            let bad: Vec<&str> = labels
                .into_iter()
                .flatten()
                .map(|(key, _)| key.as_str())
                .filter(|key| !may_set(key))
                .collect();
            if bad.is_empty() {
                Ok(())
            } else {
                Err(format!(
                    "node {node:?} is not allowed to set the following labels: {}",
                    bad.join(", ")
                ))
            }
        }
        Operation::Update if request.subresource.is_empty() => {
            if request.object.pointer("/spec/taints") != request.old_object.pointer("/spec/taints") {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            let bad = changed_labels(&request.object, request.old_object);
            if bad.is_empty() {
                Ok(())
            } else {
                Err(format!("is not allowed to modify labels: {}", bad.join(", ")))
            }
        }
        Operation::Update => Ok(()),
        Operation::Delete | Operation::Connect => Err(format!("node {node:?} is not allowed to delete nodes")),
    }
}

fn changed_labels(new: &Value, old: &Value) -> Vec<String> {
    let of = |object: &Value| {
        object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (new, old) = (of(new), of(old));
    let keys = new.keys().chain(old.keys());
    let mut changed: Vec<String> = keys
        .filter(|key| new.get(*key) != old.get(*key) && !may_set(key))
        .cloned()
        .collect();
    changed.sort();
    changed.dedup();
    changed
}

fn may_set(key: &str) -> bool {
    if LABELS.contains(&key) {
        return true;
    }
    let Some((domain, _)) = key.split_once('/') else {
        return true;
    };
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    LABEL_DOMAINS.iter().any(|parent| within(parent)) || !within("kubernetes.io") && !within("k8s.io")
}

fn lease(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    let name = if request.name.is_empty() {
        text(&request.object, "/metadata/name")
    } else {
        request.name
    };
    if request.namespace != "kube-node-lease" {
        return Err(format!(
            "can only access leases in the \"kube-node-lease\" system namespace, not {:?}",
            request.namespace
        ));
    }
    if name == node {
        Ok(())
    } else {
        Err(format!(
            "can only access node lease with the same name as the requesting node ({node})"
        ))
    }
}

fn csi_node(request: &AdmissionRequest<'_>, node: &str) -> Result<(), String> {
    let name = if request.name.is_empty() {
        text(&request.object, "/metadata/name")
    } else {
        request.name
    };
    if name == node {
        Ok(())
    } else {
        Err(format!(
            "can only access CSINode with the same name as the requesting node ({node})"
        ))
    }
}

#[async_trait]
impl AdmissionPlugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.user.in_group(GROUP) && request.user.name.starts_with(USER) && request.operation != Operation::Connect
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let node = request.user.name.strip_prefix(USER).unwrap_or_default();
        let result = match (
            request.resource.group.as_str(),
            request.resource.resource.as_str(),
            request.subresource,
        ) {
            ("", "pods", _) => self.pod(request, node).await,
            ("", "nodes", _) => node_object(request, node),
            ("", "serviceaccounts", "token") => self.token(request, node).await,
            ("coordination.k8s.io", "leases", _) => lease(request, node),
            ("storage.k8s.io", "csinodes", _) => csi_node(request, node),
            _ => Ok(()),
        };
        result.map_err(|why| ApiError::forbidden(&request.resource.group_resource(), request.name, why))
    }
}

#[cfg(test)]
mod tests {
    use minato_auth::UserInfo;
    use minato_meta::{GroupVersionKind, GroupVersionResource, MemoryReader};
    use serde_json::json;

    use super::*;

    fn plugin() -> NodeRestriction {
        let reader = MemoryReader::new();
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u1"},
            "spec": {"nodeName": "n1", "serviceAccountName": "app"},
        });
        reader.put(&GroupResource::new("", "pods"), pod);
        NodeRestriction::new(Arc::new(reader))
    }

    struct Write<'a> {
        operation: Operation,
        resource: (&'a str, &'a str, &'a str),
        name: &'a str,
        object: Value,
        old: Value,
    }

    /// Whether `system:node:n1` may do it, and why not.
    async fn verdict(write: Write<'_>) -> Result<(), String> {
        let user = UserInfo {
            name: "system:node:n1".to_owned(),
            groups: vec![GROUP.to_owned()],
            ..UserInfo::default()
        };
        let (group, resource, subresource) = write.resource;
        let request = AdmissionRequest {
            operation: write.operation,
            kind: GroupVersionKind::new(group, "v1", ""),
            resource: GroupVersionResource::new(group, "v1", resource),
            subresource,
            namespace: "d",
            name: write.name,
            user: &user,
            dry_run: false,
            object: write.object,
            old_object: &write.old,
            options: Value::Null,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        };
        let plugin = plugin();
        assert!(plugin.handles(&request));
        plugin
            .validate(&request)
            .await
            .map_err(|error| error.message().to_owned())
    }

    #[tokio::test]
    async fn a_node_changes_itself_and_no_other() {
        let node = |labels: Value| json!({"metadata": {"name": "n1", "labels": labels}});
        let update = |name, object, old| Write {
            operation: Operation::Update,
            resource: ("", "nodes", ""),
            name,
            object,
            old,
        };
        assert_eq!(
            verdict(update("n1", node(json!({"a": "b"})), node(json!({})))).await,
            Ok(())
        );
        assert!(verdict(update("n2", node(json!({})), node(json!({})))).await.is_err());
        let restricted = node(json!({"x.node-restriction.kubernetes.io/y": "z"}));
        assert!(verdict(update("n1", restricted, node(json!({})))).await.is_err());
        let role = node(json!({"node-role.kubernetes.io/control-plane": ""}));
        assert!(verdict(update("n1", role, node(json!({})))).await.is_err());
        assert_eq!(
            verdict(update(
                "n1",
                node(json!({"kubernetes.io/os": "linux"})),
                node(json!({}))
            ))
            .await,
            Ok(())
        );
        let mut untainted = node(json!({}));
        untainted["spec"] = json!({"taints": []});
        let mut tainted = node(json!({}));
        tainted["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        assert!(verdict(update("n1", untainted, tainted)).await.is_err());
    }

    #[tokio::test]
    async fn tokens_are_for_pods_that_run_there() {
        let token = |account, uid: &str| Write {
            operation: Operation::Create,
            resource: ("", "serviceaccounts", "token"),
            name: account,
            object: json!({"spec": {"boundObjectRef": {"kind": "Pod", "name": "p", "uid": uid}}}),
            old: Value::Null,
        };
        assert_eq!(verdict(token("app", "u1")).await, Ok(()));
        assert!(verdict(token("other", "u1")).await.is_err());
        assert!(verdict(token("app", "u2")).await.is_err());
        let mut unbound = token("app", "u1");
        unbound.object = json!({"spec": {}});
        assert!(verdict(unbound).await.is_err());
    }

    #[tokio::test]
    async fn pods_of_other_nodes_are_out_of_reach() {
        let status = |node: &str| Write {
            operation: Operation::Update,
            resource: ("", "pods", "status"),
            name: "p",
            object: json!({}),
            old: json!({"spec": {"nodeName": node}}),
        };
        assert_eq!(verdict(status("n1")).await, Ok(()));
        assert!(verdict(status("n2")).await.is_err());
        let create = Write {
            operation: Operation::Create,
            resource: ("", "pods", ""),
            name: "x",
            object: json!({"spec": {"nodeName": "n1"}}),
            old: Value::Null,
        };
        assert!(verdict(create).await.is_err_and(|why| why.contains("mirror")));
    }
}
