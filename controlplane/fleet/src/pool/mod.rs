//! `NodePool`: machines of the cloud, joined to the pool's cluster.

mod drain;
mod join;
mod nodes;
mod plan;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::fleet::{Cluster, FINALIZER, MachinePhase, MachineRecord, NodePool};
use minato_api::kube::Api;
use minato_api::kube::api::{Patch, PatchParams};
use minato_provider_interface::{
    CloudError, CloudErrorKind, CloudProvider, ClusterId, Machine, Machines, OwnerTags, ProviderId,
};
use minato_runtime::{Controller, EventKind, Next, ObjectKey, Recorder};
use serde_json::json;

use crate::cluster;
use crate::error::{Result, api, unless};
use crate::manager::Context;
use crate::tenants::TenantApi;

/// How soon to look again at machines or pods that are on their way; nothing tells of a machine's end.
const MOVING: Duration = Duration::from_millis(500);
/// How often the cloud is asked whether all is as it was.
const STEADY: Duration = Duration::from_secs(30);
/// Longest host name label. Source: RFC 1035, section 2.3.4.
const MAX_NAME: usize = 63;

pub(crate) struct Pools {
    cx: Context,
    recorder: Recorder,
}

/// One pool and its surroundings, in one reconciliation.
struct Work<'a> {
    pool: &'a NodePool,
    cluster: Arc<Cluster>,
    owner: OwnerTags,
    provider: Arc<dyn CloudProvider>,
    /// Not there before the control plane is ready, or when it goes.
    tenant: Option<Arc<TenantApi>>,
}

impl Pools {
    pub(crate) fn new(cx: Context) -> Arc<Self> {
        let recorder = cx.runtime.recorder("nodepool-controller");
        Arc::new(Self { cx, recorder })
    }

    pub(crate) fn run(self: Arc<Self>, controller: Controller) {
        let pools = self.cx.pools.clone();
        controller
            .watch_primary(&self.cx.pools)
            .watch(&self.cx.clusters, move |change, add| {
                let cluster = change.object();
                for pool in pools.list_in(cluster::namespace(cluster)) {
                    if pool.spec.cluster_name == cluster::name(cluster) {
                        add(ObjectKey::of(pool.as_ref()));
                    }
                }
            })
            .run(move |key| {
                let this = self.clone();
                async move { this.reconcile(key).await }
            });
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(pool) = self.cx.pools.get(&key) else {
            return Ok(Next::Done);
        };
        let deleting = pool.metadata.deletion_timestamp.is_some();
        let held = pool
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|present| present == FINALIZER);
        let Some(cluster) = self.cx.clusters.get_in(&key.namespace, &pool.spec.cluster_name) else {
            // A Cluster is held until its pools are gone, so this pool never had any machine.
            if deleting && held {
                self.set_finalizers(&pool, |list| list.retain(|present| present != FINALIZER))
                    .await?;
            }
            let why = format!(
                "there is no Cluster {:?} in namespace {:?}",
                pool.spec.cluster_name, key.namespace
            );
            self.write_status(&pool, &status::waiting(&pool, &why)).await?;
            return Ok(Next::Done);
        };
        if deleting && !held {
            return Ok(Next::Done);
        }
        if !held {
            self.set_finalizers(&pool, |list| list.push(FINALIZER.to_owned()))
                .await?;
            return Ok(Next::Done);
        }
        let work = self.work(&pool, cluster)?;
        match self.advance(&work, deleting).await {
            Ok(next) => Ok(next),
            Err(error) => {
                self.write_status(&pool, &status::waiting(&pool, &error.to_string()))
                    .await?;
                Err(error)
            }
        }
    }

    fn work<'a>(&self, pool: &'a NodePool, cluster: Arc<Cluster>) -> Result<Work<'a>> {
        let id = cluster::id(&cluster);
        let provider = self
            .cx
            .clouds
            .provider(&cluster.spec.cloud.provider, &ClusterId(id.clone()))?;
        let going = cluster.metadata.deletion_timestamp.is_some();
        let ready = cluster.status.as_ref().is_some_and(|status| status.phase == "Ready");
        Ok(Work {
            owner: OwnerTags {
                cluster: ClusterId(id.clone()),
                owner_kind: "NodePool".to_owned(),
                owner_name: format!("{}/{}", cluster::namespace(&cluster), name(pool)),
                owner_uid: pool.metadata.uid.clone().unwrap_or_default(),
            },
            tenant: self.cx.tenants.get(&id).filter(|_| ready && !going),
            pool,
            cluster,
            provider,
        })
    }

    async fn advance(&self, work: &Work<'_>, deleting: bool) -> Result<Next> {
        let machines = machines(work.provider.as_ref())?;
        let cloud = machines.list(&work.owner).await?;
        let wanted = if deleting {
            0
        } else {
            usize::try_from(work.pool.spec.replicas).unwrap_or(0)
        };
        let drained = self.drain(work).await?;
        let recorded = work.pool.status.clone().unwrap_or_default().machines;
        let records = plan::plan(&mut plan::Inputs {
            records: &recorded,
            cloud: &cloud,
            wanted,
            drain: work.tenant.is_some(),
            ready: &|name| work.tenant.as_ref().is_some_and(|tenant| nodes::is_ready(tenant, name)),
            drained: &|name| drained.contains(name),
            now: Timestamp::now(),
            new_name: &mut || new_name(work),
        });
        let status = status::observed(work.pool, &records, cloud.len(), work.tenant.as_deref());
        self.write_status(work.pool, &status).await?;
        if records != recorded {
            // Acted upon only once it is known to be written: the write wakes this pool again.
            return Ok(Next::Done);
        }
        if deleting && records.is_empty() {
            self.set_finalizers(work.pool, |list| list.retain(|present| present != FINALIZER))
                .await?;
            return Ok(Next::Done);
        }
        self.carry_out(work, machines, &records, &cloud).await?;
        if let Some(tenant) = &work.tenant {
            nodes::apply_labels(tenant, work.pool).await?;
            nodes::forget_removed(tenant, work.pool, &records).await?;
        }
        let moving = |record: &MachineRecord| record.phase != MachinePhase::Created;
        // Without the tenant's API no machine can be made; its Cluster wakes this pool.
        let waits = work.tenant.is_none() && !deleting;
        Ok(Next::After(if !waits && records.iter().any(moving) {
            MOVING
        } else {
            STEADY
        }))
    }

    async fn carry_out(
        &self,
        work: &Work<'_>,
        machines: &dyn Machines,
        records: &[MachineRecord],
        cloud: &[Machine],
    ) -> Result<()> {
        for record in records {
            match record.phase {
                MachinePhase::Creating => {
                    if let Some(tenant) = &work.tenant {
                        let spec = join::machine(work.pool, &work.cluster, &work.owner, tenant, record, self).await?;
                        let machine = machines.create(&spec).await?;
                        let text = format!("created machine {} ({})", record.name, machine.provider_id);
                        self.recorder
                            .event(work.pool, EventKind::Normal, "MachineCreated", text);
                    }
                }
                MachinePhase::Deleting => {
                    if let Some(machine) = cloud.iter().find(|machine| machine.name == record.name) {
                        machines.terminate(&machine.provider_id).await?;
                    } else if !record.provider_id.is_empty() {
                        machines.terminate(&ProviderId::new(&record.provider_id)).await?;
                    }
                }
                MachinePhase::Created | MachinePhase::Draining => {}
            }
        }
        Ok(())
    }

    /// Goes on moving pods from nodes that drain; the names of those that are done.
    async fn drain(&self, work: &Work<'_>) -> Result<BTreeSet<String>> {
        let mut done = BTreeSet::new();
        let records = work.pool.status.iter().flat_map(|status| &status.machines);
        for record in records.filter(|record| record.phase == MachinePhase::Draining) {
            if let Some(tenant) = &work.tenant
                && drain::step(tenant, &record.name).await?
            {
                done.insert(record.name.clone());
            }
        }
        Ok(done)
    }

    fn api(&self, pool: &NodePool) -> Api<NodePool> {
        let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.cx.runtime.client.clone(), namespace)
    }

    /// Writes the status if it differs. Refused when the object has changed meanwhile: the plan was made from the old.
    async fn write_status(&self, pool: &NodePool, status: &minato_api::fleet::NodePoolStatus) -> Result<()> {
        if pool.status.as_ref() == Some(status) {
            return Ok(());
        }
        let patch = json!({"status": status, "metadata": {
            "resourceVersion": pool.metadata.resource_version,
            "uid": pool.metadata.uid,
        }});
        let result = self
            .api(pool)
            .patch_status(name(pool), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        unless(result, 404)
            .map(drop)
            .map_err(api("writing the node pool's status"))
    }

    async fn set_finalizers(&self, pool: &NodePool, change: impl FnOnce(&mut Vec<String>)) -> Result<()> {
        let mut finalizers = pool.metadata.finalizers.clone().unwrap_or_default();
        change(&mut finalizers);
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": pool.metadata.resource_version,
            "uid": pool.metadata.uid,
        }});
        let result = self
            .api(pool)
            .patch(name(pool), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        unless(result, 404)
            .map(drop)
            .map_err(api("writing the node pool's finalizers"))
    }

    /// The cluster's CA certificate, for its nodes.
    fn authority(&self, cluster: &Cluster) -> Result<String> {
        let pki = self.cx.hosting.pki(&cluster::id(cluster), cluster::name(cluster))?;
        Ok(pki.ca_certificate().to_owned())
    }
}

fn machines(provider: &dyn CloudProvider) -> Result<&dyn Machines> {
    let unsupported = || {
        let text = format!("provider {} cannot make machines", provider.name());
        CloudError::new(CloudErrorKind::Unsupported, text)
    };
    Ok(provider.machines().ok_or_else(unsupported)?)
}

fn name(pool: &NodePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// `<cluster>-<pool>-<random>`, which is the Node's name too.
fn new_name(work: &Work<'_>) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let suffix: String = (0..5)
        .map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]))
        .collect();
    let mut prefix = format!("{}-{}", cluster::name(&work.cluster), name(work.pool));
    prefix.truncate(MAX_NAME - 1 - suffix.len());
    format!("{prefix}-{suffix}")
}
