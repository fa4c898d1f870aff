//! Forgetting the past, a slice at a time, at a cost that grows with what has changed and not with what is stored.

use std::collections::BTreeSet;

use minato_meta::Revision;
use redb::ReadableTable;

use super::fault::failed;
use super::tables::{COMPACTED, Tables};
use super::writer::Batch;
use crate::store::StoreError;

/// Changes that one transaction forgets; writers wait for no more than this.
const SLICE: usize = 4096;

/// Whether a compaction up to here makes sense.
///
/// # Errors
/// [`StoreError::Compacted`] when it has happened, [`StoreError::Future`].
pub(super) fn check(tables: &Tables<'_>, revision: Revision) -> Result<Result<(), StoreError>, StoreError> {
    let (compacted, current) = (tables.compacted()?, tables.revision);
    Ok(if revision <= compacted {
        Err(StoreError::Compacted { compacted })
    } else if revision > current {
        Err(StoreError::Future { current })
    } else {
        Ok(())
    })
}

/// Drops states that no read at `revision` or later can see; `true` when none is left.
///
/// Every state that a later one superseded by `revision` has a change of its key in the log up to `revision`: only those
/// keys are looked at. What a slice forgets, it also makes unreadable, so that no half-compacted revision is served.
pub(super) fn slice(tables: &mut Tables<'_>, revision: Revision, batch: &mut Batch) -> Result<bool, StoreError> {
    let Tables {
        changes, history, meta, ..
    } = tables;
    let mut keys = BTreeSet::new();
    let mut reached = revision.0;
    let mut done = true;
    for (count, entry) in changes.range(..=(revision.0, u32::MAX)).map_err(failed)?.enumerate() {
        let (at, key) = entry.map_err(failed)?;
        // Whole revisions: the slice ends with the one that fills it.
        if count < SLICE {
            reached = at.value().0;
        } else if at.value().0 > reached {
            done = false;
            break;
        }
        keys.insert(key.value().to_owned());
    }
    if done {
        reached = revision.0;
    }
    for key in &keys {
        let mut superseded = Vec::new();
        let mut newest = None;
        for entry in history
            .range((key.as_str(), 0)..=(key.as_str(), reached))
            .map_err(failed)?
        {
            let (at, state) = entry.map_err(failed)?;
            superseded.extend(newest.replace((at.value().1, state.value().0 == 0)).map(|(at, _)| at));
        }
        // The last state up to the compaction stays, unless it is a delete.
        superseded.extend(newest.filter(|(_, deleted)| *deleted).map(|(at, _)| at));
        for at in superseded {
            history.remove((key.as_str(), at)).map_err(failed)?;
        }
    }
    changes
        .retain_in(..=(reached, u32::MAX), |_, _| false)
        .map_err(failed)?;
    meta.insert(COMPACTED, reached).map_err(failed)?;
    batch.changed = true;
    Ok(done)
}
