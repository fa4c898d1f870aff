//! Leases for keys that expire. Keys of about the same end share one: a lease costs etcd more than a key does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use etcd_client::Client;
use parking_lot::Mutex;

use super::fault::Fault;
use crate::store::StoreError;

/// Keys of one lease at most, which etcd deletes in one go when it ends.
const MOST_KEYS: u32 = 1_000;
/// How long a lease takes further keys, unless its time to live is short itself.
const LONGEST_USE: Duration = Duration::from_secs(60);

struct Lease {
    id: i64,
    takes_keys_until: Instant,
    keys: u32,
}

/// Leases that still take keys, by the seconds that their keys live at least.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<u64, Lease>>);

impl Leases {
    /// A lease that lives at least so long from now.
    pub(super) async fn take(&self, client: &Client, ttl: Duration) -> Result<i64, StoreError> {
        let seconds = ttl.as_millis().div_ceil(1_000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        if let Some(id) = self.open(seconds) {
            return Ok(id);
        }
        let used_for = Duration::from_secs((seconds / 10).max(1)).min(LONGEST_USE);
        // Counted from before the request, so that the last key to be taken lives long enough too.
        let takes_keys_until = Instant::now() + used_for;
        let granted = i64::try_from(seconds.saturating_add(used_for.as_secs())).unwrap_or(i64::MAX);
        let lease = client.lease_client().grant(granted, None).await;
        let id = lease.map_err(|error| Fault::of(error).reading())?.id();
        let lease = Lease {
            id,
            takes_keys_until,
            keys: 1,
        };
        self.0.lock().insert(seconds, lease);
        Ok(id)
    }

    fn open(&self, seconds: u64) -> Option<i64> {
        let mut leases = self.0.lock();
        let lease = leases.get_mut(&seconds)?;
        if lease.keys >= MOST_KEYS || Instant::now() >= lease.takes_keys_until {
            return None;
        }
        lease.keys += 1;
        Some(lease.id)
    }

    /// After a lease turned out to be gone.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}
