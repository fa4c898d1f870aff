//! 100 watchers and a burst of 500 events: from the request's start to each watcher's event.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, bail};
use futures::StreamExt as _;

use crate::client::Client;
use crate::report::{Report, milliseconds, quantile};
use crate::server::{PATIENCE, Server};
use crate::writes::{self, COLLECTION, config_map};

const WATCHERS: usize = 100;
const EVENTS: usize = 500;
/// Connections that the watchers share.
const CONNECTIONS: usize = 4;

/// When each request was sent, filled in by the writers.
type Sent = Vec<OnceLock<Instant>>;

/// Reads one watch until it has seen every event; returns their numbers and times.
async fn follow(response: reqwest::Response, prefix: &str) -> anyhow::Result<Vec<(usize, Instant)>> {
    let marker = format!("\"name\":\"{prefix}-");
    let mut stream = response.bytes_stream();
    let (mut buffer, mut seen) = (Vec::new(), Vec::with_capacity(EVENTS));
    while seen.len() < EVENTS {
        let bytes = stream.next().await.context("the watch ended")??;
        let now = Instant::now();
        buffer.extend_from_slice(&bytes);
        let whole = buffer.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in std::str::from_utf8(&buffer[..whole])?.lines() {
            if let Some((_, rest)) = line.split_once(&marker) {
                seen.push((rest[..6].parse()?, now));
            }
        }
        buffer.drain(..whole);
    }
    Ok(seen)
}

async fn burst(server: &Server, prefix: &'static str) -> anyhow::Result<Vec<f64>> {
    let client = server.client().await?;
    let revision = client.revision(COLLECTION).await?;
    let path = format!("{COLLECTION}?watch=1&resourceVersion={revision}&allowWatchBookmarks=true");
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(server.client().await?);
    }
    let mut watchers = Vec::new();
    for n in 0..WATCHERS {
        let response = clients[n % CONNECTIONS].open(&path, "application/json").await?;
        watchers.push(tokio::spawn(follow(response, prefix)));
    }
    let sent: Arc<Sent> = Arc::new((0..EVENTS).map(|_| OnceLock::new()).collect());
    let times = Arc::clone(&sent);
    writes::drive(&client, EVENTS, move |client, n| {
        let times = Arc::clone(&times);
        async move {
            let body = config_map(prefix, n).to_string();
            times[n].get_or_init(Instant::now);
            client
                .send("POST", COLLECTION, "application/json", body)
                .await
                .map(drop)
        }
    })
    .await?;
    let mut samples = Vec::with_capacity(WATCHERS * EVENTS);
    for watcher in watchers {
        let seen = tokio::time::timeout(PATIENCE, watcher)
            .await
            .context("a watcher misses events")???;
        for (n, at) in seen {
            let began = sent[n].get().context("an event that nobody caused")?;
            samples.push(milliseconds(at.saturating_duration_since(*began)));
        }
    }
    if samples.len() != WATCHERS * EVENTS {
        bail!("{} deliveries instead of {}", samples.len(), WATCHERS * EVENTS);
    }
    Ok(samples)
}

/// Three bursts; the middle one counts.
pub(crate) async fn measure(report: &mut Report) -> anyhow::Result<()> {
    let server = Server::start().await?;
    writes::create(&server.client().await?, "warm", 200).await?;
    let mut runs = Vec::new();
    for prefix in ["wa", "wb", "wc"] {
        let samples = burst(&server, prefix).await?;
        runs.push((quantile(&samples, 0.5), quantile(&samples, 0.99)));
    }
    runs.sort_by(|a, b| a.1.total_cmp(&b.1));
    report.add("watch100x500_ms_p50", runs[1].0);
    report.add("watch100x500_ms_p99", runs[1].1);
    Ok(())
}
