//! Gives every Service of type LoadBalancer its load balancer, and takes it away again.
//!
//! ```text
//!  wanted    finalizer ── ensure (all of it, until it is as asked) ── status
//!  nodes     the same Service, with other members alone: update
//!  unwanted  delete until observed gone ── status empty, finalizer off
//! ```
//!
//! A Service is worked on by one task at a time, whatever changed. What was last asked of the cloud is remembered, so
//! that changes which do not matter to it cost no call; after a restart everything is asked once more.

mod spec;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Node, Service};
use minato_api::kube::Api;
use minato_api::kube::api::{Patch, PatchParams};
use minato_provider_interface::{
    CloudError, CloudErrorKind, LoadBalancerSpec, LoadBalancerStatus, LoadBalancers, OwnerTags,
};
use minato_runtime::{Change, Controller, EventKind, Exponential, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::time::Instant;

use crate::error::{Error, Result, describe, is_conflict, is_not_found};
use crate::{Context, ops};
use spec::{FINALIZER, has_finalizer, is_wanted, needs_cleanup};

/// Pause while the cloud is at work and does not say how long.
const AT_WORK: Duration = Duration::from_secs(2);

/// What was last asked of the cloud for a Service, and what it said.
struct Asked {
    spec: LoadBalancerSpec,
    status: LoadBalancerStatus,
    /// When to ask again without cause.
    due: Instant,
}

struct Memory {
    /// Load balancers that may exist, by Service. What is asked is none until it was done.
    known: HashMap<ObjectKey, (OwnerTags, Option<Asked>)>,
    delays: Exponential<ObjectKey>,
}

struct Services {
    cx: Context,
    services: Informer<Service>,
    nodes: Informer<Node>,
    recorder: Recorder,
    memory: Mutex<Memory>,
    syncs: Counter,
    member_failures: Counter,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) -> bool {
    if cx.provider.load_balancers().is_none() {
        return false;
    }
    let this = Arc::new(Services {
        cx: cx.clone(),
        services: cx.informer(),
        nodes: cx.informer(),
        recorder: cx.runtime.recorder("service-controller"),
        memory: Mutex::new(Memory {
            known: HashMap::new(),
            delays: Exponential::new(cx.config.first_retry, cx.config.last_retry),
        }),
        syncs: Counter::default(),
        member_failures: Counter::default(),
    });
    let metrics = &cx.runtime.metrics;
    metrics.register(
        "service_controller_loadbalancer_sync",
        "Load balancers made, changed or deleted",
        this.syncs.clone(),
    );
    metrics.register(
        "service_controller_nodesync_error",
        "Failures to change the members of a load balancer",
        this.member_failures.clone(),
    );
    let controller = Controller::new("service-lb", &cx.runtime);
    let (queue, services, class) = (
        controller.queue(),
        this.services.clone(),
        cx.config.load_balancer_class.clone(),
    );
    let batch = cx.config.node_batch;
    controller
        .watch_primary(&this.services)
        .watch(&this.nodes, move |change, _| {
            let member = |node: &Node| spec::is_member(node).then(|| ops::node_ref(node));
            let now = match change {
                Change::Deleted(_) => None,
                Change::Added(node) | Change::Updated { new: node, .. } => member(node),
            };
            let before = match change {
                Change::Deleted(node) => member(node),
                Change::Added(_) | Change::Updated { .. } => change.old().and_then(|old| member(old)),
            };
            if now != before {
                for service in services.list() {
                    if is_wanted(&service, class.as_deref()) {
                        queue.add_after(ObjectKey::of(service.as_ref()), batch);
                    }
                }
            }
        })
        .run({
            let this = this.clone();
            move |key| {
                let this = this.clone();
                async move { this.reconcile(key).await }
            }
        });
    sweep::start(this);
    true
}

impl Services {
    fn class(&self) -> Option<&str> {
        self.cx.config.load_balancer_class.as_deref()
    }

    fn api(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.cx.client().clone(), &key.namespace)
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(balancers) = self.cx.provider.load_balancers() else {
            return Ok(Next::Done);
        };
        let service = self.services.get(&key);
        match self.sync(balancers, &key, service.as_deref()).await {
            Ok(next) => {
                self.memory.lock().delays.forget(&key);
                Ok(next)
            }
            // The cache will show what is newer, and wake us.
            Err(Error::Api(error)) if is_conflict(&error) => Ok(Next::After(Duration::from_millis(100))),
            Err(error) => Ok(Next::After(self.failed(&key, service.as_deref(), &error))),
        }
    }

    /// Tells of a failure, and for how long to wait.
    fn failed(&self, key: &ObjectKey, service: Option<&Service>, error: &Error) -> Duration {
        if let Error::Cloud(cloud) = error
            && cloud.kind() == CloudErrorKind::InProgress
        {
            // No failure: neither told nor counted.
            return cloud.retry_after().unwrap_or(AT_WORK);
        }
        let text = describe(error);
        tracing::warn!(service = %key, error = text, "load balancer not in step");
        if let Some(service) = service {
            let text = format!("Error syncing load balancer: {text}");
            self.recorder
                .event(service, EventKind::Warning, "SyncLoadBalancerFailed", text);
        }
        match error {
            Error::Cloud(cloud) if cloud.retry_after().is_some() => cloud.retry_after().unwrap_or_default(),
            _ => self.memory.lock().delays.next(key),
        }
    }

    async fn sync(&self, balancers: &dyn LoadBalancers, key: &ObjectKey, service: Option<&Service>) -> Result<Next> {
        let known = self.memory.lock().known.get(key).map(|(owner, _)| owner.clone());
        let uid = service.map(|service| ops::uid(&service.metadata));
        if let Some(former) = known.filter(|owner| Some(owner.owner_uid.as_str()) != uid) {
            // It went without passing through its deletion: somebody took the finalizer off.
            tracing::info!(service = %key, uid = former.owner_uid, "the service is gone; deleting its load balancer");
            self.delete(balancers, &former).await?;
            self.memory.lock().known.remove(key);
        }
        let Some(service) = service else {
            return Ok(Next::Done);
        };
        if is_wanted(service, self.class()) {
            return self.ensure(balancers, key, service).await;
        }
        let remembered = self.memory.lock().known.contains_key(key);
        if needs_cleanup(service, self.class()) || remembered {
            self.clean_up(balancers, key, service).await?;
        }
        Ok(Next::Done)
    }

    async fn ensure(&self, balancers: &dyn LoadBalancers, key: &ObjectKey, service: &Service) -> Result<Next> {
        let owner = spec::owner(service, self.cx.provider.cluster_id());
        let wanted = spec::load_balancer(service, spec::members(&self.nodes.list()), &owner.cluster)?;
        enum Work {
            Nothing(LoadBalancerStatus, Duration),
            Members(LoadBalancerStatus),
            All,
        }
        let work = {
            let memory = self.memory.lock();
            match memory.known.get(key).and_then(|(_, asked)| asked.as_ref()) {
                Some(asked) if asked.due <= Instant::now() => Work::All,
                Some(asked) if asked.spec == wanted => Work::Nothing(
                    asked.status.clone(),
                    asked.due.saturating_duration_since(Instant::now()),
                ),
                Some(asked)
                    if (LoadBalancerSpec {
                        nodes: wanted.nodes.clone(),
                        ..asked.spec.clone()
                    }) == wanted =>
                {
                    Work::Members(asked.status.clone())
                }
                _ => Work::All,
            }
        };
        let (status, wait) = match work {
            Work::Nothing(status, wait) => (status, wait),
            Work::Members(status) => {
                self.update_members(balancers, key, service, &wanted).await?;
                (status.clone(), self.remember(key, &owner, wanted, status))
            }
            Work::All => {
                let status = self.ensure_all(balancers, key, service, &owner, &wanted).await?;
                (status.clone(), self.remember(key, &owner, wanted, status))
            }
        };
        self.write_status(key, service, &status).await?;
        Ok(Next::After(wait))
    }

    fn remember(
        &self,
        key: &ObjectKey,
        owner: &OwnerTags,
        spec: LoadBalancerSpec,
        status: LoadBalancerStatus,
    ) -> Duration {
        let wait = ops::jittered(self.cx.config.resync);
        let due = Instant::now() + wait;
        self.memory
            .lock()
            .known
            .insert(key.clone(), (owner.clone(), Some(Asked { spec, status, due })));
        wait
    }

    async fn ensure_all(
        &self,
        balancers: &dyn LoadBalancers,
        key: &ObjectKey,
        service: &Service,
        owner: &OwnerTags,
        wanted: &LoadBalancerSpec,
    ) -> Result<LoadBalancerStatus> {
        self.recorder.event(
            service,
            EventKind::Normal,
            "EnsuringLoadBalancer",
            "Ensuring load balancer",
        );
        if !has_finalizer(service) {
            let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            let patch = json!({"metadata": {"finalizers": finalizers}});
            // Before anything is in the cloud, and only if the Service is still what we saw.
            ops::merge_status_at(&self.api(key), &service.metadata, patch).await?;
        }
        // From now on something may be there, also if the answer gets lost.
        self.memory.lock().known.insert(key.clone(), (owner.clone(), None));
        if wanted.nodes.is_empty() {
            let text = "There are no available nodes for LoadBalancer";
            self.recorder
                .event(service, EventKind::Warning, "UnAvailableLoadBalancer", text);
        }
        self.syncs.inc();
        let status = match ops::within(self.cx.config.call_timeout, balancers.ensure(wanted)).await {
            Err(error) if error.kind() == CloudErrorKind::Unsupported && spec::mixes_protocols(wanted) => {
                self.write_ports_condition(key, service, Some(&error)).await?;
                return Err(error.into());
            }
            ensured => ensured?,
        };
        self.write_ports_condition(key, service, None).await?;
        self.recorder.event(
            service,
            EventKind::Normal,
            "EnsuredLoadBalancer",
            "Ensured load balancer",
        );
        Ok(status)
    }

    async fn update_members(
        &self,
        balancers: &dyn LoadBalancers,
        key: &ObjectKey,
        service: &Service,
        wanted: &LoadBalancerSpec,
    ) -> Result<()> {
        match ops::within(self.cx.config.call_timeout, balancers.update_members(wanted)).await {
            Ok(()) if wanted.nodes.is_empty() => {
                let text = "There are no available nodes for LoadBalancer";
                self.recorder
                    .event(service, EventKind::Warning, "UnAvailableLoadBalancer", text);
                Ok(())
            }
            Ok(()) => {
                let text = "Updated load balancer with new hosts";
                self.recorder
                    .event(service, EventKind::Normal, "UpdatedLoadBalancer", text);
                Ok(())
            }
            Err(error) => {
                self.member_failures.inc();
                // The next try is a whole one: it does not depend on what is there.
                if let Some((_, asked)) = self.memory.lock().known.get_mut(key) {
                    *asked = None;
                }
                if error.kind() != CloudErrorKind::InProgress {
                    let text = format!("Error updating load balancer with new hosts: {error}");
                    self.recorder
                        .event(service, EventKind::Warning, "UpdateLoadBalancerFailed", text);
                }
                Err(error.into())
            }
        }
    }

    /// Says in the Service whether the cloud can have its protocols together.
    async fn write_ports_condition(
        &self,
        key: &ObjectKey,
        service: &Service,
        error: Option<&CloudError>,
    ) -> Result<()> {
        let present = service
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let current = present
            .into_iter()
            .find(|condition| condition.type_ == spec::PORTS_ERROR);
        let (status, reason, message) = match error {
            Some(error) => ("True", spec::MIXED_PROTOCOLS, error.to_string()),
            None => ("False", "AllPortsServed", String::new()),
        };
        // Nothing is said of Services that never had a fault.
        if current.map_or("False", |current| current.status.as_str()) == status {
            return Ok(());
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = json!({"metadata": {"uid": service.metadata.uid}, "status": {"conditions": [{
            "type": spec::PORTS_ERROR, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "observedGeneration": service.metadata.generation,
        }]}});
        let (api, params) = (self.api(key), PatchParams::default());
        match api.patch_status(&key.name, &params, &Patch::Strategic(&patch)).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn write_status(&self, key: &ObjectKey, service: &Service, status: &LoadBalancerStatus) -> Result<()> {
        let ingress = spec::ingress(status);
        let current = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        if current.and_then(|current| current.ingress.clone()).unwrap_or_default() == ingress {
            return Ok(());
        }
        let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        match ops::merge_status(&self.api(key), &service.metadata, patch).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a load balancer with all that belongs to it; returns when it is observed gone.
    async fn delete(&self, balancers: &dyn LoadBalancers, owner: &OwnerTags) -> Result<()> {
        self.syncs.inc();
        let limit = self.cx.config.call_timeout;
        match ops::within(limit, balancers.ensure_deleted(owner)).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        if ops::within(limit, balancers.get(owner)).await?.is_some() {
            let error = CloudError::new(CloudErrorKind::InProgress, "the load balancer is still there");
            return Err(error.after(AT_WORK).into());
        }
        Ok(())
    }

    async fn clean_up(&self, balancers: &dyn LoadBalancers, key: &ObjectKey, service: &Service) -> Result<()> {
        self.recorder.event(
            service,
            EventKind::Normal,
            "DeletingLoadBalancer",
            "Deleting load balancer",
        );
        // Also when nothing seems to be there: half of one may be.
        self.delete(balancers, &spec::owner(service, self.cx.provider.cluster_id()))
            .await?;
        let api = self.api(key);
        let kept: Vec<_> = service
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|f| *f != FINALIZER)
            .collect();
        let patch = json!({
            "metadata": {"finalizers": kept},
            "status": {"loadBalancer": {"ingress": null}},
        });
        match ops::merge_status_at(&api, &service.metadata, patch).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error.into()),
        }
        self.memory.lock().known.remove(key);
        self.recorder.event(
            service,
            EventKind::Normal,
            "DeletedLoadBalancer",
            "Deleted load balancer",
        );
        Ok(())
    }
}
