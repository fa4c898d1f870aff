//! `Cluster`: a hosted control plane, the way to it, and its kubeconfig.

mod kubeconfig;
mod status;
mod teardown;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use minato_api::fleet::{Cluster, FINALIZER, NodePool};
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::Api;
use minato_api::kube::api::{Patch, PatchParams};
use minato_provider_interface::{ClusterId, OwnerTags};
use minato_runtime::{Controller, EventKind, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;
use serde_json::json;

use crate::error::{Error, Result, api, unless};
use crate::hosting::{Hosted, Tenant};
use crate::manager::Context;
use crate::tenants::TenantApi;
use status::Observed;

pub(crate) use status::condition;

/// How soon to look again at a control plane that is starting, and at one that is ready.
const STARTING: Duration = Duration::from_millis(100);
const STEADY: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Clusters {
    cx: Context,
    recorder: Recorder,
    secrets: Informer<Secret>,
    /// Whose endpoint this process has made reachable; made again by each process, since it may be repeated.
    exposed: Mutex<HashSet<String>>,
}

impl Clusters {
    pub(crate) fn new(cx: Context) -> Arc<Self> {
        Arc::new(Self {
            recorder: cx.runtime.recorder("cluster-controller"),
            secrets: cx.runtime.informers.of(),
            cx,
            exposed: Mutex::default(),
        })
    }

    pub(crate) fn run(self: Arc<Self>, controller: Controller) {
        controller
            .watch_primary(&self.cx.clusters)
            .watch(&self.cx.pools, |change, add| {
                let pool: &NodePool = change.object();
                let namespace = pool.metadata.namespace.clone().unwrap_or_default();
                add(ObjectKey::new(namespace, &pool.spec.cluster_name));
            })
            .reads(&self.secrets)
            .run(move |key| {
                let this = self.clone();
                async move { this.reconcile(key).await }
            });
    }

    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(cluster) = self.cx.clusters.get(&key) else {
            return Ok(Next::Done);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            return self.teardown(&cluster).await;
        }
        if !has_finalizer(&cluster) {
            self.set_finalizers(&cluster, |list| list.push(FINALIZER.to_owned()))
                .await?;
            return Ok(Next::Done);
        }
        let outcome = self.provision(&cluster).await;
        let observed = match &outcome {
            Ok(observed) => observed.clone(),
            Err(error) => Observed::failed(&cluster, &error.to_string()),
        };
        if let Some(status) = observed.status(&cluster) {
            if observed.ready && !status::is_ready(&cluster) {
                let text = "the control plane is ready";
                self.recorder
                    .event(cluster.as_ref(), EventKind::Normal, "ControlPlaneReady", text);
            }
            self.api(&cluster)
                .patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&status))
                .await
                .map_err(api("writing the cluster's status"))?;
        }
        outcome.map(|observed| Next::After(observed.again))
    }

    /// Makes everything that a Cluster is, as far as it can be made now.
    async fn provision(&self, cluster: &Cluster) -> Result<Observed> {
        let id = id(cluster);
        let local = self.cx.hosting.address(&id)?;
        let nodes = self.expose(cluster, local).await?;
        let provider = &cluster.spec.cloud.provider;
        let network = &cluster.spec.network;
        let tenant = Tenant {
            name: name(cluster).to_owned(),
            advertise: nodes,
            service_cidr: range(&network.service_cidr)?,
            cluster_cidr: range(&network.pod_cidr)?,
            dns_domain: network.dns_domain.clone(),
            in_etcd: cluster.spec.control_plane.store == "etcd",
            cloud_credential: self.cx.clouds.credential(provider, &ClusterId(id.clone()))?,
            id,
        };
        let hosted = self.cx.hosting.ensure(&tenant).await?;
        let kubeconfig = self.kubeconfig(cluster, local).await?;
        let tenant_api = self.cx.tenants.open(&tenant.id, &kubeconfig).await?;
        let mut observed = Observed::at(local, nodes, kubeconfig::secret_name(cluster));
        match hosted {
            Hosted::Restarting(pause) => {
                observed.message = "the control plane keeps ending; see its log".to_owned();
                observed.again = pause;
            }
            Hosted::Running => match probe(&tenant_api).await {
                Ok(version) => {
                    observed.ready = true;
                    observed.version = version;
                    observed.again = STEADY;
                }
                Err(why) => {
                    observed.message = format!("the control plane is not ready: {why}");
                    observed.again = STARTING;
                }
            },
        }
        Ok(observed)
    }

    async fn expose(&self, cluster: &Cluster, local: SocketAddr) -> Result<SocketAddr> {
        let id = id(cluster);
        let known = cluster.status.as_ref().and_then(|status| status.endpoint.as_ref());
        let known = known.and_then(|e| Some(SocketAddr::new(e.node_host.parse().ok()?, e.node_port)));
        if let Some(known) = known
            && self.exposed.lock().contains(&id)
        {
            return Ok(known);
        }
        let exposed = self
            .cx
            .clouds
            .expose(&cluster.spec.cloud.provider, &owner(cluster), local)
            .await?;
        self.exposed.lock().insert(id);
        Ok(exposed)
    }

    fn api(&self, cluster: &Cluster) -> Api<Cluster> {
        Api::namespaced(self.cx.runtime.client.clone(), namespace(cluster))
    }

    /// Changes the finalizers, unless the object has changed meanwhile.
    async fn set_finalizers(&self, cluster: &Cluster, change: impl FnOnce(&mut Vec<String>)) -> Result<()> {
        let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
        change(&mut finalizers);
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": cluster.metadata.resource_version,
            "uid": cluster.metadata.uid,
        }});
        let result = self
            .api(cluster)
            .patch(name(cluster), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        unless(result, 404)
            .map(drop)
            .map_err(api("writing the cluster's finalizers"))
    }
}

/// The version of a control plane that is ready, or why it is not.
async fn probe(tenant: &TenantApi) -> std::result::Result<String, String> {
    let ready = async {
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .map_err(|e| e.to_string())?;
        tenant.client.request_text(request).await.map_err(|e| e.to_string())?;
        let version = tenant.client.apiserver_version().await.map_err(|e| e.to_string())?;
        Ok(version.git_version)
    };
    match tokio::time::timeout(PROBE_TIMEOUT, ready).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {PROBE_TIMEOUT:?}")),
    }
}

pub(crate) fn id(cluster: &Cluster) -> String {
    cluster.metadata.uid.clone().unwrap_or_default()
}

pub(crate) fn name(cluster: &Cluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(cluster: &Cluster) -> &str {
    cluster.metadata.namespace.as_deref().unwrap_or_default()
}

fn has_finalizer(cluster: &Cluster) -> bool {
    cluster
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|present| present == FINALIZER)
}

fn owner(cluster: &Cluster) -> OwnerTags {
    OwnerTags {
        cluster: ClusterId(id(cluster)),
        owner_kind: "Cluster".to_owned(),
        owner_name: format!("{}/{}", namespace(cluster), name(cluster)),
        owner_uid: id(cluster),
    }
}

fn range(text: &str) -> Result<IpNet> {
    text.parse()
        .map_err(|_| Error::Invalid(format!("{text:?} is not a range of addresses")))
}
