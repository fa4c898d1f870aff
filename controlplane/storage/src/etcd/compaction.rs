//! The end of old history.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::fault::{Fault, number};

/// Compacts to where the store was one period ago, once a period. Others on the same etcd may do so too: each keeps a whole
/// period, and the second to come finds it done.
pub(super) async fn run(inner: Arc<Inner>, period: Duration) {
    let mut earlier = None;
    loop {
        let now = inner.read_revision().await;
        if let Some(revision) = earlier.take() {
            let done = inner.client.kv_client().compact(number(revision), None).await;
            match done.map_err(Fault::of) {
                Ok(_) | Err(Fault::Compacted) => tracing::debug!(%revision, "etcd compacted"),
                Err(fault) => tracing::warn!(%revision, error = %fault.reading(), "etcd was not compacted"),
            }
        }
        match now {
            Ok(revision) => earlier = Some(revision),
            Err(error) => tracing::warn!(%error, "cannot read etcd's revision"),
        }
        tokio::time::sleep(period).await;
    }
}
