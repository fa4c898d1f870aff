//! How many pods there should be: the sum of what their owners were asked for, each owner once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minato_api::k8s::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use minato_api::k8s::core::v1::{Pod, ReplicationController};
use minato_api::kube::api::DynamicObject;
use minato_api::kube::{Api, Resource};
use minato_api::meta_v1::OwnerReference;

use super::Disruption;
use crate::error::{Error, Result, is_not_found};
use crate::{ops, ownership, scale};

/// What the owners of pods were asked for.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) total: i32,
    /// Pods without an owner.
    pub(super) unmanaged: Vec<String>,
}

/// An owner and its replicas.
type Scale = (String, i32);

impl Disruption {
    /// # Errors
    /// [`Error::Invalid`] when an owner is unknown or has no scale.
    pub(super) async fn scale_of(&self, namespace: &str, pods: &[Arc<Pod>]) -> Result<Found> {
        let mut found = Found::default();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let name = ops::name(&pod.metadata);
            let Some(owner) = ownership::controller(&pod.metadata) else {
                found.unmanaged.push(name.to_owned());
                continue;
            };
            if !seen.insert(&owner.uid) {
                continue;
            }
            let scale = match self.built_in(namespace, owner) {
                Some(scale) => Some(scale),
                None => self.by_subresource(namespace, owner).await?,
            };
            let none = || Error::Invalid(format!("found no controllers for pod {name:?}"));
            let (uid, replicas) = scale.ok_or_else(none)?;
            scales.insert(uid, replicas);
        }
        found.total = scales
            .values()
            .fold(0, |sum: i32, replicas| sum.saturating_add(*replicas));
        Ok(found)
    }

    /// The scale of an owner that our caches know: of a ReplicaSet's Deployment where there is one.
    fn built_in(&self, namespace: &str, owner: &OwnerReference) -> Option<Scale> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let same = |meta: &minato_api::meta_v1::ObjectMeta| meta.uid.as_deref() == Some(owner.uid.as_str());
        match (group, owner.kind.as_str()) {
            ("apps", "ReplicaSet") => {
                let set: Arc<ReplicaSet> = self.replica_sets.get_in(namespace, &owner.name)?;
                if !same(&set.metadata) {
                    return None;
                }
                match ownership::controller(&set.metadata).filter(|owner| owner.kind == Deployment::kind(&())) {
                    None => Some((owner.uid.clone(), replicas(set.spec.as_ref()?.replicas))),
                    Some(owner) => {
                        let deployment = self.deployments.get_in(namespace, &owner.name)?;
                        let same = deployment.metadata.uid.as_deref() == Some(owner.uid.as_str());
                        same.then_some((owner.uid.clone(), replicas(deployment.spec.as_ref()?.replicas)))
                    }
                }
            }
            ("apps", "StatefulSet") => {
                let set: Arc<StatefulSet> = self.stateful_sets.get_in(namespace, &owner.name)?;
                same(&set.metadata).then_some((owner.uid.clone(), replicas(set.spec.as_ref()?.replicas)))
            }
            ("", "ReplicationController") => {
                let set: Arc<ReplicationController> = self.replication_controllers.get_in(namespace, &owner.name)?;
                same(&set.metadata).then_some((owner.uid.clone(), replicas(set.spec.as_ref()?.replicas)))
            }
            _ => None,
        }
    }

    /// The scale of any other owner, by its `scale`; nothing when it is gone or another.
    async fn by_subresource(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<Scale>> {
        let client = self.cx.client();
        let Some(found) = scale::find(client, &owner.api_version, &owner.kind).await? else {
            return Ok(None);
        };
        let resource = found.with_scale()?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        match api.get_scale(&owner.name).await {
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(scale) if scale.metadata.uid.as_deref() != Some(owner.uid.as_str()) => Ok(None),
            Ok(scale) => {
                let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                Ok(Some((owner.uid.clone(), replicas)))
            }
        }
    }
}

fn replicas(replicas: Option<i32>) -> i32 {
    replicas.unwrap_or(1)
}
