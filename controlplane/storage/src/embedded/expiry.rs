//! The end of keys whose time has come.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minato_meta::Revision;
use redb::{Database, ReadableDatabase, ReadableTable};

use super::fault::failed;
use super::tables::{TTL, Tables};
use super::writer::{Batch, apply_txn};
use crate::store::{Compare, Expect, Op, StoreError, Txn};

/// Keys that are ended in one transaction.
const MOST: usize = 1024;
/// Sorts after every key, none of which begins with the last character there is.
const LAST_KEY: &str = "\u{10ffff}";

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Unix milliseconds after that long.
pub(super) fn deadline(ttl: Duration) -> u64 {
    now_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// Whether there is anything to end.
pub(super) fn is_due(database: &Database) -> Result<bool, StoreError> {
    let read = database.begin_read().map_err(failed)?;
    let table = read.open_table(TTL).map_err(failed)?;
    let mut due = table.range(..=(now_ms(), LAST_KEY)).map_err(failed)?;
    Ok(due.next().transpose().map_err(failed)?.is_some())
}

/// Takes the deadlines that have passed and deletes each key that still is as its deadline's put left it.
pub(super) fn expire(tables: &mut Tables<'_>, batch: &mut Batch) -> Result<(), StoreError> {
    let mut due = Vec::new();
    for entry in tables.ttl.range(..=(now_ms(), LAST_KEY)).map_err(failed)?.take(MOST) {
        let (at, revision) = entry.map_err(failed)?;
        let (deadline, key) = at.value();
        due.push((deadline, key.to_owned(), revision.value()));
    }
    // All of them, also those of keys put or deleted since: they would crowd out the ones behind them.
    for (deadline, key, _) in &due {
        tables.ttl.remove((*deadline, key.as_str())).map_err(failed)?;
    }
    batch.changed |= !due.is_empty();
    for (_, key, revision) in due {
        let txn = Txn {
            compare: vec![Compare {
                key: key.clone(),
                expect: Expect::ModRevision(Revision(revision)),
            }],
            ops: vec![Op::Delete { key }],
        };
        // A conflict means that the key was put or deleted since, and is to be left alone.
        let _conflict_or_done = apply_txn(tables, txn, batch)?;
    }
    Ok(())
}
