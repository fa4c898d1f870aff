//! The pool's Nodes in the tenant's API.

use std::collections::{BTreeMap, BTreeSet};

use minato_api::fleet::{MachineRecord, NodePool, POOL_LABEL};
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Map, Value, json};

use super::name;
use crate::error::{Result, api, unless};
use crate::tenants::TenantApi;

/// Keys of the labels that the pool gave a Node, so that they can be taken away again.
const MANAGED: &str = "fleet.minato.dev/labels";

pub(super) fn is_ready(tenant: &TenantApi, name: &str) -> bool {
    let Some(node) = tenant.nodes.get_cluster(name) else {
        return false;
    };
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn of_pool<'a>(tenant: &TenantApi, pool: &'a NodePool) -> impl Iterator<Item = std::sync::Arc<Node>> + use<'a> {
    let nodes = tenant.nodes.list().into_iter();
    nodes.filter(|node| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(POOL_LABEL))
            .is_some_and(|of| of == name(pool))
    })
}

/// Makes the labels that the pool asks for, and takes away those that it no longer does.
pub(super) async fn apply_labels(tenant: &TenantApi, pool: &NodePool) -> Result<()> {
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    for node in of_pool(tenant, pool) {
        if let Some(patch) = label_patch(&node, &pool.spec.labels) {
            let node_name = node.metadata.name.as_deref().unwrap_or_default();
            let result = nodes
                .patch_metadata(node_name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            unless(result, 404).map_err(api("labelling a node"))?;
        }
    }
    Ok(())
}

fn label_patch(node: &Node, wanted: &BTreeMap<String, String>) -> Option<Value> {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(MANAGED));
    let managed: BTreeSet<String> = annotation
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let keys: BTreeSet<String> = wanted.keys().cloned().collect();
    let mut changes = Map::new();
    for (key, value) in wanted {
        if labels.get(key) != Some(value) {
            changes.insert(key.clone(), json!(value));
        }
    }
    for key in managed.difference(&keys) {
        if labels.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    if changes.is_empty() && managed == keys {
        return None;
    }
    let list = json!(keys).to_string();
    Some(json!({"metadata": {"labels": changes, "annotations": {MANAGED: list}}}))
}

/// Deletes Nodes of the pool whose machine is gone. The cloud controller manager would too; this does not wait for it.
pub(super) async fn forget_removed(tenant: &TenantApi, pool: &NodePool, records: &[MachineRecord]) -> Result<()> {
    let nodes: Api<Node> = Api::all(tenant.client.clone());
    for node in of_pool(tenant, pool) {
        let node_name = node.metadata.name.as_deref().unwrap_or_default();
        if records.iter().all(|record| record.name != node_name) {
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: node.metadata.uid.clone(),
                resource_version: None,
            });
            let result = nodes.delete(node_name, &params).await;
            unless(result, 404).map_err(api("deleting the node of a machine that is gone"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_and_go_and_foreign_ones_stay() {
        let mut node = Node::default();
        node.metadata.labels = Some(BTreeMap::from([("mine".to_owned(), "x".to_owned())]));
        let wanted = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let patch = label_patch(&node, &wanted);
        assert_eq!(
            patch,
            Some(json!({"metadata": {"labels": {"a": "1"}, "annotations": {MANAGED: "[\"a\"]"}}}))
        );
        node.metadata.labels = Some(BTreeMap::from([("mine".into(), "x".into()), ("a".into(), "1".into())]));
        node.metadata.annotations = Some(BTreeMap::from([(MANAGED.to_owned(), "[\"a\"]".to_owned())]));
        assert_eq!(label_patch(&node, &wanted), None);
        assert_eq!(
            label_patch(&node, &BTreeMap::new()),
            Some(json!({"metadata": {"labels": {"a": null}, "annotations": {MANAGED: "[]"}}}))
        );
    }
}
