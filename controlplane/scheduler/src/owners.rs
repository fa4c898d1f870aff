//! Which pods belong together with a pod that does not say so: those that its Services and its controller select.

use minato_api::k8s::apps::v1::{ReplicaSet, StatefulSet};
use minato_api::k8s::core::v1::{ReplicationController, Service};
use minato_meta::LabelSelector;
use minato_runtime::{Informer, Informers};

use crate::pod::PodInfo;

/// Services and controllers of pods.
#[derive(Clone)]
pub(crate) struct Owners {
    services: Informer<Service>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
}

impl Owners {
    pub(crate) fn of(informers: &Informers) -> Self {
        Self {
            services: informers.of(),
            replica_sets: informers.of(),
            stateful_sets: informers.of(),
            replication_controllers: informers.of(),
        }
    }

    /// For tests: filled by hand.
    #[cfg(test)]
    pub(crate) fn detached() -> (Self, Informer<Service>) {
        let services = Informer::detached();
        let this = Self {
            services: services.clone(),
            replica_sets: Informer::detached(),
            stateful_sets: Informer::detached(),
            replication_controllers: Informer::detached(),
        };
        (this, services)
    }

    pub(crate) async fn synced(&self) {
        self.services.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.replication_controllers.synced().await;
    }

    /// What all of them select together; `None` without any.
    pub(crate) fn selector_of(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let namespace = &pod.key.namespace;
        let pairs = |map: &std::collections::BTreeMap<String, String>| {
            LabelSelector::from_pairs(map.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        };
        let mut requirements = Vec::new();
        for service in self.services.list_in(namespace) {
            let map = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(map) = map.filter(|map| !map.is_empty()) else {
                continue;
            };
            let selector = pairs(map);
            if selector.matches_map(&pod.labels) {
                requirements.extend(selector.requirements().iter().cloned());
            }
        }
        let owners = pod.pod.metadata.owner_references.iter().flatten();
        if let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) {
            let name = owner.name.as_str();
            let typed = |selector: &minato_api::meta_v1::LabelSelector| LabelSelector::from_typed(Some(selector)).ok();
            let selector = match owner.kind.as_str() {
                "ReplicaSet" => self
                    .replica_sets
                    .get_in(namespace, name)
                    .and_then(|set| typed(&set.spec.as_ref()?.selector)),
                "StatefulSet" => self
                    .stateful_sets
                    .get_in(namespace, name)
                    .and_then(|set| typed(&set.spec.as_ref()?.selector)),
                "ReplicationController" => {
                    let controller = self.replication_controllers.get_in(namespace, name);
                    controller.and_then(|controller| Some(pairs(controller.spec.as_ref()?.selector.as_ref()?)))
                }
                _ => None,
            };
            requirements.extend(
                selector
                    .iter()
                    .flat_map(|selector| selector.requirements().iter().cloned()),
            );
        }
        (!requirements.is_empty()).then(|| LabelSelector::from_requirements(requirements))
    }
}
