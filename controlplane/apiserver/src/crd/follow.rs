//! The task that makes definitions true: it follows them, settles their names and conditions, and serves their kinds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use minato_meta::{ApiError, GroupResource};
use minato_storage::StoreError;
use minato_storage::cache::{CacheEvent, ChangeKind, Entry, ReadAt, Watcher};
use serde_json::Value;

use super::names::{Taken, settled};
use super::{cleanup, definitions, definitions_v1, is_condition_true, kinds, list, text};
use crate::endpoints::Target;
use crate::endpoints::transaction::{self, Change, Effects, Stored, Transform, store_error};
use crate::registry::CustomKind;
use crate::server::ApiServer;

/// Events that are taken at once.
const BATCH: usize = 256;
/// Pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);

/// Serves the definitions that there are, and goes on by itself until the server stops.
pub(crate) async fn start(server: &Arc<ApiServer>) {
    let mut known = Definitions::default();
    let first = loop {
        match begin(server, &mut known).await {
            Ok(watcher) => break watcher,
            Err(_) if server.stopped().is_cancelled() => return,
            Err(error) => {
                tracing::warn!(
                    error = error.message(),
                    "cannot read the custom resource definitions yet"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    let server = server.clone();
    tokio::spawn(async move {
        let stop = server.stopped().clone();
        tokio::select! {
            () = go_on(&server, known, first) => {}
            () = stop.cancelled() => {}
        }
    });
}

async fn go_on(server: &Arc<ApiServer>, mut known: Definitions, mut watcher: Watcher) {
    loop {
        match watcher.ready(BATCH) {
            Ok(events) if events.is_empty() => {
                watcher.changed().await;
                if watcher.is_over() {
                    return;
                }
            }
            Ok(events) => {
                events.iter().for_each(|event| known.take(event));
                if let Err(error) = known.settle(server).await {
                    tracing::warn!(error = error.message(), "cannot write the status of a definition");
                    // What was not written is tried again with the next look at all of them.
                    tokio::time::sleep(RETRY).await;
                    watcher = restarted(server, &mut known).await;
                }
            }
            Err(_) => watcher = restarted(server, &mut known).await,
        }
    }
}

async fn restarted(server: &Arc<ApiServer>, known: &mut Definitions) -> Watcher {
    loop {
        match begin(server, known).await {
            Ok(watcher) => return watcher,
            Err(error) => {
                tracing::warn!(error = error.message(), "cannot read the custom resource definitions");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn begin(server: &Arc<ApiServer>, known: &mut Definitions) -> Result<Watcher, ApiError> {
    let cache = server.cache.resource(&definitions());
    let (snapshot, watcher) = cache.snapshot_and_watch(ReadAt::Newest).await.map_err(store_error)?;
    known.objects.clear();
    for entry in snapshot.range("", "") {
        known.put(entry)?;
    }
    known.settle(server).await?;
    Ok(watcher)
}

/// What the kinds of a definition follow from.
#[derive(PartialEq, Eq)]
struct Mark {
    uid: String,
    generation: i64,
    accepted: String,
    terminating: bool,
}

/// The definitions as last seen, and what was made of them.
#[derive(Default)]
struct Definitions {
    objects: BTreeMap<String, Value>,
    made: HashMap<String, (Mark, Vec<CustomKind>)>,
    stored: BTreeMap<String, GroupResource>,
    /// By uid.
    going: BTreeSet<String>,
}

impl Definitions {
    fn put(&mut self, entry: &Entry) -> Result<(), ApiError> {
        let corrupt = |error: serde_json::Error| store_error(StoreError::Corrupt(error.to_string()));
        let object = serde_json::from_slice(entry.json()).map_err(corrupt)?;
        self.objects.insert(entry.name().to_owned(), object);
        Ok(())
    }

    fn take(&mut self, event: &CacheEvent) {
        let entry = &event.object;
        if event.kind == ChangeKind::Deleted {
            self.objects.remove(entry.name());
        } else if let Err(error) = self.put(entry) {
            tracing::warn!(
                error = error.message(),
                definition = entry.name(),
                "cannot read a definition"
            );
        }
    }

    /// Serves what is established, writes what is to be said, and sees off what goes.
    async fn settle(&mut self, server: &Arc<ApiServer>) -> Result<(), ApiError> {
        let names: Vec<String> = self.objects.keys().cloned().collect();
        let mut changed = Vec::new();
        for name in names {
            let Some(status) = self.status(server, &name) else {
                continue;
            };
            if let Some(object) = self.objects.get_mut(&name) {
                object["status"] = status;
                changed.push(name);
            }
        }
        // Before anybody reads that they are established.
        self.serve(server);
        for name in changed {
            self.write(server, &name).await?;
        }
        for (name, object) in &self.objects {
            let finalizers = list(object, "/metadata/finalizers");
            let waits = !text(object, "/metadata/deletionTimestamp").is_empty()
                && finalizers.iter().any(|f| f == cleanup::FINALIZER);
            if waits && self.going.insert(text(object, "/metadata/uid").to_owned()) {
                tokio::spawn(cleanup::run(server.clone(), name.clone(), object.clone()));
            }
        }
        let objects = &self.objects;
        self.going
            .retain(|uid| objects.values().any(|object| text(object, "/metadata/uid") == uid));
        Ok(())
    }

    /// The status that a definition should have, if another than it has.
    fn status(&self, server: &ApiServer, name: &str) -> Option<Value> {
        let object = self.objects.get(name)?;
        if !text(object, "/metadata/deletionTimestamp").is_empty() {
            return None;
        }
        settled(object, &self.taken(server, name, object), Timestamp::now())
    }

    /// The names of the group that others have.
    fn taken(&self, server: &ApiServer, name: &str, object: &Value) -> Taken {
        let group = text(object, "/spec/group");
        let mut taken = Taken::default();
        let others = self.objects.iter().filter(|(other, _)| *other != name);
        for (_, other) in others.filter(|(_, other)| text(other, "/spec/group") == group) {
            taken.add_accepted(other);
        }
        for builtin in server.registry.builtin().iter().filter(|kind| kind.gvr.group == group) {
            taken.resources.insert(builtin.gvr.resource.clone());
            taken.resources.insert(builtin.singular.clone());
            taken.resources.extend(builtin.short_names.iter().cloned());
            taken.kinds.insert(builtin.gvk.kind.clone());
            taken.kinds.insert(builtin.list_kind.clone());
        }
        taken
    }

    /// Brings what is served in line with the definitions.
    fn serve(&mut self, server: &ApiServer) {
        let mut dirty = false;
        let established =
            |object: &Value| is_condition_true(object, "Established") || is_condition_true(object, "NamesAccepted");
        let objects = &self.objects;
        self.made.retain(|name, _| {
            let stays = objects.get(name).is_some_and(established);
            dirty |= !stays;
            stays
        });
        for (name, object) in objects.iter().filter(|(_, object)| established(object)) {
            let mark = Mark {
                uid: text(object, "/metadata/uid").to_owned(),
                generation: object
                    .pointer("/metadata/generation")
                    .and_then(Value::as_i64)
                    .unwrap_or(0),
                accepted: object
                    .pointer("/status/acceptedNames")
                    .map(Value::to_string)
                    .unwrap_or_default(),
                terminating: super::is_terminating(object),
            };
            if self.made.get(name).is_some_and(|(made, _)| *made == mark) {
                continue;
            }
            dirty = true;
            self.stored.insert(name.clone(), kinds::storage(object));
            self.made.insert(name.clone(), (mark, kinds::served(object)));
        }
        if !dirty {
            return;
        }
        let mut all: Vec<(&String, &CustomKind)> = Vec::new();
        for (name, (_, kinds)) in &self.made {
            all.extend(kinds.iter().map(|kind| (name, kind)));
        }
        all.sort_by(|a, b| (a.0, &a.1.info.gvr.version).cmp(&(b.0, &b.1.info.gvr.version)));
        server
            .registry
            .replace_custom(all.into_iter().map(|(_, kind)| kind.clone()).collect());
        let made = &self.made;
        self.stored.retain(|name, storage| {
            let stays = made.contains_key(name);
            if !stays {
                // Its watches end; nobody can ask for it any more.
                server.cache.forget(storage);
            }
            stays
        });
    }

    async fn write(&mut self, server: &Arc<ApiServer>, name: &str) -> Result<(), ApiError> {
        let resource = server
            .registry
            .get(&definitions_v1())
            .ok_or_else(ApiError::no_such_path)?;
        let target = Target {
            resource,
            namespace: None,
            name: name.to_owned(),
            subresource: String::new(),
        };
        let taken = match self.objects.get(name) {
            Some(object) => self.taken(server, name, object),
            None => return Ok(()),
        };
        let mut transform = Settle { taken };
        match transaction::run(server, &target, false, &mut transform).await {
            // It is gone; the event comes.
            Err(error) if error.kind() == minato_meta::ErrorKind::NotFound => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

/// Writes the status that follows from the newest state.
struct Settle {
    taken: Taken,
}

#[async_trait]
impl Transform for Settle {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let Some(current) = current else {
            return Ok(Change::Keep);
        };
        let Some(status) = settled(&current.object, &self.taken, Timestamp::now()) else {
            return Ok(Change::Keep);
        };
        let mut object = current.object.clone();
        object["status"] = status;
        Ok(Change::Put {
            object,
            effects: Effects::default(),
        })
    }
}
