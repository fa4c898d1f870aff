//! Which slices to create, change and delete. Endpoints stay where they are as far as possible, so that a change of one
//! pod changes one slice.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Service;
use minato_api::k8s::discovery::v1::{Endpoint, EndpointSlice};
use minato_api::meta_v1::ObjectMeta;

use super::model::{Family, Groups, Port, is_headless};
use crate::{names, ops, ownership};

/// Endpoints of one slice at most.
pub(super) const CAPACITY: usize = 100;

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

pub(super) fn plan(service: &Service, groups: &Groups, existing: &[Arc<EndpointSlice>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let mut by_group: BTreeMap<(Family, Vec<Port>), Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        let family = match slice.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => {
                plan.delete.push(slice.clone());
                continue;
            }
        };
        if slice.metadata.deletion_timestamp.is_none() {
            let mut ports: Vec<_> = slice.ports.iter().flatten().map(Port::of_slice).collect();
            ports.sort();
            by_group.entry((family, ports)).or_default().push(slice);
        }
    }
    let mut wanted = groups.clone();
    // A Service without endpoints keeps one empty slice per family, so that clients can tell "none" from "not yet".
    for family in super::model::families(service) {
        if !wanted.keys().any(|(of, _)| *of == family) {
            wanted.insert((family, Vec::new()), Vec::new());
        }
    }
    for ((family, ports), endpoints) in wanted {
        let key = (family, ports);
        let slices = by_group.remove(&key).unwrap_or_default();
        fill(service, &key, endpoints, &slices, now, &mut plan);
    }
    plan.delete.extend(by_group.into_values().flatten().cloned());
    plan
}

/// Distributes the endpoints of one group over its slices.
fn fill(
    service: &Service,
    (family, ports): &(Family, Vec<Port>),
    endpoints: Vec<Endpoint>,
    slices: &[&Arc<EndpointSlice>],
    now: Timestamp,
    plan: &mut Plan,
) {
    let id = |endpoint: &Endpoint| {
        let target = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
        (target, endpoint.addresses.clone())
    };
    let mut left: BTreeMap<_, Endpoint> = endpoints
        .into_iter()
        .map(|endpoint| (id(&endpoint), endpoint))
        .collect();
    let mut contents: Vec<Vec<Endpoint>> = Vec::new();
    for slice in slices {
        let present = slice.endpoints.iter().flatten();
        let kept = present.filter_map(|endpoint| {
            let next = left.remove(&id(endpoint))?;
            // Who set hints knows better.
            Some(Endpoint {
                hints: endpoint.hints.clone(),
                ..next
            })
        });
        contents.push(kept.collect());
    }
    let mut left: Vec<_> = left.into_values().collect();
    for content in &mut contents {
        let room = CAPACITY.saturating_sub(content.len()).min(left.len());
        content.extend(left.drain(..room));
    }
    let metadata = metadata(service);
    // Empty ones go, unless there is nothing else.
    let mut keep_one = contents.iter().all(Vec::is_empty) && left.is_empty();
    for (slice, content) in slices.iter().zip(contents) {
        if content.is_empty() && !std::mem::take(&mut keep_one) {
            plan.delete.push((*slice).clone());
            continue;
        }
        if let Some(changed) = changed(slice, content, &metadata, now) {
            plan.update.push(changed);
        }
    }
    let mut rest: Vec<Vec<Endpoint>> = left.chunks(CAPACITY).map(<[_]>::to_vec).collect();
    if keep_one && slices.is_empty() {
        rest.push(Vec::new());
    }
    for content in rest {
        let mut metadata = metadata.clone();
        metadata.annotations = Some([trigger(now)].into());
        plan.create.push(EndpointSlice {
            metadata,
            address_type: family.as_str().to_owned(),
            endpoints: Some(content),
            ports: Some(ports.iter().map(Port::to_slice).collect()),
        });
    }
}

fn trigger(now: Timestamp) -> (String, String) {
    (names::TRIGGER_TIME.to_owned(), minato_meta::format_time(now))
}

fn metadata(service: &Service) -> ObjectMeta {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(names::SERVICE_NAME.to_owned(), ops::name(&service.metadata).to_owned());
    labels.insert(names::SLICE_MANAGED_BY.to_owned(), names::SLICE_CONTROLLER.to_owned());
    if is_headless(service) {
        labels.insert(names::HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(names::HEADLESS);
    }
    ObjectMeta {
        generate_name: Some(format!("{}-", ops::name(&service.metadata))),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![ownership::reference(service)]),
        ..ObjectMeta::default()
    }
}

/// The slice with new content, if that differs.
fn changed(
    slice: &EndpointSlice,
    content: Vec<Endpoint>,
    metadata: &ObjectMeta,
    now: Timestamp,
) -> Option<EndpointSlice> {
    let same_content = slice.endpoints.iter().flatten().eq(&content);
    let same_meta =
        slice.metadata.labels == metadata.labels && slice.metadata.owner_references == metadata.owner_references;
    if same_content && same_meta {
        return None;
    }
    let mut next = slice.clone();
    if !same_content {
        next.metadata.annotations.get_or_insert_default().extend([trigger(now)]);
    }
    next.endpoints = Some(content);
    next.metadata.labels.clone_from(&metadata.labels);
    next.metadata.owner_references.clone_from(&metadata.owner_references);
    Some(next)
}
