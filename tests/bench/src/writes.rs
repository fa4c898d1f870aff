//! Creates, updates, patches, reads and deletions of ConfigMaps of 256 bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use minato_test_support::Etcd;
use serde_json::{Value, json};

use crate::CONCURRENCY;
use crate::client::Client;
use crate::report::{Report, milliseconds, quantile};
use crate::server::Server;

/// Objects of one measurement.
const COUNT: usize = 2_000;
/// Where they are made.
pub(crate) const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

/// The n-th ConfigMap of a series.
pub(crate) fn config_map(prefix: &str, n: usize) -> Value {
    let letter = |place: usize| char::from(b"abcdefghijklmnopqrstuvwxyz"[(n * 7 + place * 13) % 26]);
    let data: String = (0..256).map(letter).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
        "metadata": {"name": format!("{prefix}-{n:06}"), "labels": {"bench": prefix}},
    })
}

/// Runs requests by number, so many at a time; returns the requests a second and each one's milliseconds.
pub(crate) async fn drive<F, R>(client: &Client, count: usize, request: F) -> anyhow::Result<(f64, Vec<f64>)>
where
    F: Fn(Client, usize) -> R + Send + Sync + 'static,
    R: Future<Output = anyhow::Result<()>> + Send,
{
    client.get("/version").await?;
    let (next, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
    let began = Instant::now();
    let workers = (0..CONCURRENCY).map(|_| {
        let (next, request, client) = (Arc::clone(&next), Arc::clone(&request), client.clone());
        tokio::spawn(async move {
            let mut samples = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return anyhow::Ok(samples);
                }
                let sent = Instant::now();
                request(client.clone(), n).await?;
                samples.push(milliseconds(sent.elapsed()));
            }
        })
    });
    let mut samples = Vec::with_capacity(count);
    for worker in workers.collect::<Vec<_>>() {
        samples.extend(worker.await??);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let rate = count as f64 / began.elapsed().as_secs_f64();
    Ok((rate, samples))
}

/// Creates a series of ConfigMaps.
pub(crate) async fn create(client: &Client, prefix: &'static str, count: usize) -> anyhow::Result<(f64, Vec<f64>)> {
    // Made before, so that the client's own work does not count.
    let bodies: Arc<Vec<String>> = Arc::new((0..count).map(|n| config_map(prefix, n).to_string()).collect());
    drive(client, count, move |client, n| {
        let body = bodies[n].clone();
        async move {
            client
                .send("POST", COLLECTION, "application/json", body)
                .await
                .map(drop)
        }
    })
    .await
}

/// Everything on the embedded store.
pub(crate) async fn embedded(report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let client = server.client().await?;
    create(&client, "warm", 200).await?;
    let before = server.cpu()?;
    let (rate, samples) = create(&client, "a", COUNT).await?;
    report.add("create_embedded_per_s", rate);
    report.add("create_embedded_ms_p50", quantile(&samples, 0.5));
    report.add("create_embedded_ms_p99", quantile(&samples, 0.99));
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    report.add(
        "create_embedded_cpu_ms",
        milliseconds(server.cpu()? - before) / COUNT as f64,
    );
    let (rate, _) = drive(&client, COUNT, |client, n| async move {
        client.get(&format!("{COLLECTION}/a-{n:06}")).await.map(drop)
    })
    .await?;
    report.add("get_embedded_per_s", rate);
    let (rate, _) = drive(&client, COUNT, |client, n| async move {
        let (path, patch) = (format!("{COLLECTION}/a-{n:06}"), r#"{"data":{"p":"v"}}"#.to_owned());
        client
            .send("PATCH", &path, "application/merge-patch+json", patch)
            .await
            .map(drop)
    })
    .await?;
    report.add("patch_embedded_per_s", rate);
    let (rate, _) = drive(&client, COUNT, |client, n| async move {
        let body = config_map("a", n).to_string();
        client
            .send("PUT", &format!("{COLLECTION}/a-{n:06}"), "application/json", body)
            .await
            .map(drop)
    })
    .await?;
    report.add("update_embedded_per_s", rate);
    let (rate, _) = drive(&client, COUNT, |client, n| async move {
        let path = format!("{COLLECTION}/a-{n:06}");
        client
            .send("DELETE", &path, "application/json", String::new())
            .await
            .map(drop)
    })
    .await?;
    report.add("delete_embedded_per_s", rate);
    Ok(())
}

/// Creates on a real etcd of one member, with its own fsync for each commit.
pub(crate) async fn etcd(report: &mut Report) -> anyhow::Result<()> {
    let etcd = tokio::task::block_in_place(Etcd::start);
    let server = Server::start_with(&["--etcd", &etcd.endpoint()]).await?;
    report.add("ready_etcd_ms", milliseconds(server.ready_after));
    let client = server.client().await?;
    create(&client, "warm", 200).await?;
    let (rate, samples) = create(&client, "a", COUNT).await?;
    report.add("create_etcd_per_s", rate);
    report.add("create_etcd_ms_p50", quantile(&samples, 0.5));
    report.add("create_etcd_ms_p99", quantile(&samples, 0.99));
    // The server first: it would only complain of the loss.
    drop(server);
    drop(etcd);
    Ok(())
}
