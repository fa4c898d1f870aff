//! One metadata watch per resource, and which resources there are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use minato_api::kube::api::{Api, DynamicObject, PartialObjectMeta};
use minato_api::kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Collector, ResourceId};
use crate::discovery::{Served, discover};
use crate::ops;

/// Resources whose objects come and go too fast to be worth it and expire by themselves.
const IGNORED: &[&str] = &["events"];
/// Changes of custom resource definitions come in bursts.
const SETTLE: Duration = Duration::from_millis(200);
/// Without a change that we see (aggregated APIs have no definition) discovery is asked this often.
const REFRESH: Duration = Duration::from_secs(300);
/// Work begins after this time even if a resource cannot be listed.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    _stop: DropGuard,
    listed: watch::Receiver<bool>,
}

/// Keeps a watch for every resource that is served.
pub(super) async fn run(this: Arc<Collector>) {
    let mut running: HashMap<ResourceId, Running> = HashMap::new();
    let mut pause = Duration::from_millis(100);
    loop {
        match discover(this.cx.client()).await {
            Ok(discovered) => {
                pause = Duration::from_millis(100);
                let partial = !discovered.failed.is_empty();
                sync(&this, &mut running, discovered.resources, partial);
                settle(&this, &running).await;
                let _ = tokio::time::timeout(REFRESH, this.rediscover.notified()).await;
                tokio::time::sleep(SETTLE).await;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "discovery failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(30));
            }
        }
    }
}

fn sync(this: &Arc<Collector>, running: &mut HashMap<ResourceId, Running>, resources: Vec<Served>, partial: bool) {
    let mut served = HashMap::new();
    for resource in resources {
        let watched = ["delete", "list", "watch"].iter().all(|verb| resource.can(verb));
        if watched && !IGNORED.contains(&resource.resource.plural.as_str()) {
            let id = (resource.resource.group.clone(), resource.resource.plural.clone());
            served.insert(id, Arc::new(resource));
        }
    }
    if partial {
        // A group that does not answer now is not gone.
        for (id, resource) in this.resources.read().iter() {
            served.entry(id.clone()).or_insert_with(|| resource.clone());
        }
    }
    let before = std::mem::replace(&mut *this.resources.write(), served.clone());
    // Gone, or served in another version from now on.
    running.retain(|id, _| before.get(id) == served.get(id));
    for id in before.keys().filter(|id| !served.contains_key(*id)) {
        forget(this, id);
    }
    for (id, resource) in served {
        running.entry(id.clone()).or_insert_with(|| start(this, id, resource));
    }
}

/// The objects of a resource that is no longer served are gone with it.
fn forget(this: &Collector, id: &ResourceId) {
    let mut graph = this.graph.lock();
    for uid in graph.of_resource(id) {
        let effects = graph.gone(&uid);
        this.queue(effects);
    }
}

async fn settle(this: &Collector, running: &HashMap<ResourceId, Running>) {
    if *this.settled.borrow() {
        return;
    }
    let lists = running.values().map(|one| {
        let mut listed = one.listed.clone();
        async move {
            let _ = listed.wait_for(|listed| *listed).await;
        }
    });
    if tokio::time::timeout(PATIENCE, futures::future::join_all(lists))
        .await
        .is_err()
    {
        tracing::warn!("some resources could not be listed in time; collecting without them");
    }
    let (resources, objects) = (running.len(), this.graph.lock().len());
    tracing::debug!(resources, objects, "the graph is complete");
    this.settled.send_replace(true);
}

fn start(this: &Arc<Collector>, id: ResourceId, resource: Arc<Served>) -> Running {
    let stop = CancellationToken::new();
    let (told, listed) = watch::channel(false);
    let stopped = stop.clone();
    // There is one for every kind, so what it keeps between events counts: not twice, as a wrapper would have it.
    let follow = follow(this.clone(), id, resource, told).boxed();
    this.cx.runtime.tasks.spawn("garbage collector watch", async move {
        stopped.run_until_cancelled(follow).await;
    });
    Running {
        _stop: stop.drop_guard(),
        listed,
    }
}

async fn follow(this: Arc<Collector>, id: ResourceId, resource: Arc<Served>, listed: watch::Sender<bool>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(this.cx.client().clone(), &resource.resource);
    let defines_resources = id.1 == "customresourcedefinitions";
    let mut streaming = true;
    loop {
        let mut config = watcher::Config::default();
        if streaming {
            config = config.streaming_lists();
        }
        let mut events = std::pin::pin!(watcher(api.clone(), config));
        let mut fresh = HashSet::new();
        let mut pause = Duration::from_millis(100);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    pause = Duration::from_millis(100);
                    if matches!(event, Event::InitDone) {
                        listed.send_replace(true);
                    }
                    if defines_resources && matches!(event, Event::Apply(_) | Event::Delete(_)) {
                        this.rediscover.notify_one();
                    }
                    apply(&this, &id, event, &mut fresh);
                }
                Err(error) => {
                    tracing::debug!(resource = id.1, %error, "metadata watch failed; resuming");
                    if streaming && minato_runtime::refuses_streaming(&error) {
                        streaming = false;
                        break;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(30));
                }
            }
        }
    }
}

fn apply(
    this: &Collector,
    id: &ResourceId,
    event: Event<PartialObjectMeta<DynamicObject>>,
    fresh: &mut HashSet<String>,
) {
    match event {
        Event::Init => fresh.clear(),
        Event::InitApply(object) => {
            fresh.insert(ops::uid(&object.metadata).to_owned());
            let effects = this.graph.lock().observe(id, &object.metadata);
            this.queue(effects);
        }
        Event::InitDone => {
            // What was there before the watch broke and is no longer listed.
            let mut graph = this.graph.lock();
            for uid in graph.of_resource(id) {
                if !fresh.contains(&uid) {
                    let effects = graph.gone(&uid);
                    this.queue(effects);
                }
            }
            *fresh = HashSet::new();
        }
        Event::Apply(object) => {
            let effects = this.graph.lock().observe(id, &object.metadata);
            this.queue(effects);
        }
        Event::Delete(object) => {
            let effects = this.graph.lock().gone(ops::uid(&object.metadata));
            this.queue(effects);
        }
    }
}
