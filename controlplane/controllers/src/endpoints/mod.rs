//! The older Endpoints of Services with a selector: one object per Service, for clients that do not know slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use minato_api::k8s::discovery::v1::Endpoint;
use minato_api::kube::api::PostParams;
use minato_api::meta_v1::ObjectMeta;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};

use crate::Context;
use crate::endpointslice::model::{self, Groups, Port};
use crate::error::{Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::{names, ops};

/// Addresses of one object at most.
const CAPACITY: usize = 1000;

struct Controlled {
    cx: Context,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Controlled {
        cx: cx.clone(),
        services: cx.informer(),
        pods: cx.informer(),
        endpoints: cx.informer(),
    });
    let services = this.services.clone();
    Controller::new("endpoint", &cx.runtime)
        .watch_primary(&this.services)
        .watch(&this.pods, move |change, add| {
            crate::endpointslice::pod_changed(change, &services, add)
        })
        .watch(&this.endpoints, |change, add| {
            // Endpoints written by hand are not ours, and a deletion is mended.
            if matches!(change, Change::Deleted(_)) || is_ours(change.object()) {
                add(ObjectKey::of(change.object().as_ref()));
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

fn is_ours(endpoints: &Endpoints) -> bool {
    ops::label(&endpoints.metadata, names::ENDPOINTS_MANAGED_BY) == Some(names::ENDPOINTS_CONTROLLER)
}

impl Controlled {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let api = ops::namespaced::<Endpoints>(self.cx.client(), &key.namespace);
        let Some(service) = self.services.get(&key) else {
            // They have no owner reference, so nobody else removes them.
            if let Some(left) = self.endpoints.get(&key).filter(|endpoints| is_ours(endpoints)) {
                ops::delete(&api, &left.metadata).await?;
            }
            return Ok(Next::Done);
        };
        let Some(selector) = model::selector(&service) else {
            return Ok(Next::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let none = BTreeMap::new();
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| selector.matches_map(pod.metadata.labels.as_ref().unwrap_or(&none)));
        let primary = model::families(&service).first().copied();
        let mut groups = model::groups(&service, &pods, |_| None);
        groups.retain(|(family, _), _| Some(*family) == primary);
        let desired = desired(&service, groups, Timestamp::now());
        let existing = self.endpoints.get(&key);
        if existing.as_ref().is_some_and(|existing| same(existing, &desired)) {
            return Ok(Next::Done);
        }
        let sent = match existing {
            None => api.create(&PostParams::default(), &desired).await,
            Some(existing) => {
                let mut next = Endpoints::clone(&existing);
                next.subsets = desired.subsets;
                next.metadata.labels = desired.metadata.labels;
                let annotations = next.metadata.annotations.get_or_insert_default();
                annotations.remove(names::OVER_CAPACITY);
                annotations.extend(desired.metadata.annotations.into_iter().flatten());
                api.replace(&key.name, &PostParams::default(), &next).await
            }
        };
        match sent {
            Ok(_) => Ok(Next::Done),
            Err(e) if is_already_exists(&e) || is_not_found(&e) || is_namespace_terminating(&e) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }
}

fn same(existing: &Endpoints, desired: &Endpoints) -> bool {
    let over = |endpoints: &Endpoints| ops::annotation(&endpoints.metadata, names::OVER_CAPACITY).is_some();
    existing.subsets.iter().flatten().eq(desired.subsets.iter().flatten())
        && existing.metadata.labels == desired.metadata.labels
        && over(existing) == over(desired)
}

fn desired(service: &Service, groups: Groups, now: Timestamp) -> Endpoints {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(
        names::ENDPOINTS_MANAGED_BY.to_owned(),
        names::ENDPOINTS_CONTROLLER.to_owned(),
    );
    if model::is_headless(service) {
        labels.insert(names::HEADLESS.to_owned(), String::new());
    }
    let mut annotations = BTreeMap::from([(names::TRIGGER_TIME.to_owned(), minato_meta::format_time(now))]);
    let mut subsets = Vec::new();
    let mut room = CAPACITY;
    for ((_, ports), mut endpoints) in groups {
        // Endpoints do not know "terminating": such pods are not listed, unless the Service wants all.
        let publishes = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
        endpoints.retain(|endpoint| publishes || !has(endpoint, |conditions| conditions.terminating));
        // Ready ones are the last to be cut off.
        endpoints.sort_by_key(|endpoint| (!is_ready(endpoint), endpoint.addresses.clone()));
        if endpoints.len() > room {
            endpoints.truncate(room);
            annotations.insert(names::OVER_CAPACITY.to_owned(), "truncated".to_owned());
        }
        room -= endpoints.len();
        let (ready, others): (Vec<_>, Vec<_>) = endpoints.iter().partition(|endpoint| is_ready(endpoint));
        let addresses = |endpoints: Vec<&Endpoint>| {
            let addresses: Vec<_> = endpoints.into_iter().map(address).collect();
            (!addresses.is_empty()).then_some(addresses)
        };
        if ready.is_empty() && others.is_empty() {
            continue;
        }
        subsets.push(EndpointSubset {
            addresses: addresses(ready),
            not_ready_addresses: addresses(others),
            ports: Some(ports.iter().map(port).collect()).filter(|ports: &Vec<_>| !ports.is_empty()),
        });
    }
    Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        subsets: Some(subsets),
    }
}

fn has(endpoint: &Endpoint, of: impl Fn(&minato_api::k8s::discovery::v1::EndpointConditions) -> Option<bool>) -> bool {
    endpoint.conditions.as_ref().and_then(of) == Some(true)
}

fn is_ready(endpoint: &Endpoint) -> bool {
    has(endpoint, |conditions| conditions.ready)
}

fn address(endpoint: &Endpoint) -> EndpointAddress {
    EndpointAddress {
        ip: endpoint.addresses.first().cloned().unwrap_or_default(),
        hostname: endpoint.hostname.clone(),
        node_name: endpoint.node_name.clone(),
        target_ref: endpoint.target_ref.clone(),
    }
}

fn port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()).filter(|name| !name.is_empty()),
        port: port.port,
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use minato_api::k8s::core::v1::PodIP;
    use serde_json::json;

    use super::*;
    use crate::pods::tests::pod;

    #[test]
    fn ready_and_unready_addresses_are_told_apart() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [{"port": 80}]},
        }))
        .unwrap();
        let mut pods = vec![
            pod("b", Some("n"), Some(1)),
            pod("a", Some("n"), Some(1)),
            pod("c", Some("n"), None),
        ];
        for (i, pod) in pods.iter_mut().enumerate() {
            let ip = PodIP {
                ip: format!("10.1.0.{}", 9 - i),
            };
            pod.status.as_mut().unwrap().pod_ips = Some(vec![ip]);
        }
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        let endpoints = desired(
            &service,
            model::groups(&service, &pods, |_| None),
            Timestamp::UNIX_EPOCH,
        );
        let subset = &endpoints.subsets.as_ref().unwrap()[0];
        let ips = |addresses: &Option<Vec<EndpointAddress>>| -> Vec<String> {
            addresses.iter().flatten().map(|address| address.ip.clone()).collect()
        };
        assert_eq!(ips(&subset.addresses), ["10.1.0.8", "10.1.0.9"]);
        assert_eq!(ips(&subset.not_ready_addresses), ["10.1.0.7"]);
        assert_eq!(subset.ports.as_ref().unwrap()[0].port, 80);
    }
}
