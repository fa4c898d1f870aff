//! A Deployment of 100 replicas, until all of its pods are bound to nodes that exist in the API alone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::report::{Report, milliseconds, quantile};
use crate::server::{PATIENCE, Server};

const REPLICAS: usize = 100;
const NODES: usize = 5;
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node that says of itself that it is ready.
async fn node(client: &Client, n: usize) -> anyhow::Result<()> {
    let name = format!("node-{n}");
    let now = jiff::Timestamp::now().to_string();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    client.create("/api/v1/nodes", &node).await?;
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Bench", "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now})
    };
    let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "1000"});
    let status = json!({"status": {
        "capacity": resources, "allocatable": resources,
        "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"), condition("PIDPressure", "False")],
    }});
    let path = format!("/api/v1/nodes/{name}/status");
    client
        .send("PATCH", &path, "application/merge-patch+json", status.to_string())
        .await?;
    Ok(())
}

async fn until_nodes_take_pods(client: &Client) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let nodes: Value = serde_json::from_slice(&client.get("/api/v1/nodes").await?)?;
        let nodes = nodes["items"].as_array().context("a list of nodes")?;
        if nodes
            .iter()
            .all(|node| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty))
        {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "nodes are still tainted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates a Deployment; returns when all pods were there, and when all were bound.
async fn deploy(client: &Client, name: &str) -> anyhow::Result<(f64, f64)> {
    let revision = client.revision(PODS).await?;
    let path = format!("{PODS}?watch=1&resourceVersion={revision}&labelSelector=app%3D{name}");
    let mut stream = client.open(&path, "application/json").await?.bytes_stream();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "example.com/none",
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}],
            }},
        },
    });
    let began = Instant::now();
    client
        .create("/apis/apps/v1/namespaces/default/deployments", &deployment)
        .await?;
    let (mut made, mut bound) = (BTreeSet::new(), BTreeSet::new());
    let (mut buffer, mut all_made) = (Vec::new(), 0.0);
    loop {
        let bytes = tokio::time::timeout(PATIENCE, stream.next())
            .await
            .context("pods are missing")?;
        buffer.extend_from_slice(&bytes.context("the watch ended")??);
        let whole = buffer.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in buffer[..whole]
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let event: Value = serde_json::from_slice(line)?;
            let name = event["object"]["metadata"]["name"]
                .as_str()
                .context("a pod's name")?
                .to_owned();
            if event["object"]["spec"]["nodeName"].is_string() {
                bound.insert(name.clone());
            }
            made.insert(name);
            if made.len() == REPLICAS && all_made == 0.0 {
                all_made = milliseconds(began.elapsed());
            }
        }
        buffer.drain(..whole);
        if bound.len() == REPLICAS {
            return Ok((all_made, milliseconds(began.elapsed())));
        }
    }
}

/// Five Deployments, one after the other.
pub(crate) async fn measure(report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let client = server.client().await?;
    for n in 0..NODES {
        node(&client, n).await?;
    }
    until_nodes_take_pods(&client).await?;
    let (mut made, mut bound) = (Vec::new(), Vec::new());
    for n in 0..5 {
        let (all_made, all_bound) = deploy(&client, &format!("d{n}")).await?;
        made.push(all_made);
        bound.push(all_bound);
    }
    report.add("deploy100_created_ms_p50", quantile(&made, 0.5));
    report.add("deploy100_ms_p50", quantile(&bound, 0.5));
    report.add("deploy100_first_ms", bound[0]);
    Ok(())
}
