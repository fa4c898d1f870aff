//! What must exist in every cluster, made when the server starts: namespaces, priority classes, the `kubernetes`
//! Service with its endpoints, and what the embedder adds (default roles).
//!
//! All of it goes into a few transactions, so that a fresh cluster is ready in milliseconds; what exists already is left
//! alone, but for roles and bindings, which get back what they lack, and the endpoints, which follow the configuration.

mod objects;
mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use minato_api::KUBERNETES_MINOR;
use minato_meta::{ApiError, GroupVersion, GroupVersionKind};
use minato_storage::{CommitError, Compare, Expect, Op, Txn, object};
use serde_json::Value;

use crate::allocators;
use crate::endpoints::options::{FieldValidation, WriteOptions};
use crate::endpoints::transaction::store_error;
use crate::endpoints::{Target, decode, managed, metadata};
use crate::request::Warnings;
use crate::server::ApiServer;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often the `kubernetes` Service and its endpoints are looked at again, as upstream does.
const ENDPOINTS_INTERVAL: Duration = Duration::from_secs(10);
/// Operations of one transaction; etcd's own limit is 128.
const BATCH: usize = 100;

/// Brings the cluster to that state; retries until it is.
pub(crate) async fn run(server: &Arc<ApiServer>) {
    let mut pause = FIRST_PAUSE;
    let objects = server.bootstrap_objects.lock().clone();
    while let Err(error) = everything(server, &objects).await {
        tracing::warn!(
            error = error.message(),
            minor = KUBERNETES_MINOR,
            "cannot bootstrap the cluster yet"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    // From here on they are in the store: a large part of what an idle control plane would keep.
    *server.bootstrap_objects.lock() = Arc::default();
    if server.config.services.is_some() {
        tokio::spawn(keep_endpoints(server.clone()));
    }
}

async fn everything(server: &Arc<ApiServer>, own: &[Value]) -> Result<(), ApiError> {
    let mut all = objects::namespaces();
    all.extend(objects::priority_classes());
    all.extend(objects::kubernetes_service(server.config.services.as_ref()));
    all.extend(own.iter().cloned());
    ensure(server, all).await
}

/// Somebody may delete or change them; clients inside the cluster depend on them.
async fn keep_endpoints(server: Arc<ApiServer>) {
    loop {
        tokio::select! {
            () = server.stopped().cancelled() => return,
            () = tokio::time::sleep(ENDPOINTS_INTERVAL) => {}
        }
        let wanted = objects::kubernetes_service(server.config.services.as_ref());
        if let Err(error) = ensure(&server, wanted).await {
            tracing::warn!(error = error.message(), "cannot reconcile the kubernetes Service");
        }
    }
}

/// An object on its way into a batch.
struct Entry {
    target: Target,
    sent: Value,
    compare: Vec<Compare>,
    ops: Vec<Op>,
}

/// Creates what is absent, reconciles what exists. Kinds that this server does not serve are left out.
async fn ensure(server: &Arc<ApiServer>, objects: Vec<Value>) -> Result<(), ApiError> {
    let mut entries = Vec::with_capacity(objects.len());
    for object in objects {
        if let Some(entry) = prepare(server, object).await? {
            entries.push(entry);
        }
    }
    let mut batch: Vec<Entry> = Vec::new();
    let mut size = 0;
    for entry in entries {
        if size + entry.ops.len() > BATCH {
            commit(server, std::mem::take(&mut batch)).await?;
            size = 0;
        }
        size += entry.ops.len();
        batch.push(entry);
    }
    commit(server, batch).await
}

/// Commits a batch without the entries that exist already, and reconciles those.
async fn commit(server: &Arc<ApiServer>, mut batch: Vec<Entry>) -> Result<(), ApiError> {
    let mut existing = Vec::new();
    while !batch.is_empty() {
        let txn = Txn {
            compare: batch.iter().flat_map(|e| e.compare.iter().cloned()).collect(),
            ops: batch.iter().flat_map(|e| e.ops.iter().cloned()).collect(),
        };
        match server.store.commit(txn).await {
            Ok(_) => break,
            Err(CommitError::Store(error)) => return Err(store_error(error)),
            Err(CommitError::Conflict { current, .. }) => {
                let mut present = current.iter();
                let mut absent = Vec::new();
                for entry in batch {
                    let taken: Vec<bool> = present
                        .by_ref()
                        .take(entry.compare.len())
                        .map(Option::is_some)
                        .collect();
                    if taken.contains(&true) {
                        existing.push(entry);
                    } else {
                        absent.push(entry);
                    }
                }
                batch = absent;
            }
        }
    }
    for entry in existing {
        reconcile::existing(server, &entry.target, &entry.sent).await?;
    }
    Ok(())
}

/// The write of an absent object. Admission is not asked: these come from the server itself.
async fn prepare(server: &Arc<ApiServer>, sent: Value) -> Result<Option<Entry>, ApiError> {
    let text = |field: &str| sent.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = GroupVersion::parse(text("apiVersion"))
        .ok_or_else(|| ApiError::internal("a bootstrap object has no apiVersion"))?;
    let kind = GroupVersionKind::new(version.group, version.version, text("kind"));
    let Some(resource) = server.registry.by_kind(&kind) else {
        tracing::debug!(kind = kind.kind, "a bootstrap object is of a kind that is not served");
        return Ok(None);
    };
    let target = Target {
        namespace: resource
            .namespaced
            .then(|| metadata::text(&sent, "namespace").to_owned()),
        name: metadata::text(&sent, "name").to_owned(),
        subresource: String::new(),
        resource,
    };
    let warnings = Warnings::default();
    let strictness = decode::Strictness {
        validation: FieldValidation::Strict,
        warnings: &warnings,
    };
    let decoded = minato_codec::Decoded {
        value: sent.clone(),
        duplicates: Vec::new(),
    };
    let mut object = decode::intake(&server.registry, &target.resource, decoded, &strictness)?;
    metadata::settle_namespace(&mut object, &target)?;
    metadata::begin_create(&mut object)?;
    managed::record(
        &server.registry,
        &target.resource,
        "",
        None,
        &mut object,
        &own_options(),
    );
    target.resource.strategy.prepare_for_create(&mut object);
    if target.resource.strategy.has_generation() {
        metadata::of(&mut object)?.insert("generation".to_owned(), Value::from(1));
    }
    let effects = allocators::plan(server, &target.resource, None, &mut object, &warnings).await;
    // An address that is taken is taken by the Service's earlier self, which the batch will find.
    let effects = effects.unwrap_or_default();
    let key = target.key();
    let mut compare = vec![Compare {
        key: key.clone(),
        expect: Expect::Absent,
    }];
    compare.extend(effects.compare);
    let mut ops = vec![Op::Put {
        key,
        value: object::encode(&object).map_err(ApiError::internal)?,
        ttl: None,
    }];
    ops.extend(effects.ops);
    Ok(Some(Entry {
        target,
        sent,
        compare,
        ops,
    }))
}

/// The server's own writes.
fn own_options() -> WriteOptions {
    WriteOptions {
        dry_run: false,
        field_validation: FieldValidation::Ignore,
        field_manager: "kube-apiserver".to_owned(),
        manager_named: true,
        force: false,
    }
}
