//! Concurrent histories and what must hold of them.
//!
//! Every answer of a store names the revision that it shows, so each call has a witness of when it took effect. A history
//! is linearizable if the events, in order, explain each answer at its revision, each acknowledged write is in the events
//! exactly once, and no call takes effect before one that had ended when it began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use minato_meta::Revision;
use minato_storage::{
    CommitError, Compare, Event, EventKind, Expect, KeyValue, ListRequest, Op, Store, StoreError, Txn, WatchItem,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{delete, put, under};

const KEYS: [&str; 5] = ["/r/a", "/r/b", "/r/c/d", "/s/a", "/s/b"];

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Get(String),
    List(ListRequest),
    Commit(Txn),
}

/// What was answered.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Value(Option<KeyValue>, Revision),
    Page(Vec<KeyValue>, Revision),
    Committed(Revision),
    Conflict(Vec<Option<KeyValue>>, Revision),
    /// A write that may have happened.
    Unknown,
    /// Nothing was done.
    Refused,
}

/// One call, with ticks of a clock that all clients share.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    began: u64,
    ended: u64,
    request: Request,
    answer: Answer,
}

type State = BTreeMap<String, KeyValue>;

/// Makes random calls one after the other.
pub(crate) async fn client(
    store: impl Store,
    clock: Arc<AtomicU64>,
    number: usize,
    seed: u64,
    count: usize,
) -> Vec<Call> {
    let mut random = StdRng::seed_from_u64(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut known: BTreeMap<&str, Option<Revision>> = BTreeMap::new();
    let mut calls = Vec::with_capacity(count);
    for n in 0..count {
        let request = draw(&mut random, &known, &format!("{number}-{n}"));
        let began = clock.fetch_add(1, Ordering::SeqCst);
        let answer = ask(&store, &request).await;
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        learn(&mut known, &request, &answer);
        calls.push(Call {
            began,
            ended,
            request,
            answer,
        });
    }
    calls
}

fn draw(random: &mut StdRng, known: &BTreeMap<&str, Option<Revision>>, value: &str) -> Request {
    let key = KEYS[random.random_range(0..KEYS.len())];
    let other = KEYS[random.random_range(0..KEYS.len())];
    // As the client last saw it, which may be the past by now.
    let expect = |key: &str| match known.get(key) {
        Some(Some(revision)) => Expect::ModRevision(*revision),
        _ => Expect::Absent,
    };
    let condition = |key: &str| Compare {
        key: key.to_owned(),
        expect: expect(key),
    };
    match random.random_range(0..10) {
        0..3 => Request::Get(key.to_owned()),
        3 => Request::List(under(["/r/", "/s/", "/"][random.random_range(0..3)], None)),
        4 => Request::Commit(Txn {
            compare: vec![],
            ops: vec![put(key, value)],
        }),
        5..7 => Request::Commit(Txn {
            compare: vec![condition(key)],
            ops: vec![put(key, value)],
        }),
        7 => Request::Commit(Txn {
            compare: vec![condition(key)],
            ops: vec![delete(key)],
        }),
        8 => Request::Commit(Txn {
            compare: vec![],
            ops: vec![delete(key)],
        }),
        _ if key == other => Request::Get(key.to_owned()),
        _ => Request::Commit(Txn {
            compare: vec![condition(key), condition(other)],
            ops: vec![put(key, value), delete(other)],
        }),
    }
}

async fn ask(store: &impl Store, request: &Request) -> Answer {
    let failed = |error: StoreError| match error {
        StoreError::Unknown(_) => Answer::Unknown,
        StoreError::Unavailable(_) => Answer::Refused,
        error => panic!("{error}"),
    };
    match request {
        Request::Get(key) => match store.get(key).await {
            Ok(read) => Answer::Value(read.kv, read.revision),
            Err(error) => failed(error),
        },
        Request::List(request) => match store.list(request.clone()).await {
            Ok(page) => Answer::Page(page.items, page.revision),
            Err(error) => failed(error),
        },
        Request::Commit(txn) => match store.commit(txn.clone()).await {
            Ok(commit) => Answer::Committed(commit.revision),
            Err(CommitError::Conflict { current, revision }) => Answer::Conflict(current, revision),
            Err(CommitError::Store(error)) => failed(error),
        },
    }
}

fn learn(known: &mut BTreeMap<&str, Option<Revision>>, request: &Request, answer: &Answer) {
    let mut note = |key: &str, revision| {
        if let Some(key) = KEYS.iter().find(|k| **k == key) {
            known.insert(key, revision);
        }
    };
    match (request, answer) {
        (Request::Get(key), Answer::Value(kv, _)) => note(key, kv.as_ref().map(|kv| kv.mod_revision)),
        (Request::Commit(txn), Answer::Committed(revision)) => {
            for op in &txn.ops {
                match op {
                    Op::Put { key, .. } => note(key, Some(*revision)),
                    Op::Delete { key } => note(key, None),
                }
            }
        }
        (Request::Commit(txn), Answer::Conflict(current, _)) => {
            for (compare, kv) in txn.compare.iter().zip(current) {
                note(&compare.key, kv.as_ref().map(|kv| kv.mod_revision));
            }
        }
        _ => {}
    }
}

/// Everything that a watch delivers up to a revision, once progress is asked for.
pub(crate) async fn events(store: &impl Store, prefix: &str, after: Revision, upto: Revision) -> Vec<Event> {
    let mut watch = store.watch(prefix, after).await.unwrap();
    store.request_progress().await.unwrap();
    let mut all = Vec::new();
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Events(events) => all.extend(events),
            WatchItem::Progress(revision) if revision >= upto => return all,
            WatchItem::Progress(_) => {}
        }
    }
}

/// What a whole history must satisfy; the store was empty at its start.
pub(crate) fn check(start: Revision, events: &[Event], calls: &[Call]) -> Result<(), String> {
    let states = replay(start, events)?;
    let at = |revision: Revision| {
        let next = states.partition_point(|(r, ..)| *r <= revision);
        &states[next.max(1) - 1].1
    };
    // Who made each revision, and who may have, if nobody else did.
    let (mut claimed, mut perhaps): (BTreeMap<Revision, &Call>, Vec<(Revision, &Call)>) = Default::default();
    for call in calls {
        let wrong = |what: &str| Err(format!("{what}: {call:?}"));
        if point(call).is_some_and(|revision| revision < start) {
            return wrong("it shows what was before the beginning");
        }
        match (&call.request, &call.answer) {
            (Request::Get(key), Answer::Value(kv, revision)) if at(*revision).get(key) != kv.as_ref() => {
                return wrong("a read shows what was not there");
            }
            (Request::List(request), Answer::Page(items, revision)) => {
                let below = at(*revision).iter().filter(|(key, _)| key.starts_with(&request.prefix));
                if !below.map(|(_, kv)| kv).eq(items) {
                    return wrong("a list shows what was not there");
                }
            }
            (Request::Commit(txn), Answer::Conflict(current, revision)) => {
                let state = at(*revision);
                let present = txn.compare.iter().map(|compare| state.get(&compare.key).cloned());
                if !present.eq(current.iter().cloned()) || holds(txn, state) {
                    return wrong("a conflict that was none");
                }
            }
            (Request::Commit(txn), Answer::Committed(revision)) => {
                let before = at(Revision(revision.0 - 1));
                let did = holds(txn, before) && explains(txn, before, *revision, events);
                // Deletions of nothing make no revision: they took effect at the one that was there.
                let state = at(*revision);
                let nothing = |op: &Op| matches!(op, Op::Delete { key } if !state.contains_key(key));
                if holds(txn, state) && txn.ops.iter().all(nothing) {
                    if did {
                        perhaps.push((*revision, call));
                    }
                } else if !did || claimed.insert(*revision, call).is_some() {
                    return wrong("a write did not happen as it was acknowledged");
                }
            }
            _ => {}
        }
    }
    for (revision, call) in perhaps {
        claimed.entry(revision).or_insert(call);
    }
    for (revision, state) in states.windows(2).map(|pair| (pair[1].0, &pair[0].1)) {
        if claimed.contains_key(&revision) {
            continue;
        }
        let unknown = calls.iter().filter(|call| matches!(call.answer, Answer::Unknown));
        let by = unknown.clone().find(|call| match &call.request {
            Request::Commit(txn) => holds(txn, state) && explains(txn, state, revision, events),
            _ => false,
        });
        let by = by.ok_or_else(|| format!("nobody wrote revision {revision}"))?;
        claimed.insert(revision, by);
    }
    in_time(calls)
}

fn holds(txn: &Txn, state: &State) -> bool {
    txn.compare.iter().all(|compare| match compare.expect {
        Expect::Absent => !state.contains_key(&compare.key),
        Expect::ModRevision(revision) => state.get(&compare.key).is_some_and(|kv| kv.mod_revision == revision),
    })
}

/// Whether the events of a revision are the effects of a transaction, all of them and no others. There is at least one.
fn explains(txn: &Txn, before: &State, revision: Revision, events: &[Event]) -> bool {
    let mut left: BTreeMap<&str, &Event> = BTreeMap::new();
    let first = events.partition_point(|event| event.kv.mod_revision < revision);
    for event in events[first..]
        .iter()
        .take_while(|event| event.kv.mod_revision == revision)
    {
        left.insert(&event.kv.key, event);
    }
    txn.ops.iter().all(|op| match op {
        Op::Put { key, value, .. } => left
            .remove(key.as_str())
            .is_some_and(|event| event.kind != EventKind::Deleted && event.kv.value == *value),
        Op::Delete { key } if before.contains_key(key) => left
            .remove(key.as_str())
            .is_some_and(|event| event.kind == EventKind::Deleted),
        Op::Delete { .. } => true,
    }) && left.is_empty()
}

/// The states between the events, which must fit together.
fn replay(start: Revision, events: &[Event]) -> Result<Vec<(Revision, State)>, String> {
    let mut states = vec![(start, State::new())];
    for event in events {
        let revision = event.kv.mod_revision;
        let (last, mut state) = states.last().cloned().unwrap();
        if revision < last || revision <= start {
            return Err(format!("an event comes too late, or again: {event:?}"));
        }
        let before = state.remove(&event.kv.key);
        let kind = match (&before, event.kind) {
            (None, EventKind::Created) | (Some(_), EventKind::Updated | EventKind::Deleted) => true,
            (None, _) | (Some(_), EventKind::Created) => false,
        };
        if !kind || event.previous != before || before.as_ref().is_some_and(|kv| kv.mod_revision == revision) {
            return Err(format!(
                "an event does not follow from what was before it: {event:?} after {before:?}"
            ));
        }
        let created = match event.kind {
            EventKind::Deleted => Revision(0),
            _ => before.map_or(revision, |kv| kv.create_revision),
        };
        if event.kv.create_revision != created {
            return Err(format!("an event with a wrong birth: {event:?}"));
        }
        if event.kind != EventKind::Deleted {
            state.insert(event.kv.key.clone(), event.kv.clone());
        }
        if revision == last {
            states.pop();
        }
        states.push((revision, state));
    }
    Ok(states)
}

/// The revision that a call shows.
fn point(call: &Call) -> Option<Revision> {
    match call.answer {
        Answer::Value(_, revision)
        | Answer::Page(_, revision)
        | Answer::Committed(revision)
        | Answer::Conflict(_, revision) => Some(revision),
        Answer::Unknown | Answer::Refused => None,
    }
}

/// No call may show less than one that had ended before it began; a write must come after.
fn in_time(calls: &[Call]) -> Result<(), String> {
    let mut ended: Vec<(u64, Revision)> = calls.iter().filter_map(|c| Some((c.ended, point(c)?))).collect();
    ended.sort_unstable();
    let mut begun: Vec<(&Call, Revision)> = calls.iter().filter_map(|c| Some((c, point(c)?))).collect();
    begun.sort_unstable_by_key(|(call, _)| call.began);
    let (mut next, mut newest) = (0, Revision(0));
    for (call, revision) in begun {
        while ended.get(next).is_some_and(|(at, _)| *at < call.began) {
            newest = newest.max(ended[next].1);
            next += 1;
        }
        if revision < newest {
            return Err(format!(
                "it shows less than was seen ({newest}) before it began: {call:?}"
            ));
        }
    }
    Ok(())
}
