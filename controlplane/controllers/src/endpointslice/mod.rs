//! EndpointSlices of Services with a selector: which pods serve, at which addresses and ports.

mod apply;
pub(crate) mod model;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Node, Pod, Service};
use minato_api::k8s::discovery::v1::EndpointSlice;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};

use crate::Context;
use crate::error::Result;
use crate::{names, ops};

struct Slices {
    cx: Context,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
}

/// Index of slices by `namespace/service`.
const BY_SERVICE: &str = "service";

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Slices {
        cx: cx.clone(),
        services: cx.informer(),
        pods: cx.informer(),
        nodes: cx.informer(),
        slices: cx.informer(),
    });
    this.slices.add_index(BY_SERVICE, |slice| {
        let managed = ops::label(&slice.metadata, names::SLICE_MANAGED_BY) == Some(names::SLICE_CONTROLLER);
        service_of(slice)
            .filter(|_| managed)
            .map(|key| key.to_string())
            .into_iter()
            .collect()
    });
    let services = this.services.clone();
    let pod_services = this.services.clone();
    let node_pods = this.pods.clone();
    Controller::new("endpoint_slice", &cx.runtime)
        .workers(5)
        .watch_primary(&this.services)
        .watch(&this.pods, move |change, add| pod_changed(change, &pod_services, add))
        .watch(&this.slices, |change, add| {
            if let Some(key) = service_of(change.object()) {
                add(key);
            }
        })
        .watch(&this.nodes, move |change, add| {
            // Only the zone of a node matters to its pods' endpoints.
            let zone = |node: &Node| ops::label(&node.metadata, names::ZONE).map(str::to_owned);
            let before = change.old().map(|old| zone(old));
            if before.is_some_and(|before| before != zone(change.object())) {
                let name = ops::name(&change.object().metadata);
                for pod in node_pods
                    .list()
                    .iter()
                    .filter(|pod| crate::pods::node_name(pod) == Some(name))
                {
                    selecting(pod, &services, add);
                }
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let service = ops::label(&slice.metadata, names::SERVICE_NAME)?;
    Some(ObjectKey::new(ops::namespace(&slice.metadata), service))
}

/// Queues the Services whose endpoints a pod's change may change.
pub(crate) fn pod_changed(change: &Change<Pod>, services: &Informer<Service>, add: &mut dyn FnMut(ObjectKey)) {
    match change {
        Change::Added(pod) | Change::Deleted(pod) => selecting(pod, services, add),
        Change::Updated { old, new } => {
            let moved = old.metadata.labels != new.metadata.labels;
            if !moved && !model::concerns_endpoints(old, new) {
                return;
            }
            selecting(new, services, add);
            if moved {
                selecting(old, services, add);
            }
        }
    }
}

fn selecting(pod: &Pod, services: &Informer<Service>, add: &mut dyn FnMut(ObjectKey)) {
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    for service in services.list_in(ops::namespace(&pod.metadata)) {
        if model::selector(&service).is_some_and(|selector| selector.matches_map(labels)) {
            add(ObjectKey::of(service.as_ref()));
        }
    }
}

impl Slices {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        // Slices of a Service that is gone are the garbage collector's.
        let Some(service) = self.services.get(&key) else {
            return Ok(Next::Done);
        };
        let Some(selector) = model::selector(&service) else {
            return Ok(Next::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let mut pods = self.pods.list_in(&key.namespace);
        let none = BTreeMap::new();
        pods.retain(|pod| selector.matches_map(pod.metadata.labels.as_ref().unwrap_or(&none)));
        let existing = self.slices.indexed(BY_SERVICE, &key.to_string());
        let zone = |node: &str| {
            let node = self.nodes.get_cluster(node)?;
            ops::label(&node.metadata, names::ZONE).map(str::to_owned)
        };
        let groups = model::groups(&service, &pods, zone);
        let plan = plan::plan(&service, &groups, &existing, Timestamp::now());
        self.apply(&key, plan).await?;
        Ok(Next::Done)
    }
}
