//! Counting objects of kinds that some quota limits by number. A watch is started when the first quota asks for its
//! kind; kinds that are not known here are listed.

use std::collections::HashMap;
use std::sync::Arc;

use minato_api::k8s::{apps, batch, core, networking};
use minato_api::kube::api::{DynamicObject, ListParams};
use minato_api::kube::core::PartialObjectMeta;
use minato_api::kube::{Api, Resource};
use minato_meta::GroupResource;
use minato_runtime::{Informer, Object, WatchScope};
use parking_lot::Mutex;

use crate::error::{Result, code};
use crate::{Context, discovery, ops};

/// Counts the objects of a namespace; none while the cache is not in step.
type Count = Arc<dyn Fn(&str) -> Option<usize> + Send + Sync>;

pub(super) struct Counted {
    cx: Context,
    wake: Arc<dyn Fn(&str) + Send + Sync>,
    started: Mutex<HashMap<GroupResource, Count>>,
}

impl Counted {
    /// `wake` is called with a namespace when the number of something in it changes.
    pub(super) fn new(cx: &Context, wake: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            cx: cx.clone(),
            wake: Arc::new(wake),
            started: Mutex::default(),
        }
    }

    /// None for kinds that are not watched, `Some(None)` while the watch is starting.
    pub(super) fn watched(&self, resource: &GroupResource, namespace: &str) -> Option<Option<usize>> {
        let known = self.started.lock().get(resource).cloned();
        let count = match known {
            Some(count) => count,
            None => {
                let count = self.start(resource)?;
                self.started.lock().entry(resource.clone()).or_insert(count).clone()
            }
        };
        Some(count(namespace))
    }

    fn start(&self, resource: &GroupResource) -> Option<Count> {
        Some(match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "configmaps") => self.watch::<core::v1::ConfigMap>(),
            ("", "secrets") => self.watch::<core::v1::Secret>(),
            ("", "replicationcontrollers") => self.watch::<core::v1::ReplicationController>(),
            ("", "resourcequotas") => self.watch::<core::v1::ResourceQuota>(),
            ("", "serviceaccounts") => self.watch::<core::v1::ServiceAccount>(),
            ("apps", "deployments") => self.watch::<apps::v1::Deployment>(),
            ("apps", "replicasets") => self.watch::<apps::v1::ReplicaSet>(),
            ("apps", "statefulsets") => self.watch::<apps::v1::StatefulSet>(),
            ("apps", "daemonsets") => self.watch::<apps::v1::DaemonSet>(),
            ("batch", "jobs") => self.watch::<batch::v1::Job>(),
            ("batch", "cronjobs") => self.watch::<batch::v1::CronJob>(),
            ("networking.k8s.io", "ingresses") => self.watch::<networking::v1::Ingress>(),
            _ => return None,
        })
    }

    fn watch<K>(&self) -> Count
    where
        K: Object,
        PartialObjectMeta<K>: Object,
    {
        let api: Api<PartialObjectMeta<K>> = Api::all(self.cx.client().clone());
        let informer = Informer::start(api, WatchScope::default(), &self.cx.runtime.tasks);
        let wake = self.wake.clone();
        informer.on_change(move |change| {
            if change.old().is_none() {
                wake(ops::namespace(change.object().meta()));
            }
        });
        Arc::new(move |namespace| informer.has_synced().then(|| informer.list_in(namespace).len()))
    }

    /// Asks the API server. A kind that it does not serve has no objects.
    pub(super) async fn asked(&self, resource: &GroupResource, namespace: &str) -> Result<usize> {
        let client = self.cx.client();
        let served = discovery::discover(client).await?.resources;
        let found = served.into_iter().find(|served| {
            served.namespaced && served.resource.group == resource.group && served.resource.plural == resource.resource
        });
        let Some(found) = found else {
            return Ok(0);
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &found.resource);
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) => Ok(list.items.len()),
            Err(error) if matches!(code(&error), Some(404 | 405)) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
