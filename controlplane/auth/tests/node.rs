//! What kubelets may do, and what not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use minato_auth::{Attributes, Decision, NodeAuthorizer, UserInfo};
use minato_meta::{GroupResource, MemoryReader};
use serde_json::json;

fn core(resource: &str) -> GroupResource {
    GroupResource::new("", resource)
}

fn kubelet(node: &str) -> UserInfo {
    UserInfo {
        name: format!("system:node:{node}"),
        groups: vec!["system:nodes".into(), "system:authenticated".into()],
        ..UserInfo::default()
    }
}

/// `VERB GROUP RESOURCE[/SUB] NAMESPACE NAME [SELECTOR]`, `-` for nothing.
fn allowed(authorizer: &NodeAuthorizer, user: &UserInfo, text: &str) -> bool {
    let parts: Vec<&str> = text.split(' ').map(|p| if p == "-" { "" } else { p }).collect();
    let (resource, subresource) = parts[2].split_once('/').unwrap_or((parts[2], ""));
    let request = Attributes {
        user: user.clone(),
        verb: parts[0].into(),
        is_resource: true,
        group: parts[1].into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: parts[3].into(),
        name: parts[4].into(),
        field_selector: parts.get(5).unwrap_or(&"").to_string(),
        ..Attributes::default()
    };
    matches!(authorizer.decide(&request), Decision::Allow(_))
}

#[test]
fn a_kubelet_reads_what_its_pods_need_and_writes_about_itself() {
    let reader = Arc::new(MemoryReader::new());
    let authorizer = NodeAuthorizer::new(reader.clone());
    let n1 = kubelet("n1");
    assert!(!allowed(&authorizer, &n1, "get - secrets a s"));
    let pod = json!({
        "metadata": {"namespace": "a", "name": "p"},
        "spec": {"nodeName": "n1", "serviceAccountName": "sa", "volumes": [
            {"name": "s", "secret": {"secretName": "s"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
        ]},
    });
    reader.put(&core("pods"), pod);
    reader.put(
        &core("persistentvolumes"),
        json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "a", "name": "claim"}}}),
    );
    reader.put(
        &GroupResource::new("storage.k8s.io", "volumeattachments"),
        json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}}),
    );
    let n2 = kubelet("n2");
    for (text, one, two) in [
        ("get - secrets a s", true, false),
        ("list - secrets a s", true, false),
        ("watch - secrets a s", true, false),
        ("list - secrets a -", false, false),
        ("list - secrets - -", false, false),
        ("get - secrets a other", false, false),
        ("get - secrets b s", false, false),
        ("update - secrets a s", false, false),
        ("get - configmaps a s", false, false),
        ("get - persistentvolumeclaims a claim", true, false),
        ("update - persistentvolumeclaims a claim", false, false),
        ("patch - persistentvolumeclaims/status a claim", true, false),
        ("get - persistentvolumes - pv", true, false),
        ("list - persistentvolumes - -", false, false),
        ("get storage.k8s.io volumeattachments - va", true, false),
        ("get storage.k8s.io volumeattachments - nope", false, false),
        ("create - serviceaccounts/token a sa", true, false),
        ("create - serviceaccounts/token a root", false, false),
        ("get - pods a p", true, false),
        ("list - pods - - spec.nodeName=n1", true, false),
        ("watch - pods - - spec.nodeName=n2", false, true),
        ("watch - pods - - spec.nodeName!=n1", false, false),
        ("list - pods - -", false, false),
        ("update - pods/status a p", true, true),
        ("delete - pods a p", true, true),
        ("create - pods/eviction a p", true, true),
        ("create - pods/exec a p", false, false),
        ("get - nodes - n1", true, false),
        ("watch - nodes - n2", false, true),
        ("list - nodes - -", false, false),
        ("create - nodes - -", true, true),
        ("patch - nodes/status - n1", true, true),
        ("delete - nodes - n1", false, false),
        ("get coordination.k8s.io leases kube-node-lease n1", true, false),
        ("update coordination.k8s.io leases kube-node-lease n2", false, true),
        ("create coordination.k8s.io leases kube-node-lease -", true, true),
        ("list coordination.k8s.io leases kube-node-lease n1", false, false),
        ("get coordination.k8s.io leases kube-system n1", false, false),
        ("patch storage.k8s.io csinodes - n1", true, false),
        ("get - services a s", true, true),
        ("list - services - -", true, true),
        ("create - events a -", true, true),
        ("create certificates.k8s.io certificatesigningrequests - -", true, true),
        (
            "update certificates.k8s.io certificatesigningrequests/approval - c",
            false,
            false,
        ),
        ("create authentication.k8s.io tokenreviews - -", true, true),
        ("create authorization.k8s.io subjectaccessreviews - -", true, true),
        ("list - namespaces - -", false, false),
        ("get rbac.authorization.k8s.io clusterroles - x", false, false),
    ] {
        assert_eq!(allowed(&authorizer, &n1, text), one, "n1: {text}");
        assert_eq!(allowed(&authorizer, &n2, text), two, "n2: {text}");
    }
    // A name without the group, and the group without a name, are no node.
    let mut impostor = kubelet("n1");
    impostor.groups.clear();
    assert!(!allowed(&authorizer, &impostor, "get - secrets a s"));
    let mut nameless = kubelet("n1");
    nameless.name = "n1".into();
    assert!(!allowed(&authorizer, &nameless, "get - secrets a s"));
    assert!(!allowed(&authorizer, &kubelet(""), "get - services a s"));
    // With the pod goes the access; a relist says the same.
    reader.forget_history(&core("pods"));
    assert!(allowed(&authorizer, &n1, "get - secrets a s"));
    reader.remove(&core("pods"), Some("a"), "p");
    assert!(!allowed(&authorizer, &n1, "get - secrets a s"));
    assert!(!allowed(&authorizer, &n1, "get - persistentvolumes - pv"));
}
