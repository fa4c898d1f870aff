//! Sees the objects of a definition off that is being deleted, and then lets the definition go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use minato_auth::UserInfo;
use minato_meta::{ApiError, ErrorKind};
use minato_storage::cache::ReadAt;
use serde_json::Value;

use super::names::{condition, put_condition};
use super::{definitions_v1, kinds};
use crate::endpoints::options::DeleteOptions;
use crate::endpoints::transaction::{self, Change, Effects, Stored, Transform, store_error};
use crate::endpoints::{Target, delete, metadata};
use crate::request::Warnings;
use crate::server::ApiServer;

/// Keeps a definition until its objects are gone.
pub(super) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Deletes that run at once.
const CONCURRENCY: usize = 16;
/// Objects with finalizers of their own are waited for; every change of them wakes, and this for what is missed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the definition's objects are gone and its finalizer is taken away, or the server stops.
pub(super) async fn run(server: Arc<ApiServer>, name: String, definition: Value) {
    let all = async {
        while let Err(error) = clean(&server, &name, &definition).await {
            tracing::warn!(
                definition = name,
                error = error.message(),
                "cannot delete the objects of a definition yet"
            );
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = all => {}
        () = server.stopped().cancelled() => {}
    }
}

async fn clean(server: &Arc<ApiServer>, name: &str, definition: &Value) -> Result<(), ApiError> {
    let progress = condition(
        "Terminating",
        true,
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    write(
        server,
        name,
        Mark {
            condition: progress,
            last: false,
        },
    )
    .await?;
    if let Some(kind) = kinds::stored(definition) {
        let target = Target {
            resource: kind.info,
            namespace: None,
            name: String::new(),
            subresource: String::new(),
        };
        delete_all(server, &target).await?;
    }
    let done = condition(
        "Terminating",
        false,
        "InstanceDeletionCompleted",
        "removed all instances",
    );
    write(
        server,
        name,
        Mark {
            condition: done,
            last: true,
        },
    )
    .await
}

/// Deletes what there is, until there is nothing.
async fn delete_all(server: &Arc<ApiServer>, target: &Target) -> Result<(), ApiError> {
    let cache = server.cache.resource(&target.resource.storage);
    loop {
        let (snapshot, mut watcher) = cache.snapshot_and_watch(ReadAt::Newest).await.map_err(store_error)?;
        let entries: Vec<_> = snapshot.range("", "").cloned().collect();
        if entries.is_empty() {
            return Ok(());
        }
        let user = UserInfo {
            name: "system:apiserver".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..UserInfo::default()
        };
        let deletes = futures::stream::iter(entries).map(|entry| {
            let one = Target {
                namespace: target.resource.namespaced.then(|| entry.namespace().to_owned()),
                ..target.named(entry.name())
            };
            let user = &user;
            async move {
                let (warnings, options) = (Warnings::default(), DeleteOptions::default());
                delete::delete_object(server, &one, user, &warnings, &options).await
            }
        });
        let results: Vec<_> = deletes.buffer_unordered(CONCURRENCY).collect().await;
        for result in results {
            if let Err(error) = result
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        let _timeout = tokio::time::timeout(LOOK_AGAIN, watcher.changed()).await;
    }
}

async fn write(server: &Arc<ApiServer>, name: &str, mut mark: Mark) -> Result<(), ApiError> {
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
    match transaction::run(server, &target, false, &mut mark).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Writes a condition; `last` takes the finalizer away, too.
struct Mark {
    condition: Value,
    last: bool,
}

#[async_trait]
impl Transform for Mark {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let Some(current) = current.filter(|current| metadata::is_deleting(&current.object)) else {
            return Ok(Change::Keep);
        };
        let mut object = current.object.clone();
        if let Some(status) = object.get_mut("status") {
            put_condition(status, self.condition.clone(), Timestamp::now());
        }
        let effects = Effects::default();
        if self.last {
            let rest = metadata::finalizers(&object).into_iter().filter(|f| *f != FINALIZER);
            let rest: Vec<String> = rest.map(str::to_owned).collect();
            let is_over = rest.is_empty();
            metadata::set_finalizers(&mut object, rest);
            if is_over {
                return Ok(Change::Delete { object, effects });
            }
        }
        Ok(Change::Put { object, effects })
    }
}
