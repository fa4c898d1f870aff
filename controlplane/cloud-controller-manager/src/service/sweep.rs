//! Looks for load balancers that no Service has: what is left when finalizers were taken off while nobody looked, or
//! when a cluster was restored from an older state. By default it only tells, because what nobody asked to be deleted
//! may be missed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use minato_provider_interface::{CloudError, OwnedResource};

use super::Services;
use crate::ops;

pub(super) fn start(services: Arc<Services>) {
    let tasks = services.cx.runtime.tasks.clone();
    tasks.spawn("load balancer sweep", async move {
        services.services.synced().await;
        let mut suspects = BTreeSet::new();
        loop {
            tokio::time::sleep(ops::jittered(services.cx.config.sweep_period)).await;
            match services.sweep(&suspects).await {
                Ok(found) => suspects = found,
                Err(error) => tracing::warn!(kind = ?error.kind(), %error, "orphans could not be looked for"),
            }
        }
    });
}

impl Services {
    /// Returns the ids of what no Service has; only what was already so at the last sweep is told of or deleted.
    async fn sweep(&self, before: &BTreeSet<String>) -> Result<BTreeSet<String>, CloudError> {
        let limit = self.cx.config.call_timeout;
        let owned = ops::within(limit, self.cx.provider.owned_resources()).await?;
        let living: HashSet<String> = self
            .services
            .list()
            .iter()
            .map(|service| ops::uid(&service.metadata).to_owned())
            .collect();
        let orphan = |resource: &&OwnedResource| {
            let tags = &resource.tags;
            tags.owner_kind == "Service"
                && tags.cluster == *self.cx.provider.cluster_id()
                && !living.contains(&tags.owner_uid)
                && !self.is_known(&tags.owner_uid)
        };
        let orphans: Vec<_> = owned.iter().filter(orphan).collect();
        for resource in orphans.iter().filter(|resource| before.contains(&resource.id)) {
            let (kind, id, service) = (resource.kind, &resource.id, &resource.tags.owner_name);
            if !self.cx.config.delete_orphans {
                tracing::warn!(
                    ?kind,
                    id,
                    service,
                    "no service has this; delete it, or let the sweep do it"
                );
                continue;
            }
            match ops::within(limit, self.cx.provider.delete_owned(resource)).await {
                Ok(()) => tracing::info!(?kind, id, service, "deleted what no service had"),
                Err(error) => tracing::warn!(?kind, id, service, %error, "orphan not deleted"),
            }
        }
        Ok(orphans.into_iter().map(|resource| resource.id.clone()).collect())
    }

    /// Whether a deletion of its own is still under way.
    fn is_known(&self, uid: &str) -> bool {
        let memory = self.memory.lock();
        memory.known.values().any(|(owner, _)| owner.owner_uid == uid)
    }
}
