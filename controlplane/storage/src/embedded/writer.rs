//! The one writer of the file: group commit, expiry, compaction.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minato_meta::Revision;
use redb::{ReadableTable, Table, WriteTransaction};
use tokio::sync::oneshot;

use super::tables::{COMPACTED, CURRENT, HISTORY, LOG, META, REVISION, SEPARATOR, TTL, event, key_value};
use super::{Shared, corrupt};
use crate::store::{Commit, CommitError, Compare, Event, Expect, KeyValue, Op, StoreError, Txn, WatchItem};

/// Writes that may wait; callers beyond that are held back.
const QUEUE: usize = 4096;
/// Writes in one durable commit.
const BATCH: usize = 1024;
/// How late a key may end after its time.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Sorts after every key, none of which begins with the last character there is.
const LAST_KEY: &str = "\u{10ffff}";

pub(super) enum Command {
    Commit {
        txn: Txn,
        reply: oneshot::Sender<Result<Commit, CommitError>>,
    },
    Compact {
        revision: Revision,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    Progress {
        reply: oneshot::Sender<()>,
    },
    /// Ends the keys whose time has come.
    Expire,
}

pub(super) fn start(shared: Weak<Shared>, keep_history: Duration) -> Result<SyncSender<Command>, StoreError> {
    let (send, receive) = sync_channel(QUEUE);
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || run(&shared, &receive, keep_history))
        .map_err(|e| StoreError::Unavailable(format!("cannot start the store's writer: {e}")))?;
    Ok(send)
}

fn run(shared: &Weak<Shared>, commands: &Receiver<Command>, keep_history: Duration) {
    let mut mark: Option<(Instant, Revision)> = None;
    let mut next_housekeeping = Instant::now();
    loop {
        let first = match commands.recv_timeout(EXPIRY_INTERVAL) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(shared) = shared.upgrade() else { return };
        let mut batch: Vec<Command> = first.into_iter().collect();
        while let Some(command) = (batch.len() < BATCH).then(|| commands.try_recv().ok()).flatten() {
            batch.push(command);
        }
        // By the clock and not when idle: a store that is written to all the time must expire and compact too.
        if Instant::now() >= next_housekeeping {
            next_housekeeping = Instant::now() + EXPIRY_INTERVAL;
            batch.extend(housekeeping(&shared, &mut mark, keep_history));
        }
        if !batch.is_empty() {
            carry_out(&shared, batch);
        }
    }
}

/// What is due by time: the end of expired keys, and compaction of what was new `keep_history` ago.
fn housekeeping(shared: &Shared, mark: &mut Option<(Instant, Revision)>, keep_history: Duration) -> Vec<Command> {
    let mut due = Vec::new();
    match any_expired(shared) {
        Ok(true) => due.push(Command::Expire),
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "looking for expired keys failed"),
    }
    let reached = mark.is_none_or(|(since, _)| since.elapsed() >= keep_history);
    if reached && let Ok(revision) = present_revision(shared) {
        if let Some((_, old)) = mark.take().filter(|(_, old)| old.0 > 1) {
            due.push(Command::Compact {
                revision: old,
                reply: oneshot::channel().0,
            });
        }
        *mark = Some((Instant::now(), revision));
    }
    due
}

fn present_revision(shared: &Shared) -> Result<Revision, StoreError> {
    use redb::ReadableDatabase;
    super::tables::Snapshot::new(shared.database.begin_read().map_err(corrupt)?)?.revision()
}

fn any_expired(shared: &Shared) -> Result<bool, StoreError> {
    use redb::ReadableDatabase;
    let read = shared.database.begin_read().map_err(corrupt)?;
    let table = read.open_table(TTL).map_err(corrupt)?;
    let mut due = table.range(..=(now_ms(), LAST_KEY)).map_err(corrupt)?;
    Ok(due.next().transpose().map_err(corrupt)?.is_some())
}

/// Takes the deadlines that have passed and deletes each key that still is as its deadline's put left it.
fn expire(write: &WriteTransaction, events: &mut Vec<Event>) -> Result<(), StoreError> {
    let mut due = Vec::new();
    {
        let mut table = write.open_table(TTL).map_err(corrupt)?;
        for entry in table.range(..=(now_ms(), LAST_KEY)).map_err(corrupt)?.take(BATCH) {
            let (at, revision) = entry.map_err(corrupt)?;
            let (deadline, key) = at.value();
            due.push((deadline, key.to_owned(), revision.value()));
        }
        // All of them, also those of keys put or deleted since: they would crowd out the ones behind them.
        for (deadline, key, _) in &due {
            table.remove((*deadline, key.as_str())).map_err(corrupt)?;
        }
    }
    for (_, key, revision) in due {
        let txn = Txn {
            compare: vec![Compare {
                key: key.clone(),
                expect: Expect::ModRevision(Revision(revision)),
            }],
            ops: vec![Op::Delete { key }],
        };
        // A conflict means that the key was put or deleted since, and is to be left alone.
        let _conflict_or_done = apply_txn(write, &txn, events)?;
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An answer that waits for the commit to be durable.
enum Pending {
    Commit(
        oneshot::Sender<Result<Commit, CommitError>>,
        Result<Commit, CommitError>,
    ),
    Compact(oneshot::Sender<Result<(), StoreError>>, Result<(), StoreError>),
    Progress(oneshot::Sender<()>),
}

fn carry_out(shared: &Arc<Shared>, batch: Vec<Command>) {
    let mut pending = Vec::with_capacity(batch.len());
    let result = apply(shared, batch, &mut pending);
    let revision = match &result {
        Ok((events, revision)) => {
            if !events.is_empty() {
                let _ = shared.published.send(WatchItem::Events(events.clone()));
            }
            *revision
        }
        Err(error) => {
            tracing::error!(%error, "a commit failed; nothing of it was applied");
            Revision(0)
        }
    };
    for answer in pending {
        match (answer, &result) {
            (Pending::Commit(reply, outcome), Ok(_)) => drop(reply.send(outcome)),
            (Pending::Commit(reply, _), Err(error)) => drop(reply.send(Err(error.clone().into()))),
            (Pending::Compact(reply, outcome), Ok(_)) => drop(reply.send(outcome)),
            (Pending::Compact(reply, _), Err(error)) => drop(reply.send(Err(error.clone()))),
            (Pending::Progress(reply), _) => {
                if revision.0 > 0 {
                    let _ = shared.published.send(WatchItem::Progress(revision));
                }
                let _ = reply.send(());
            }
        }
    }
}

fn apply(
    shared: &Shared,
    batch: Vec<Command>,
    pending: &mut Vec<Pending>,
) -> Result<(Vec<Event>, Revision), StoreError> {
    let mut transaction = None;
    let mut events = Vec::new();
    for command in batch {
        let write = match &transaction {
            Some(write) => write,
            None => match shared.database.begin_write() {
                Ok(write) => transaction.insert(write),
                Err(error) => {
                    fail(command, &corrupt(error), pending);
                    continue;
                }
            },
        };
        match command {
            Command::Commit { txn, reply } => {
                let outcome = match apply_txn(write, &txn, &mut events) {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        pending.push(Pending::Commit(reply, Err(error.clone().into())));
                        return Err(error);
                    }
                };
                pending.push(Pending::Commit(reply, outcome));
            }
            Command::Compact { revision, reply } => {
                let outcome = compact(write, revision);
                pending.push(Pending::Compact(reply, outcome));
            }
            Command::Progress { reply } => pending.push(Pending::Progress(reply)),
            Command::Expire => expire(write, &mut events)?,
        }
    }
    let Some(write) = transaction else {
        return Err(StoreError::Unavailable("no transaction".to_owned()));
    };
    let revision = {
        let meta = write.open_table(META).map_err(corrupt)?;
        meta.get(REVISION).map_err(corrupt)?.map_or(0, |v| v.value())
    };
    // After a failed durable commit the database file decides at the next start whether it happened.
    write.commit().map_err(|e| StoreError::Unknown(e.to_string()))?;
    Ok((events, Revision(revision)))
}

fn fail(command: Command, error: &StoreError, pending: &mut Vec<Pending>) {
    match command {
        Command::Commit { reply, .. } => pending.push(Pending::Commit(reply, Err(error.clone().into()))),
        Command::Compact { reply, .. } => pending.push(Pending::Compact(reply, Err(error.clone()))),
        Command::Progress { reply } => pending.push(Pending::Progress(reply)),
        // Tried again at the next housekeeping.
        Command::Expire => {}
    }
}

type Current<'t> = Table<'t, &'static str, (u64, u64, &'static [u8])>;

fn lookup(current: &Current<'_>, key: &str) -> Result<Option<KeyValue>, StoreError> {
    Ok(current.get(key).map_err(corrupt)?.map(|v| {
        let (create, modified, value) = v.value();
        key_value(key, create, modified, value)
    }))
}

fn apply_txn(
    write: &WriteTransaction,
    txn: &Txn,
    events: &mut Vec<Event>,
) -> Result<Result<Commit, CommitError>, StoreError> {
    let mut meta = write.open_table(META).map_err(corrupt)?;
    let mut current = write.open_table(CURRENT).map_err(corrupt)?;
    let last = meta.get(REVISION).map_err(corrupt)?.map_or(1, |v| v.value());
    let mut seen = Vec::with_capacity(txn.compare.len());
    for compare in &txn.compare {
        seen.push(lookup(&current, &compare.key)?);
    }
    let holds = txn.compare.iter().zip(&seen).all(|(compare, kv)| match compare.expect {
        Expect::Absent => kv.is_none(),
        Expect::ModRevision(revision) => kv.as_ref().is_some_and(|kv| kv.mod_revision == revision),
    });
    if !holds {
        return Ok(Err(CommitError::Conflict {
            current: seen,
            revision: Revision(last),
        }));
    }
    let revision = last + 1;
    let mut history = write.open_table(HISTORY).map_err(corrupt)?;
    let mut keys = String::new();
    for op in &txn.ops {
        let (key, value, ttl) = match op {
            Op::Put { key, value, ttl } => (key.as_str(), Some(value), *ttl),
            Op::Delete { key } => (key.as_str(), None, None),
        };
        let previous = lookup(&current, key)?;
        let create = match (value, &previous) {
            (None, None) => continue,
            (None, Some(_)) => 0,
            (Some(_), Some(kv)) => kv.create_revision.0,
            (Some(_), None) => revision,
        };
        let bytes: &[u8] = value.map_or(&[], |v| v.as_ref());
        if value.is_some() {
            current.insert(key, (create, revision, bytes)).map_err(corrupt)?;
        } else {
            current.remove(key).map_err(corrupt)?;
        }
        history.insert((key, revision), (create, bytes)).map_err(corrupt)?;
        if let Some(ttl) = ttl {
            let deadline = now_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            let mut table = write.open_table(TTL).map_err(corrupt)?;
            table.insert((deadline, key), revision).map_err(corrupt)?;
        }
        keys.push_str(key);
        keys.push(SEPARATOR);
        events.push(event(key_value(key, create, revision, bytes), previous));
    }
    if keys.is_empty() {
        return Ok(Ok(Commit {
            revision: Revision(last),
        }));
    }
    write
        .open_table(LOG)
        .map_err(corrupt)?
        .insert(revision, keys.as_str())
        .map_err(corrupt)?;
    meta.insert(REVISION, revision).map_err(corrupt)?;
    Ok(Ok(Commit {
        revision: Revision(revision),
    }))
}

/// Drops the states that no read at `revision` or later can see.
fn compact(write: &WriteTransaction, revision: Revision) -> Result<(), StoreError> {
    let mut meta = write.open_table(META).map_err(corrupt)?;
    let compacted = Revision(meta.get(COMPACTED).map_err(corrupt)?.map_or(0, |v| v.value()));
    let present = Revision(meta.get(REVISION).map_err(corrupt)?.map_or(1, |v| v.value()));
    if revision <= compacted {
        return Err(StoreError::Compacted { compacted });
    }
    if revision > present {
        return Err(StoreError::Future { current: present });
    }
    let mut history = write.open_table(HISTORY).map_err(corrupt)?;
    let mut drop_list: Vec<(String, u64)> = Vec::new();
    let mut newest: Option<(String, u64, bool)> = None;
    for entry in history.iter().map_err(corrupt)? {
        let (at, state) = entry.map_err(corrupt)?;
        let (key, modified) = at.value();
        let same = newest.as_ref().is_some_and(|(k, ..)| k == key);
        if !same {
            // The last state up to the compaction stays, unless it is a delete.
            drop_list.extend(newest.take().filter(|(_, _, deleted)| *deleted).map(|(k, m, _)| (k, m)));
        }
        if modified <= revision.0 {
            if let Some((k, m, _)) = newest.take() {
                drop_list.push((k, m));
            }
            newest = Some((key.to_owned(), modified, state.value().0 == 0));
        }
    }
    drop_list.extend(newest.filter(|(_, _, deleted)| *deleted).map(|(k, m, _)| (k, m)));
    for (key, modified) in drop_list {
        history.remove((key.as_str(), modified)).map_err(corrupt)?;
    }
    let mut log = write.open_table(LOG).map_err(corrupt)?;
    log.retain_in(..=revision.0, |_, _| false).map_err(corrupt)?;
    meta.insert(COMPACTED, revision.0).map_err(corrupt)?;
    Ok(())
}
