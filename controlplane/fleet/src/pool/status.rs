//! What is written about a NodePool.

use minato_api::fleet::{MachineRecord, NodePool, NodePoolStatus, POOL_LABEL};

use super::{name, nodes};
use crate::cluster::condition;
use crate::tenants::TenantApi;

/// The status after a look at all of it.
pub(super) fn observed(
    pool: &NodePool,
    records: &[MachineRecord],
    machines: usize,
    tenant: Option<&TenantApi>,
) -> NodePoolStatus {
    let old = pool.status.clone().unwrap_or_default();
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let ready = match tenant {
        Some(tenant) => count(
            records
                .iter()
                .filter(|record| nodes::is_ready(tenant, &record.name))
                .count(),
        ),
        None => old.ready_replicas.min(count(records.len())),
    };
    let wanted = pool.spec.replicas;
    let complete = ready == wanted && count(machines) == wanted;
    let (status, reason) = if complete {
        ("True", "AllNodesReady")
    } else {
        ("False", "Scaling")
    };
    let message = format!("{ready} of {wanted} nodes are ready; {machines} machines exist");
    with_condition(
        pool,
        status,
        reason,
        &message,
        NodePoolStatus {
            replicas: count(machines),
            ready_replicas: ready,
            machines: records.to_vec(),
            ..old
        },
    )
}

/// The same as before with a reason why nothing can be done now.
pub(super) fn waiting(pool: &NodePool, why: &str) -> NodePoolStatus {
    with_condition(pool, "False", "Waiting", why, pool.status.clone().unwrap_or_default())
}

fn with_condition(
    pool: &NodePool,
    status: &str,
    reason: &str,
    message: &str,
    mut new: NodePoolStatus,
) -> NodePoolStatus {
    let generation = pool.metadata.generation.unwrap_or(0);
    new.conditions = vec![condition(&new.conditions, "Ready", status, reason, message, generation)];
    new.observed_generation = generation;
    new.selector = format!("{POOL_LABEL}={}", name(pool));
    new
}
