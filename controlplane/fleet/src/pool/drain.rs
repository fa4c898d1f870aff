//! Moves the pods of a node that goes, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` does.
//! Source: <https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/>.

use minato_api::k8s::core::v1::{Node, Pod};
use minato_api::kube::Api;
use minato_api::kube::api::{EvictParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::error::{Result, api, code, unless};
use crate::tenants::TenantApi;

/// Cordons the node and evicts what is left on it; true when nothing is.
pub(super) async fn step(tenant: &TenantApi, node: &str) -> Result<bool> {
    let Some(current) = tenant.nodes.get_cluster(node) else {
        return Ok(true);
    };
    let cordoned = current
        .spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true));
    if !cordoned {
        let nodes: Api<Node> = Api::all(tenant.client.clone());
        let patch = json!({"spec": {"unschedulable": true}});
        let result = nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await;
        unless(result, 404).map_err(api("cordoning a node"))?;
    }
    let pods: Api<Pod> = Api::all(tenant.client.clone());
    let listed = pods
        .list(&ListParams::default().fields(&format!("spec.nodeName={node}")))
        .await;
    let mut left = false;
    for pod in listed
        .map_err(api("listing a node's pods"))?
        .items
        .iter()
        .filter(|pod| moves(pod))
    {
        left = true;
        if pod.metadata.deletion_timestamp.is_none() {
            evict(tenant, pod).await?;
        }
    }
    Ok(!left)
}

/// Pods of daemon sets belong to the node, static pods too, and finished ones have nothing to lose.
fn moves(pod: &Pod) -> bool {
    let daemon = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == "DaemonSet");
    let mirror = pod
        .metadata
        .annotations
        .iter()
        .any(|all| all.contains_key("kubernetes.io/config.mirror"));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !daemon && !mirror && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// A disruption budget may refuse for now: asked again at the next step.
async fn evict(tenant: &TenantApi, pod: &Pod) -> Result<()> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(tenant.client.clone(), namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(code(&error), Some(404 | 409 | 429)) => Ok(()),
        Err(error) => Err(api("evicting a pod")(error)),
    }
}
