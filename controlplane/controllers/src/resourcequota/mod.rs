//! Keeps `status` of ResourceQuotas: what is limited, and how much of it is used.
//!
//! Admission adds to `used` as objects come; here it is counted anew when objects go, or change what they use. Only kinds
//! that some quota limits are watched, and of those that are merely counted the metadata alone.
//! Source: <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

mod kinds;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use minato_api::kube::Resource;
use minato_api::kube::api::{ListParams, PostParams};
use minato_api::kube::core::NamespaceResourceScope;
use minato_meta::GroupResource;
use minato_rules::quota;
use minato_runtime::{Change, Controller, Informer, Next, Object, ObjectKey, WorkQueue};
use serde_json::Value;

use crate::error::{Result, is_not_found};
use crate::{Context, ops};
use kinds::Counted;

/// Changes of objects are gathered for this long: many come together.
const GATHER: Duration = Duration::from_millis(300);
/// Pause until caches that were started just now are in step.
const SYNCING: Duration = Duration::from_millis(100);
/// Kinds that nothing here watches are counted again this often.
const UNWATCHED: Duration = Duration::from_secs(30);

struct Quotas {
    cx: Context,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    counted: Counted,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let quotas: Informer<ResourceQuota> = cx.informer();
    let controller = Controller::new("resource-quota", &cx.runtime);
    let queue = controller.queue();
    let this = Arc::new(Quotas {
        cx: cx.clone(),
        pods: cx.informer(),
        services: cx.informer(),
        claims: cx.informer(),
        counted: Counted::new(cx, wake(&queue, &quotas)),
        quotas: quotas.clone(),
    });
    controller
        .watch_primary(&quotas)
        .watch(&this.pods, on_change("pods", &queue, &quotas))
        .watch(&this.services, on_change("services", &queue, &quotas))
        .watch(&this.claims, on_change("persistentvolumeclaims", &queue, &quotas))
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// Queues all quotas of a namespace, after a while.
fn wake(
    queue: &WorkQueue<ObjectKey>,
    quotas: &Informer<ResourceQuota>,
) -> impl Fn(&str) + Clone + Send + Sync + 'static {
    let (queue, quotas) = (queue.clone(), quotas.clone());
    move |namespace| {
        for quota in quotas.list_in(namespace) {
            queue.add_after(ObjectKey::of(quota.as_ref()), GATHER);
        }
    }
}

/// Queues a namespace's quotas when an object of it uses another amount than before. Nothing is reckoned for namespaces
/// without quotas.
fn on_change<K: Object + serde::Serialize>(
    resource: &'static str,
    queue: &WorkQueue<ObjectKey>,
    quotas: &Informer<ResourceQuota>,
) -> impl Fn(&Change<K>, &mut dyn FnMut(ObjectKey)) + Send + Sync + 'static {
    let wake = wake(queue, quotas);
    let quotas = quotas.clone();
    move |change, _| {
        let namespace = ops::namespace(change.object().meta());
        if quotas.list_in(namespace).is_empty() {
            return;
        }
        let uses =
            |object: &Arc<K>| plan::usage_of(&GroupResource::new("", resource), object.as_ref(), Timestamp::now());
        let same = match change {
            Change::Updated { old, new } => uses(old) == uses(new),
            Change::Added(_) | Change::Deleted(_) => false,
        };
        if !same {
            wake(namespace);
        }
    }
}

impl Quotas {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(current) = self.quotas.get(&key) else {
            return Ok(Next::Done);
        };
        if current.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let tree = serde_json::to_value(current.as_ref())?;
        let hard = quota::hard(&tree);
        let mut next = Next::Done;
        let Some(mut used) = self.used(&key.namespace, &tree, &hard, &mut next, false).await? else {
            return Ok(Next::After(SYNCING));
        };
        if !quota::increase(&used, &quota::used(&tree)).is_empty() {
            // Less than admission has counted: gone, or not yet in a cache. To give back the latter would let too much
            // in, so the API server is asked; what it admits meanwhile makes the write below fail.
            let counted = self.used(&key.namespace, &tree, &hard, &mut next, true).await?;
            used = counted.unwrap_or(used);
        }
        self.write(&current, &hard, &used).await?;
        Ok(next)
    }

    /// What is used of all that is limited; none while a cache is not in step. `asked` reads the API server instead.
    async fn used(
        &self,
        namespace: &str,
        tree: &Value,
        hard: &quota::Amounts,
        next: &mut Next,
        asked: bool,
    ) -> Result<Option<quota::Amounts>> {
        let zero = |name: &String| (name.clone(), minato_meta::Quantity::ZERO);
        let mut used: quota::Amounts = hard.keys().map(zero).collect();
        for resource in plan::sources(hard) {
            let sum = if asked {
                Some(self.asked(namespace, &resource, tree).await?)
            } else {
                self.sum(namespace, &resource, tree, next).await?
            };
            let Some(sum) = sum else { return Ok(None) };
            for (name, amount) in sum {
                if let Some(total) = used.get_mut(&name) {
                    *total = *total + amount;
                }
            }
        }
        Ok(Some(used))
    }

    /// What all objects of a kind use together, by a consistent list.
    async fn asked(&self, namespace: &str, resource: &GroupResource, tree: &Value) -> Result<quota::Amounts> {
        let now = Timestamp::now();
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods") => plan::sum(tree, resource, &self.listed::<Pod>(namespace).await?, now),
            ("", "services") => plan::sum(tree, resource, &self.listed::<Service>(namespace).await?, now),
            ("", "persistentvolumeclaims") => {
                let claims = self.listed::<PersistentVolumeClaim>(namespace).await?;
                plan::sum(tree, resource, &claims, now)
            }
            _ if !quota::selects(tree, resource, &Value::Null) => Ok(quota::Amounts::new()),
            _ => {
                let count = self.counted.asked(resource, namespace).await?;
                Ok(plan::times(quota::usage(resource, &Value::Null, now), count))
            }
        }
    }

    async fn listed<K>(&self, namespace: &str) -> Result<Vec<Arc<K>>>
    where
        K: Object + Resource<Scope = NamespaceResourceScope> + serde::de::DeserializeOwned,
    {
        let api = ops::namespaced::<K>(self.cx.client(), namespace);
        let list = api.list(&ListParams::default()).await?;
        Ok(list.items.into_iter().map(Arc::new).collect())
    }

    /// What all objects of a kind use together; none while a cache is not in step.
    async fn sum(
        &self,
        namespace: &str,
        resource: &GroupResource,
        tree: &Value,
        next: &mut Next,
    ) -> Result<Option<quota::Amounts>> {
        let now = Timestamp::now();
        let is = |name: &str| resource.group.is_empty() && resource.resource == name;
        if is("pods") {
            return Ok(Some(plan::sum(tree, resource, &self.pods.list_in(namespace), now)?));
        }
        if is("services") {
            return Ok(Some(plan::sum(tree, resource, &self.services.list_in(namespace), now)?));
        }
        if is("persistentvolumeclaims") {
            return Ok(Some(plan::sum(tree, resource, &self.claims.list_in(namespace), now)?));
        }
        // The rest is counted, and has no scopes.
        if !quota::selects(tree, resource, &Value::Null) {
            return Ok(Some(quota::Amounts::new()));
        }
        let count = match self.counted.watched(resource, namespace) {
            Some(Some(count)) => count,
            Some(None) => return Ok(None),
            None => {
                *next = next.sooner(Next::After(UNWATCHED));
                self.counted.asked(resource, namespace).await?
            }
        };
        Ok(Some(plan::times(quota::usage(resource, &Value::Null, now), count)))
    }

    async fn write(&self, current: &ResourceQuota, hard: &quota::Amounts, used: &quota::Amounts) -> Result<()> {
        let Some(changed) = plan::with_status(current, hard, used) else {
            return Ok(());
        };
        let api = ops::namespaced::<ResourceQuota>(self.cx.client(), ops::namespace(&current.metadata));
        let name = ops::name(&current.metadata);
        // Against the revision that was read: admission may have counted something meanwhile.
        match api.replace_status(name, &PostParams::default(), &changed).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
