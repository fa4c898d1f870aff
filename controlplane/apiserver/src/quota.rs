//! Quotas of a namespace, charged in the same transaction as the write that uses more of them.
//!
//! The new `status.used` goes into the store under the condition that the quota is still as it was reckoned with: so the
//! sum of what is admitted never passes a limit, whatever number of writers and API servers there is. Within one server
//! the writes of a namespace that has quotas take turns, since of two at once one would have to start over. What objects
//! give back is counted by the quota controller. Source: <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use minato_meta::{ApiError, GroupResource};
use minato_rules::quota::{self, Amounts};
use minato_storage::{Compare, Expect, Op, key, object};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::endpoints::transaction::{Effects, store_error};
use crate::endpoints::{Target, metadata};
use crate::server::ApiServer;

/// Namespaces share this many queues.
const QUEUES: usize = 64;

/// Where writes that are charged take turns, by namespace.
pub(crate) struct Turns {
    queues: Vec<Arc<Semaphore>>,
}

/// A turn; it is over when the last clone is dropped.
pub(crate) type Turn = Arc<OwnedSemaphorePermit>;

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            queues: (0..QUEUES).map(|_| Arc::new(Semaphore::new(1))).collect(),
        }
    }

    /// Waits for one's turn, first come, first served.
    async fn take(&self, namespace: &str) -> Result<Turn, ApiError> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let queue = usize::try_from(hasher.finish() % QUEUES as u64).unwrap_or(0);
        let permit = self.queues[queue].clone().acquire_owned().await;
        permit.map(Arc::new).map_err(ApiError::internal)
    }
}

fn quotas() -> GroupResource {
    GroupResource::new("", "resourcequotas")
}

/// Whether such a write can use more than before, as upstream's evaluators see it.
fn concerns(target: &Target, is_create: bool) -> bool {
    let resource = &target.resource.gvr;
    let core = |name: &str| resource.group.is_empty() && resource.resource == name;
    match target.subresource.as_str() {
        "" if is_create => true,
        "" => core("services") || core("persistentvolumeclaims"),
        "resize" => core("pods"),
        _ => false,
    }
}

/// Adds to `effects` what the write of `new` costs the quotas of its namespace.
///
/// # Errors
/// 403 when a quota does not allow it, and the store's.
pub(crate) async fn charge(
    server: &ApiServer,
    target: &Target,
    old: Option<&Value>,
    new: &Value,
    effects: &mut Effects,
) -> Result<(), ApiError> {
    let Some(namespace) = target.namespace.as_deref().filter(|_| concerns(target, old.is_none())) else {
        return Ok(());
    };
    let names = selecting(server, namespace, target, new);
    if names.is_empty() {
        return Ok(());
    }
    let resource = target.resource.gvr.group_resource();
    let now = Timestamp::now();
    let after = quota::usage(&resource, new, now);
    let more = match old {
        Some(old) => quota::increase(&quota::usage(&resource, old, now), &after),
        None => after,
    };
    effects.turn = Some(server.quota_turns.take(namespace).await?);
    for name in names {
        let key = key::object_key(&quotas(), Some(namespace), &name);
        let Some(kv) = server.store.get(&key).await.map_err(store_error)?.kv else {
            continue;
        };
        let mut stored = object::decode(&kv.value, kv.mod_revision).map_err(ApiError::internal)?;
        if !spend(&mut stored, &name, target, new, &more)? {
            continue;
        }
        effects.compare.push(Compare {
            key: key.clone(),
            expect: Expect::ModRevision(kv.mod_revision),
        });
        effects.ops.push(Op::Put {
            key,
            value: object::encode(&stored).map_err(ApiError::internal)?,
            ttl: None,
        });
    }
    Ok(())
}

/// The namespace's quotas that are about such an object, by name.
fn selecting(server: &ApiServer, namespace: &str, target: &Target, new: &Value) -> Vec<String> {
    let resource = target.resource.gvr.group_resource();
    let all = server.reader.list(&quotas(), Some(namespace));
    let trees = all.iter().filter_map(|q| serde_json::from_slice::<Value>(&q.json).ok());
    let about = trees.filter(|q| quota::selects(q, &resource, new));
    about.map(|q| metadata::text(&q, "name").to_owned()).collect()
}

/// Adds to a quota's `status.used`; whether that changes it.
fn spend(stored: &mut Value, name: &str, target: &Target, new: &Value, more: &Amounts) -> Result<bool, ApiError> {
    let resource = target.resource.gvr.group_resource();
    let forbidden = |why: String| ApiError::forbidden(&resource, metadata::text(new, "name"), why);
    let hard = quota::in_force(stored);
    let limited = quota::of_kind(hard.keys(), &resource);
    if limited.is_empty() {
        return Ok(false);
    }
    let is_pods = resource.group.is_empty() && resource.resource == "pods";
    if let Some(open) = is_pods.then(|| quota::unstated(new, &limited)).flatten() {
        return Err(forbidden(format!("failed quota: {name}: must specify {open}")));
    }
    let mut used = quota::used(stored);
    let unknown: Vec<&str> = limited.iter().copied().filter(|n| !used.contains_key(*n)).collect();
    if !unknown.is_empty() {
        let resources = unknown.join(",");
        return Err(forbidden(format!(
            "status unknown for quota: {name}, resources: {resources}"
        )));
    }
    let asked: Amounts = quota::only(more, &limited)
        .into_iter()
        .filter(|(_, amount)| amount.signum() != 0)
        .collect();
    if asked.is_empty() {
        return Ok(false);
    }
    let exceeded = quota::exceeded(&hard, &used, &asked);
    if !exceeded.is_empty() {
        let show = |amounts: &Amounts| shown(&quota::only(amounts, &exceeded));
        return Err(forbidden(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            show(&asked),
            show(&used),
            show(&hard),
        )));
    }
    quota::add(&mut used, &asked);
    for name in asked.keys() {
        if let (Some(slot), Some(amount)) = (stored.pointer_mut("/status/used"), used.get(name)) {
            slot[name.as_str()] = json!(amount.to_string());
        }
    }
    Ok(true)
}

/// `cpu=1,pods=2`.
fn shown(amounts: &Amounts) -> String {
    let pairs: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    pairs.join(",")
}
