//! The tables of the file and what is read from them.

use std::ops::Bound;

use bytes::Bytes;
use minato_meta::Revision;
use redb::{Database, ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::fault::{commit_failed, corrupt, failed};
use crate::store::{Event, EventKind, KeyValue, ListPage, ListRequest, StoreError};

/// Newest value of each key: create revision, mod revision, value.
pub(super) const CURRENT: TableDefinition<'_, &str, (u64, u64, &[u8])> = TableDefinition::new("current");
/// Every state of every key since compaction: create revision (zero for a delete) and value, by key and revision.
pub(super) const HISTORY: TableDefinition<'_, (&str, u64), (u64, &[u8])> = TableDefinition::new("history");
/// Keys changed since compaction, by revision and place in the transaction.
pub(super) const CHANGES: TableDefinition<'_, (u64, u32), &str> = TableDefinition::new("changes");
/// What files of an earlier form had in place of [`CHANGES`].
const OLD_LOG: TableDefinition<'_, u64, &str> = TableDefinition::new("log");
/// Keys that end by themselves: by deadline (Unix milliseconds) and key, the mod revision that set it.
pub(super) const TTL: TableDefinition<'_, (u64, &str), u64> = TableDefinition::new("ttl");
/// Scalars.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const REVISION: &str = "revision";
pub(super) const COMPACTED: &str = "compacted";

/// Makes what a new file lacks.
pub(super) fn create(database: &Database) -> Result<(), StoreError> {
    let write = database.begin_write().map_err(failed)?;
    {
        write.open_table(CURRENT).map_err(failed)?;
        write.open_table(HISTORY).map_err(failed)?;
        write.open_table(CHANGES).map_err(failed)?;
        write.open_table(TTL).map_err(failed)?;
        let mut meta = write.open_table(META).map_err(failed)?;
        let revision = meta.get(REVISION).map_err(failed)?.map(|v| v.value());
        match revision {
            None => {
                meta.insert(REVISION, 1).map_err(failed)?;
                meta.insert(COMPACTED, 0).map_err(failed)?;
            }
            // The old form's history cannot be replayed; the newest values are the same in both.
            Some(revision) if write.delete_table(OLD_LOG).map_err(failed)? => {
                meta.insert(COMPACTED, revision).map_err(failed)?;
            }
            Some(_) => {}
        }
    }
    write.commit().map_err(commit_failed)
}

/// The tables as a writer has them, opened once for all that one durable commit changes.
pub(super) struct Tables<'t> {
    pub(super) current: Table<'t, &'static str, (u64, u64, &'static [u8])>,
    pub(super) history: Table<'t, (&'static str, u64), (u64, &'static [u8])>,
    pub(super) changes: Table<'t, (u64, u32), &'static str>,
    pub(super) ttl: Table<'t, (u64, &'static str), u64>,
    pub(super) meta: Table<'t, &'static str, u64>,
    /// Of the store after what was done so far; [`Tables::close`] puts it into the file.
    pub(super) revision: Revision,
}

impl<'t> Tables<'t> {
    pub(super) fn open(write: &'t WriteTransaction) -> Result<Self, StoreError> {
        let meta = write.open_table(META).map_err(failed)?;
        let revision = Revision(meta.get(REVISION).map_err(failed)?.map_or(1, |v| v.value()));
        Ok(Self {
            current: write.open_table(CURRENT).map_err(failed)?,
            history: write.open_table(HISTORY).map_err(failed)?,
            changes: write.open_table(CHANGES).map_err(failed)?,
            ttl: write.open_table(TTL).map_err(failed)?,
            meta,
            revision,
        })
    }

    pub(super) fn lookup(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        Ok(self.current.get(key).map_err(failed)?.map(|v| {
            let (create, modified, value) = v.value();
            copied(key, create, modified, value)
        }))
    }

    pub(super) fn compacted(&self) -> Result<Revision, StoreError> {
        let compacted = self.meta.get(COMPACTED).map_err(failed)?;
        Ok(Revision(compacted.map_or(0, |v| v.value())))
    }

    /// Ends the use of the tables; returns the store's revision.
    pub(super) fn close(mut self) -> Result<Revision, StoreError> {
        self.meta.insert(REVISION, self.revision.0).map_err(failed)?;
        Ok(self.revision)
    }
}

/// One consistent view of the file.
pub(super) struct Snapshot {
    read: ReadTransaction,
}

pub(super) fn key_value(key: &str, create: u64, modified: u64, value: Bytes) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value,
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

fn copied(key: &str, create: u64, modified: u64, value: &[u8]) -> KeyValue {
    key_value(key, create, modified, Bytes::copy_from_slice(value))
}

/// A page being filled: takes pairs until the limit, then counts.
struct Filling {
    page: ListPage,
    limit: usize,
}

impl Filling {
    fn is_full(&self) -> bool {
        self.limit > 0 && self.page.items.len() == self.limit
    }

    fn take(&mut self, kv: impl FnOnce() -> KeyValue) {
        if self.is_full() {
            self.page.remaining += 1;
        } else {
            self.page.items.push(kv());
        }
    }
}

impl Snapshot {
    pub(super) fn new(read: ReadTransaction) -> Self {
        Self { read }
    }

    fn meta(&self, name: &str) -> Result<u64, StoreError> {
        let meta = self.read.open_table(META).map_err(failed)?;
        Ok(meta.get(name).map_err(failed)?.map_or(0, |v| v.value()))
    }

    pub(super) fn revision(&self) -> Result<Revision, StoreError> {
        self.meta(REVISION).map(Revision)
    }

    pub(super) fn compacted(&self) -> Result<Revision, StoreError> {
        self.meta(COMPACTED).map(Revision)
    }

    pub(super) fn current(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let table = self.read.open_table(CURRENT).map_err(failed)?;
        Ok(table.get(key).map_err(failed)?.map(|v| {
            let (create, modified, value) = v.value();
            copied(key, create, modified, value)
        }))
    }

    pub(super) fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let newest = self.revision()?;
        let revision = request.revision.unwrap_or(newest);
        if revision > newest {
            return Err(StoreError::Future { current: newest });
        }
        let compacted = self.compacted()?;
        if revision < compacted {
            return Err(StoreError::Compacted { compacted });
        }
        let mut filling = Filling {
            page: ListPage {
                items: Vec::new(),
                more: false,
                remaining: 0,
                revision,
            },
            limit: request.limit,
        };
        // A start before the prefix (the caller's mistake) must not lead out of it.
        let after = request
            .start_after
            .as_deref()
            .filter(|after| **after >= *request.prefix);
        if revision == newest {
            self.newest(&request.prefix, after, &mut filling)?;
        } else {
            self.as_of(&request.prefix, after, revision, &mut filling)?;
        }
        filling.page.more = filling.page.remaining > 0;
        Ok(filling.page)
    }

    fn newest(&self, prefix: &str, after: Option<&str>, filling: &mut Filling) -> Result<(), StoreError> {
        let table = self.read.open_table(CURRENT).map_err(failed)?;
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        for entry in table.range::<&str>((start, Bound::Unbounded)).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            filling.take(|| {
                let (create, modified, bytes) = value.value();
                copied(key.value(), create, modified, bytes)
            });
        }
        Ok(())
    }

    fn as_of(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: Revision,
        filling: &mut Filling,
    ) -> Result<(), StoreError> {
        let table = self.read.open_table(HISTORY).map_err(failed)?;
        let mut candidate: Option<KeyValue> = None;
        let alive = |kv: &KeyValue| kv.create_revision != Revision(0);
        let start = after.map_or(Bound::Included((prefix, 0)), |after| Bound::Excluded((after, u64::MAX)));
        for entry in table.range::<(&str, u64)>((start, Bound::Unbounded)).map_err(failed)? {
            let (at, state) = entry.map_err(failed)?;
            let (key, modified) = at.value();
            if !key.starts_with(prefix) {
                break;
            }
            if candidate.as_ref().is_some_and(|c| c.key != key)
                && let Some(kv) = candidate.take().filter(alive)
            {
                filling.take(|| kv);
            }
            if modified <= revision.0 {
                let (create, bytes) = state.value();
                // Beyond the page the value is only counted.
                let bytes = if filling.is_full() { &[] } else { bytes };
                candidate = Some(copied(key, create, modified, bytes));
            }
        }
        if let Some(kv) = candidate.filter(alive) {
            filling.take(|| kv);
        }
        Ok(())
    }

    /// The events of a prefix with revisions after `after`, in order.
    pub(super) fn events(&self, prefix: &str, after: Revision) -> Result<Vec<Event>, StoreError> {
        let changes = self.read.open_table(CHANGES).map_err(failed)?;
        let history = self.read.open_table(HISTORY).map_err(failed)?;
        let mut events = Vec::new();
        let start = Bound::Excluded((after.0, u32::MAX));
        for entry in changes.range::<(u64, u32)>((start, Bound::Unbounded)).map_err(failed)? {
            let (at, key) = entry.map_err(failed)?;
            let (revision, key) = (at.value().0, key.value());
            if !key.starts_with(prefix) {
                continue;
            }
            let state = history.get((key, revision)).map_err(failed)?;
            let state = state.ok_or_else(|| corrupt(format!("the history of {key} at {revision} is missing")))?;
            let (create, value) = state.value();
            let before = history.range((key, 0)..(key, revision)).map_err(failed)?.next_back();
            let previous = match before {
                Some(entry) => {
                    let (at, state) = entry.map_err(failed)?;
                    let (created, value) = state.value();
                    (created != 0).then(|| copied(key, created, at.value().1, value))
                }
                None => None,
            };
            events.push(event(copied(key, create, revision, value), previous));
        }
        Ok(events)
    }
}

/// An event from a key's state at a revision (create revision zero: deleted) and the state before.
pub(super) fn event(kv: KeyValue, previous: Option<KeyValue>) -> Event {
    let kind = if kv.create_revision == Revision(0) {
        EventKind::Deleted
    } else if kv.create_revision == kv.mod_revision {
        EventKind::Created
    } else {
        EventKind::Updated
    };
    Event { kind, kv, previous }
}
