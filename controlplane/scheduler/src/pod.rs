//! A pod as the scheduler reads it: everything that is asked about it, computed once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use minato_api::k8s::core::v1::{Pod, PodAffinityTerm, PodSpec, Toleration, WeightedPodAffinityTerm};
use minato_meta::LabelSelector;
use minato_runtime::ObjectKey;

use crate::resources::{self, Resources};

/// A port of the host that a container takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    /// Address; empty for all.
    pub(crate) ip: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
}

impl HostPort {
    /// Whether both cannot be on one host.
    pub(crate) fn clashes(&self, other: &Self) -> bool {
        let all = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || all(&self.ip) || all(&other.ip))
    }
}

/// The labels of the namespaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    labels: HashMap<String, BTreeMap<String, String>>,
}

impl Namespaces {
    pub(crate) fn set(&mut self, name: &str, labels: BTreeMap<String, String>) {
        self.labels.insert(name.to_owned(), labels);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.labels.remove(name);
    }

    /// A namespace that is not known has no labels.
    fn match_by(&self, selector: &LabelSelector, name: &str) -> bool {
        match self.labels.get(name) {
            Some(labels) => selector.matches_map(labels),
            None => selector.matches_map(&BTreeMap::new()),
        }
    }
}

/// A term of pod affinity, with its selector ready.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub(crate) topology_key: String,
    selector: LabelSelector,
    namespaces: Vec<String>,
    /// Namespaces by label, beside those that are named.
    namespace_selector: Option<LabelSelector>,
    pub(crate) weight: i32,
}

impl Term {
    fn new(term: &PodAffinityTerm, namespace: &str, weight: i32) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        // One that is there and empty selects all namespaces.
        let namespace_selector = term
            .namespace_selector
            .as_ref()
            .map(|selector| LabelSelector::from_typed(Some(selector)).unwrap_or_else(|_| LabelSelector::nothing()));
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        Self {
            topology_key: term.topology_key.clone(),
            // A selector that cannot be read matches nothing; validation lets none through.
            selector: LabelSelector::from_typed(term.label_selector.as_ref())
                .unwrap_or_else(|_| LabelSelector::nothing()),
            namespaces,
            namespace_selector,
            weight,
        }
    }

    /// Whether the term is about this pod.
    pub(crate) fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        let here = self.namespaces.contains(&pod.key.namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| namespaces.match_by(selector, &pod.key.namespace));
        here && self.selector.matches_map(&pod.labels)
    }
}

/// Affinity to other pods.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    pub(crate) required: Vec<Term>,
    pub(crate) preferred: Vec<Term>,
}

/// A pod and what follows from it.
#[derive(Debug)]
pub(crate) struct PodInfo {
    pub(crate) pod: Arc<Pod>,
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) priority: i32,
    pub(crate) requests: Resources,
    /// With defaults for what is not requested: for scores.
    pub(crate) scored: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) affinity: Terms,
    pub(crate) anti_affinity: Terms,
}

impl PodInfo {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        let key = ObjectKey::of(pod.as_ref());
        let spec = pod.spec.clone().unwrap_or_default();
        let affinity = spec.affinity.as_ref();
        let pod_affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |list: Option<&Vec<PodAffinityTerm>>| -> Vec<Term> {
            let terms = list.into_iter().flatten();
            terms.map(|term| Term::new(term, &key.namespace, 0)).collect()
        };
        let preferred = |list: Option<&Vec<WeightedPodAffinityTerm>>| -> Vec<Term> {
            let terms = list.into_iter().flatten();
            terms
                .map(|term| Term::new(&term.pod_affinity_term, &key.namespace, term.weight))
                .collect()
        };
        let affinity_terms = Terms {
            required: required(
                pod_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred: preferred(
                pod_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
        };
        let anti_terms = Terms {
            required: required(anti.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            preferred: preferred(anti.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
        };
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: resources::of_pod(&spec, false),
            scored: resources::of_pod(&spec, true),
            ports: host_ports(&spec),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            affinity: affinity_terms,
            anti_affinity: anti_terms,
            key,
            pod,
        }
    }

    /// Whether it wants other pods near or away.
    pub(crate) fn is_choosy(&self) -> bool {
        let any = |terms: &Terms| !terms.required.is_empty() || !terms.preferred.is_empty();
        any(&self.affinity) || any(&self.anti_affinity)
    }

    pub(crate) fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node that it has been given.
    pub(crate) fn node_name(&self) -> Option<&str> {
        node_name(&self.pod)
    }
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Neither running nor to be run any more: takes nothing from its node.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}
