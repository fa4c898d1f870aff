//! `minato down`: first as an operator would, by deleting clusters; then by force, whatever state things are in.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use minato_api::fleet::Cluster;
use minato_api::kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use minato_api::kube::{Api, Client};
use minato_fleet::{Cgroup, Detached};
use minato_provider_mock::local;
use minato_provider_mock::state::CloudState;
use serde_json::json;

use super::progress::Step;
use super::up::fleet_client;
use super::{Layout, Options};

const DELETE_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_GRACE: Duration = Duration::from_secs(40);

/// Stops and removes everything that `up` made.
pub(crate) async fn down(options: &Options) -> anyhow::Result<()> {
    if !options.directory.exists() {
        println!("Nothing is there.");
        return Ok(());
    }
    let layout = Layout::new(&options.directory)?;
    if let Ok(Ok(client)) = tokio::time::timeout(Duration::from_secs(5), fleet_client(&layout)).await {
        let step = Step::begin("clusters");
        match tokio::time::timeout(DELETE_TIMEOUT, delete_clusters(&client)).await {
            Ok(result) => result.context("deleting the clusters")?,
            Err(_) => eprintln!("the clusters are not gone after {DELETE_TIMEOUT:?}; removing them by force"),
        }
        step.done();
    }
    let step = Step::begin("processes");
    for process in ["supervisor", "manager", "mock-cloud"] {
        if let Some(process) = Detached::find(&layout.record(process)) {
            process.stop(STOP_GRACE).await?;
        }
    }
    force(&layout).await?;
    step.done();
    remove_files(&layout)?;
    println!("Everything is gone.");
    Ok(())
}

async fn delete_clusters(client: &Client) -> anyhow::Result<()> {
    let all: Api<Cluster> = Api::all(client.clone());
    for cluster in all.list(&ListParams::default()).await?.items {
        let (Some(namespace), Some(name)) = (&cluster.metadata.namespace, &cluster.metadata.name) else {
            continue;
        };
        let clusters: Api<Cluster> = Api::namespaced(client.clone(), namespace);
        if cluster.spec.deletion_protection {
            let patch = json!({"spec": {"deletionProtection": false}});
            clusters
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
        clusters.delete(name, &DeleteParams::default()).await?;
    }
    while !all.list(&ListParams::default()).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Ends what a manager and a cloud that were killed left behind.
async fn force(layout: &Layout) -> anyhow::Result<()> {
    for tenant in directories(&layout.fleet().join("hosting")) {
        if let Some(process) = Detached::find(&tenant.join("process.json")) {
            process.stop(STOP_GRACE).await?;
        }
        let id = tenant.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Cgroup::new(format!("{}/{id}", layout.cgroup())).remove().await?;
    }
    let cloud = layout.cloud();
    let instances = match std::fs::read(cloud.state()) {
        Ok(bytes) => serde_json::from_slice::<CloudState>(&bytes)?
            .instances
            .into_keys()
            .collect(),
        Err(_) => Vec::new(),
    };
    Ok(local::purge(&cloud.local()?, instances).await?)
}

fn directories(path: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Only what `up` made: the directory may hold other things.
fn remove_files(layout: &Layout) -> anyhow::Result<()> {
    for path in [layout.cloud().root, layout.manager(), layout.fleet()] {
        if path.exists() {
            std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    let mut files = vec![
        layout.kubeconfig(),
        layout.fleet_kubeconfig(),
        layout.terraform(),
        layout.root.join("manager.port"),
    ];
    for process in ["supervisor", "manager", "mock-cloud"] {
        files.extend([layout.record(process), layout.log(process)]);
    }
    for path in files.iter().filter(|path| path.exists()) {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    // Kept when something else is in it.
    let _ = std::fs::remove_dir(&layout.root);
    Ok(())
}
