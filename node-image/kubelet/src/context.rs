//! What all workers share.

use std::net::IpAddr;
use std::sync::Arc;

use minato_api::k8s::core::v1::{Node, ObjectReference, Pod, Service};
use minato_api::kube::{Client, Resource};
use minato_cri::Cri;
use minato_runtime::{EventKind, Informer, Recorder, Tasks};
use tokio::sync::watch;

use crate::cgroup::Cgroups;
use crate::images::Images;
use crate::metrics::Figures;
use crate::node::Facts;
use crate::objects::Objects;
use crate::pods::field_path;
use crate::settings::Settings;

/// Shared by the workers of one kubelet.
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) client: Client,
    pub(crate) cri: Cri,
    pub(crate) facts: Arc<Facts>,
    pub(crate) cgroups: Cgroups,
    pub(crate) images: Images,
    pub(crate) objects: Objects,
    pub(crate) services: Informer<Service>,
    pub(crate) node: Informer<Node>,
    pub(crate) events: Recorder,
    pub(crate) tasks: Tasks,
    pub(crate) figures: Figures,
    /// Changes whenever something happened in the runtime.
    pub(crate) news: watch::Sender<u64>,
}

impl Context {
    /// Records an event about a pod, or about one of its containers.
    pub(crate) fn event(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: EventKind,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut object: ObjectReference = pod.object_ref(&());
        object.field_path = container.map(|name| field_path(pod, name));
        self.events.event_for(object, kind, reason, message);
    }

    /// The node's addresses: the configured one, else those that its object has.
    pub(crate) fn host_ips(&self) -> Vec<IpAddr> {
        if let Some(ip) = self.settings.node_ip {
            return vec![ip];
        }
        let node = self.node.get_cluster(&self.settings.node_name);
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let addresses = status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok())
            .collect()
    }
}
