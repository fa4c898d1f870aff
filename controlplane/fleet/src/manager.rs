//! Starts the fleet's controllers.

use std::sync::Arc;

use minato_api::fleet::{Cluster, NodePool};
use minato_runtime::{Controller, Informer, ObjectKey, Runtime, WorkQueue};

use crate::clouds::Clouds;
use crate::cluster::Clusters;
use crate::hosting::Hosting;
use crate::pool::Pools;
use crate::tenants::{OnNode, Tenants};

/// The fleet's controllers. They end with the runtime's tasks; control planes keep running.
pub struct Fleet;

/// What both controllers work with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) runtime: Runtime,
    pub(crate) clusters: Informer<Cluster>,
    pub(crate) pools: Informer<NodePool>,
    pub(crate) hosting: Arc<dyn Hosting>,
    pub(crate) clouds: Arc<dyn Clouds>,
    pub(crate) tenants: Tenants,
}

impl Fleet {
    /// Starts reconciling the objects that `runtime`'s client sees.
    pub fn start(runtime: &Runtime, hosting: Arc<dyn Hosting>, clouds: Arc<dyn Clouds>) {
        let clusters: Informer<Cluster> = runtime.informers.of();
        let pools: Informer<NodePool> = runtime.informers.of();
        clusters.add_index("uid", |cluster| cluster.metadata.uid.iter().cloned().collect());
        let cluster_controller = Controller::new("cluster", runtime);
        let pool_controller = Controller::new("nodepool", runtime);
        let (cluster_queue, pool_queue) = (cluster_controller.queue(), pool_controller.queue());
        wake_on_end(&*hosting, &clusters, cluster_queue);
        let cx = Context {
            runtime: runtime.clone(),
            tenants: Tenants::new(runtime.tasks.clone(), wake_on_node(&clusters, pool_queue)),
            clusters,
            pools,
            hosting,
            clouds,
        };
        Clusters::new(cx.clone()).run(cluster_controller);
        Pools::new(cx).run(pool_controller);
    }
}

/// A control plane that ended is a reason to look at its Cluster.
fn wake_on_end(hosting: &dyn Hosting, clusters: &Informer<Cluster>, queue: WorkQueue<ObjectKey>) {
    let clusters = clusters.clone();
    hosting.on_end(Box::new(move |id| {
        for cluster in clusters.indexed("uid", id) {
            queue.add(ObjectKey::of(cluster.as_ref()));
        }
    }));
}

fn wake_on_node(clusters: &Informer<Cluster>, queue: WorkQueue<ObjectKey>) -> OnNode {
    let clusters = clusters.clone();
    Arc::new(move |id, pool| {
        for cluster in clusters.indexed("uid", id) {
            let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
            queue.add(ObjectKey::new(namespace, pool));
        }
    })
}
