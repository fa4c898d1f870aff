//! Deletion of a Cluster: pools first, then the control plane, then whatever the cloud still has of it, then its files.

use std::time::Duration;

use minato_api::fleet::{Cluster, FINALIZER, NodePool};
use minato_api::kube::Api;
use minato_api::kube::api::{DeleteParams, Patch, PatchParams};
use minato_provider_interface::ClusterId;
use minato_runtime::Next;
use serde_json::json;

use super::{Clusters, has_finalizer, id, name, namespace, owner};
use crate::error::{Result, api, unless};

/// How soon to ask the cloud again whether something is gone.
const AGAIN: Duration = Duration::from_millis(500);

impl Clusters {
    /// One step of the deletion; each may be repeated, and nothing is forgotten before it is observed gone.
    pub(super) async fn teardown(&self, cluster: &Cluster) -> Result<Next> {
        if !has_finalizer(cluster) {
            return Ok(Next::Done);
        }
        self.say_deleting(cluster).await?;
        if self.delete_pools(cluster).await? {
            // The last pool's end wakes this cluster.
            return Ok(Next::After(AGAIN * 20));
        }
        let id = id(cluster);
        self.cx.tenants.close(&id);
        // Before the cloud is swept: a running control plane would make load balancers and routes again.
        self.cx.hosting.stop(&id).await?;
        let provider_name = &cluster.spec.cloud.provider;
        self.cx.clouds.unexpose(provider_name, &owner(cluster)).await?;
        self.exposed.lock().remove(&id);
        let provider = self.cx.clouds.provider(provider_name, &ClusterId(id.clone()))?;
        let left = provider.owned_resources().await?;
        for resource in &left {
            tracing::info!(cluster = name(cluster), kind = ?resource.kind, id = resource.id, "deleting what the cloud still has");
            provider.delete_owned(resource).await?;
        }
        if !left.is_empty() {
            return Ok(Next::After(AGAIN));
        }
        self.cx.hosting.remove(&id).await?;
        self.set_finalizers(cluster, |list| list.retain(|present| present != FINALIZER))
            .await?;
        tracing::info!(cluster = name(cluster), "cluster removed");
        Ok(Next::Done)
    }

    async fn say_deleting(&self, cluster: &Cluster) -> Result<()> {
        if cluster.status.as_ref().is_some_and(|status| status.phase == "Deleting") {
            return Ok(());
        }
        let patch = json!({"status": {"phase": "Deleting"}});
        let result = self
            .api(cluster)
            .patch_status(name(cluster), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        unless(result, 404)
            .map(drop)
            .map_err(api("writing the cluster's status"))
    }

    /// Deletes the cluster's pools; true while any is left.
    async fn delete_pools(&self, cluster: &Cluster) -> Result<bool> {
        let pools: Api<NodePool> = Api::namespaced(self.cx.runtime.client.clone(), namespace(cluster));
        let mut left = false;
        for pool in self.cx.pools.list_in(namespace(cluster)) {
            if pool.spec.cluster_name != name(cluster) {
                continue;
            }
            left = true;
            if pool.metadata.deletion_timestamp.is_none() {
                let name = pool.metadata.name.as_deref().unwrap_or_default();
                let result = pools.delete(name, &DeleteParams::default()).await;
                unless(result, 404).map_err(api("deleting the cluster's node pool"))?;
            }
        }
        Ok(left)
    }
}
