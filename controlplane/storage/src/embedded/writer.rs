//! The one writer of the file: group commit, and between commits what is due by time.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use minato_meta::Revision;
use redb::ReadableDatabase;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::fault::{commit_failed, failed};
use super::tables::{Snapshot, Tables, event, key_value};
use super::{Shared, compaction, expiry};
use crate::store::{Commit, CommitError, Event, Expect, Op, StoreError, Txn};

/// Writes that may wait; callers beyond that are held back.
const QUEUE: usize = 4096;
/// Writes in one durable commit.
const MOST: usize = 1024;
/// How late a key may end after its time.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

pub(super) enum Command {
    Commit {
        txn: Txn,
        reply: oneshot::Sender<Result<Commit, CommitError>>,
    },
    Compact {
        revision: Revision,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// What one durable commit changes.
#[derive(Default)]
pub(super) struct Batch {
    /// In order of revision.
    pub(super) events: Vec<Event>,
    /// Of the store after the batch.
    pub(super) revision: Revision,
    /// Whether anything at all is to be made durable.
    pub(super) changed: bool,
}

/// A place in the queue goes with each command, so the queue itself never fills.
struct Queued {
    command: Command,
    _place: OwnedSemaphorePermit,
}

/// The way to the writer's thread, which ends with the last clone of this.
#[derive(Clone)]
pub(super) struct Writer {
    queue: Sender<Queued>,
    places: Arc<Semaphore>,
}

impl Writer {
    pub(super) fn start(shared: Weak<Shared>, keep_history: Duration) -> Result<Self, StoreError> {
        let (queue, receive) = channel();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                Thread {
                    shared,
                    keep_history,
                    mark: None,
                    compactions: VecDeque::new(),
                }
                .run(&receive);
            })
            .map_err(|e| StoreError::Unavailable(format!("cannot start the store's writer: {e}")))?;
        let places = Arc::new(Semaphore::new(QUEUE));
        Ok(Self { queue, places })
    }

    /// Sends a command and waits for its answer; first for a place, when the queue is full.
    pub(super) async fn send<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable("the store's writer has ended".to_owned());
        let place = self.places.clone().acquire_owned().await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            command: make(reply),
            _place: place,
        };
        self.queue.send(queued).map_err(|_| closed())?;
        answer
            .await
            .map_err(|_| StoreError::Unknown("the store's writer ended while the write was under way".to_owned()))
    }
}

struct Compaction {
    revision: Revision,
    /// `None` for the ones that the writer makes by itself.
    reply: Option<oneshot::Sender<Result<(), StoreError>>>,
}

struct Thread {
    shared: Weak<Shared>,
    keep_history: Duration,
    /// What was the newest revision when.
    mark: Option<(Instant, Revision)>,
    /// The first is under way.
    compactions: VecDeque<Compaction>,
}

/// An answer that waits for the commit to be durable.
enum Pending {
    Commit(
        oneshot::Sender<Result<Commit, CommitError>>,
        Result<Commit, CommitError>,
    ),
    Compact(oneshot::Sender<Result<(), StoreError>>, Result<(), StoreError>),
}

impl Thread {
    fn run(mut self, commands: &Receiver<Queued>) {
        let mut next_housekeeping = Instant::now();
        loop {
            // Without pause while there is history to forget.
            let patience = if self.compactions.is_empty() {
                HOUSEKEEPING
            } else {
                Duration::ZERO
            };
            let first = match commands.recv_timeout(patience) {
                Ok(queued) => Some(queued.command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(shared) = self.shared.upgrade() else { return };
            let mut batch: VecDeque<Command> = first.into_iter().collect();
            while let Some(queued) = (batch.len() < MOST).then(|| commands.try_recv().ok()).flatten() {
                batch.push_back(queued.command);
            }
            // By the clock and not when idle: a store that is written to all the time must expire and compact too.
            let mut expire = false;
            if Instant::now() >= next_housekeeping {
                next_housekeeping = Instant::now() + HOUSEKEEPING;
                expire = self.housekeeping(&shared);
            }
            if !batch.is_empty() || expire || !self.compactions.is_empty() {
                self.carry_out(&shared, batch, expire);
            }
        }
    }

    /// What is due by time: the end of expired keys, and compaction of what was new `keep_history` ago.
    fn housekeeping(&mut self, shared: &Shared) -> bool {
        let reached = self.mark.is_none_or(|(since, _)| since.elapsed() >= self.keep_history);
        if reached && let Ok(revision) = present_revision(shared) {
            let old = self.mark.replace((Instant::now(), revision)).map(|(_, old)| old);
            if let Some(old) = old.filter(|old| old.0 > 1) {
                self.compactions.push_back(Compaction {
                    revision: old,
                    reply: None,
                });
            }
        }
        expiry::is_due(&shared.database).unwrap_or_else(|error| {
            tracing::error!(%error, "looking for expired keys failed");
            false
        })
    }

    fn carry_out(&mut self, shared: &Shared, commands: VecDeque<Command>, expire: bool) {
        let mut pending = Vec::with_capacity(commands.len());
        let result = self.apply(shared, commands, expire, &mut pending);
        match &result {
            Ok(batch) if batch.changed => shared.hub.publish(&batch.events, batch.revision),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "a commit failed");
                if let Some(Compaction { reply: Some(reply), .. }) = self.compactions.pop_front() {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
        for answer in pending {
            match (answer, &result) {
                (Pending::Commit(reply, outcome), Ok(_)) => drop(reply.send(outcome)),
                (Pending::Commit(reply, _), Err(error)) => drop(reply.send(Err(error.clone().into()))),
                (Pending::Compact(reply, outcome), Ok(_)) => drop(reply.send(outcome)),
                (Pending::Compact(reply, _), Err(error)) => drop(reply.send(Err(error.clone()))),
            }
        }
    }

    fn apply(
        &mut self,
        shared: &Shared,
        mut commands: VecDeque<Command>,
        expire: bool,
        pending: &mut Vec<Pending>,
    ) -> Result<Batch, StoreError> {
        let result = self.apply_all(shared, &mut commands, expire, pending);
        if let Err(error) = &result {
            // None of them has happened, nor will.
            pending.extend(commands.into_iter().map(|command| match command {
                Command::Commit { reply, .. } => Pending::Commit(reply, Err(error.clone().into())),
                Command::Compact { reply, .. } => Pending::Compact(reply, Err(error.clone())),
            }));
        }
        result
    }

    fn apply_all(
        &mut self,
        shared: &Shared,
        commands: &mut VecDeque<Command>,
        expire: bool,
        pending: &mut Vec<Pending>,
    ) -> Result<Batch, StoreError> {
        let write = shared.database.begin_write().map_err(failed)?;
        let mut batch = Batch::default();
        let mut tables = Tables::open(&write)?;
        while let Some(command) = commands.pop_front() {
            match command {
                Command::Commit { txn, reply } => match apply_txn(&mut tables, txn, &mut batch) {
                    Ok(outcome) => pending.push(Pending::Commit(reply, outcome)),
                    Err(error) => {
                        pending.push(Pending::Commit(reply, Err(error.clone().into())));
                        return Err(error);
                    }
                },
                Command::Compact { revision, reply } => match compaction::check(&tables, revision)? {
                    Ok(()) => self.compactions.push_back(Compaction {
                        revision,
                        reply: Some(reply),
                    }),
                    Err(refused) => pending.push(Pending::Compact(reply, Err(refused))),
                },
            }
        }
        if expire {
            expiry::expire(&mut tables, &mut batch)?;
        }
        if let Some(first) = self.compactions.front()
            && (compaction::check(&tables, first.revision)?.is_err()
                || compaction::slice(&mut tables, first.revision, &mut batch)?)
            && let Some(Compaction { reply: Some(reply), .. }) = self.compactions.pop_front()
        {
            pending.push(Pending::Compact(reply, Ok(())));
        }
        batch.revision = tables.close()?;
        if batch.changed {
            // After a failed durable commit the database file decides at the next start whether it happened.
            write.commit().map_err(commit_failed)?;
        } else {
            write.abort().map_err(failed)?;
        }
        Ok(batch)
    }
}

fn present_revision(shared: &Shared) -> Result<Revision, StoreError> {
    Snapshot::new(shared.database.begin_read().map_err(failed)?).revision()
}

/// Applies one transaction; the inner result is the caller's answer.
pub(super) fn apply_txn(
    tables: &mut Tables<'_>,
    txn: Txn,
    batch: &mut Batch,
) -> Result<Result<Commit, CommitError>, StoreError> {
    let last = tables.revision.0;
    let mut seen = Vec::with_capacity(txn.compare.len());
    for compare in &txn.compare {
        seen.push(tables.lookup(&compare.key)?);
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
    let mut place = 0;
    for op in txn.ops {
        let (key, value, ttl) = match op {
            Op::Put { key, value, ttl } => (key, Some(value), ttl),
            Op::Delete { key } => (key, None, None),
        };
        let key = key.as_str();
        let previous = match txn.compare.iter().position(|compare| compare.key == key) {
            Some(at) => seen[at].take(),
            None => tables.lookup(key)?,
        };
        let create = match (&value, &previous) {
            (None, None) => continue,
            (None, Some(_)) => 0,
            (Some(_), Some(kv)) => kv.create_revision.0,
            (Some(_), None) => revision,
        };
        let Tables {
            current,
            history,
            changes,
            ttl: deadlines,
            ..
        } = tables;
        match &value {
            Some(bytes) => drop(current.insert(key, (create, revision, &bytes[..])).map_err(failed)?),
            None => drop(current.remove(key).map_err(failed)?),
        }
        let value = value.unwrap_or_default();
        history.insert((key, revision), (create, &value[..])).map_err(failed)?;
        changes.insert((revision, place), key).map_err(failed)?;
        place += 1;
        if let Some(ttl) = ttl {
            deadlines
                .insert((expiry::deadline(ttl), key), revision)
                .map_err(failed)?;
        }
        batch
            .events
            .push(event(key_value(key, create, revision, value), previous));
    }
    if place == 0 {
        return Ok(Ok(Commit {
            revision: Revision(last),
        }));
    }
    tables.revision = Revision(revision);
    batch.changed = true;
    Ok(Ok(Commit {
        revision: Revision(revision),
    }))
}
