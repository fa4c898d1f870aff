//! The tables of the file and what is read from them.

use std::ops::Bound;

use bytes::Bytes;
use minato_meta::Revision;
use redb::{Database, ReadTransaction, ReadableTable, TableDefinition};

use super::corrupt;
use crate::store::{Event, EventKind, KeyValue, ListPage, ListRequest, StoreError};

/// Newest value of each key: create revision, mod revision, value.
pub(super) const CURRENT: TableDefinition<'_, &str, (u64, u64, &[u8])> = TableDefinition::new("current");
/// Every state of every key since compaction: create revision (zero for a delete) and value, by key and revision.
pub(super) const HISTORY: TableDefinition<'_, (&str, u64), (u64, &[u8])> = TableDefinition::new("history");
/// Keys changed at each revision since compaction, each ended by a NUL byte.
pub(super) const LOG: TableDefinition<'_, u64, &str> = TableDefinition::new("log");
/// Keys that end by themselves: by deadline (Unix milliseconds) and key, the mod revision that set it.
pub(super) const TTL: TableDefinition<'_, (u64, &str), u64> = TableDefinition::new("ttl");
/// Scalars.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const REVISION: &str = "revision";
pub(super) const COMPACTED: &str = "compacted";
/// Separates the keys of a log entry; keys hold no NUL.
pub(super) const SEPARATOR: char = '\0';

/// Makes what a new file lacks.
pub(super) fn create(database: &Database) -> Result<(), StoreError> {
    let write = database.begin_write().map_err(corrupt)?;
    {
        write.open_table(CURRENT).map_err(corrupt)?;
        write.open_table(HISTORY).map_err(corrupt)?;
        write.open_table(LOG).map_err(corrupt)?;
        write.open_table(TTL).map_err(corrupt)?;
        let mut meta = write.open_table(META).map_err(corrupt)?;
        if meta.get(REVISION).map_err(corrupt)?.is_none() {
            meta.insert(REVISION, 1).map_err(corrupt)?;
            meta.insert(COMPACTED, 0).map_err(corrupt)?;
        }
    }
    write.commit().map_err(corrupt)
}

/// One consistent view of the file.
pub(super) struct Snapshot {
    read: ReadTransaction,
}

pub(super) fn key_value(key: &str, create: u64, modified: u64, value: &[u8]) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

impl Snapshot {
    pub(super) fn new(read: ReadTransaction) -> Result<Self, StoreError> {
        Ok(Self { read })
    }

    fn meta(&self, name: &str) -> Result<u64, StoreError> {
        let meta = self.read.open_table(META).map_err(corrupt)?;
        Ok(meta.get(name).map_err(corrupt)?.map_or(0, |v| v.value()))
    }

    pub(super) fn revision(&self) -> Result<Revision, StoreError> {
        self.meta(REVISION).map(Revision)
    }

    pub(super) fn compacted(&self) -> Result<Revision, StoreError> {
        self.meta(COMPACTED).map(Revision)
    }

    pub(super) fn current(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let table = self.read.open_table(CURRENT).map_err(corrupt)?;
        Ok(table.get(key).map_err(corrupt)?.map(|v| {
            let (create, modified, value) = v.value();
            key_value(key, create, modified, value)
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
        let mut page = ListPage {
            items: Vec::new(),
            more: false,
            remaining: 0,
            revision,
        };
        let mut take = |kv: KeyValue| {
            if request
                .start_after
                .as_deref()
                .is_some_and(|after| kv.key.as_str() <= after)
            {
                return;
            }
            if request.limit > 0 && page.items.len() == request.limit {
                page.remaining += 1;
            } else {
                page.items.push(kv);
            }
        };
        if revision == newest {
            self.newest(&request.prefix, &mut take)?;
        } else {
            self.as_of(&request.prefix, revision, &mut take)?;
        }
        page.more = page.remaining > 0;
        Ok(page)
    }

    fn newest(&self, prefix: &str, take: &mut impl FnMut(KeyValue)) -> Result<(), StoreError> {
        let table = self.read.open_table(CURRENT).map_err(corrupt)?;
        for entry in table.range(prefix..).map_err(corrupt)? {
            let (key, value) = entry.map_err(corrupt)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let (create, modified, bytes) = value.value();
            take(key_value(key.value(), create, modified, bytes));
        }
        Ok(())
    }

    fn as_of(&self, prefix: &str, revision: Revision, take: &mut impl FnMut(KeyValue)) -> Result<(), StoreError> {
        let table = self.read.open_table(HISTORY).map_err(corrupt)?;
        let mut candidate: Option<KeyValue> = None;
        let alive = |kv: &KeyValue| kv.create_revision != Revision(0);
        for entry in table.range((prefix, 0)..).map_err(corrupt)? {
            let (at, state) = entry.map_err(corrupt)?;
            let (key, modified) = at.value();
            if !key.starts_with(prefix) {
                break;
            }
            if candidate.as_ref().is_some_and(|c| c.key != key) {
                candidate.take().filter(alive).into_iter().for_each(&mut *take);
            }
            if modified <= revision.0 {
                let (create, bytes) = state.value();
                candidate = Some(key_value(key, create, modified, bytes));
            }
        }
        candidate.filter(alive).into_iter().for_each(take);
        Ok(())
    }

    /// The events of a prefix with revisions after `after`, in order.
    pub(super) fn events(&self, prefix: &str, after: Revision) -> Result<Vec<Event>, StoreError> {
        let log = self.read.open_table(LOG).map_err(corrupt)?;
        let history = self.read.open_table(HISTORY).map_err(corrupt)?;
        let mut events = Vec::new();
        for entry in log
            .range((Bound::Excluded(after.0), Bound::Unbounded))
            .map_err(corrupt)?
        {
            let (revision, keys) = entry.map_err(corrupt)?;
            let revision = revision.value();
            for key in keys
                .value()
                .split_terminator(SEPARATOR)
                .filter(|k| k.starts_with(prefix))
            {
                let state = history.get((key, revision)).map_err(corrupt)?;
                let state = state.ok_or_else(|| corrupt(format!("the history of {key} at {revision} is missing")))?;
                let (create, value) = state.value();
                let before = history.range((key, 0)..(key, revision)).map_err(corrupt)?.next_back();
                let previous = match before {
                    Some(entry) => {
                        let (at, state) = entry.map_err(corrupt)?;
                        let (created, value) = state.value();
                        (created != 0).then(|| key_value(key, created, at.value().1, value))
                    }
                    None => None,
                };
                events.push(event(key_value(key, create, revision, value), previous));
            }
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
