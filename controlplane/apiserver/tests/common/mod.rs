//! A server over a store in memory, with a few kinds and everything allowed.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use minato_apiserver::{ApiServer, ApiServerConfig, Deps, ServiceConfig};
use minato_auth::{
    Attributes, Authenticated, Authenticator, Authorizer, Credentials, Decision, IssuedToken, RulesFor, TokenIssuer,
    TokenSpec, UserInfo,
};
use minato_meta::{ApiError, GroupResource, GroupVersionKind, GroupVersionResource, Revision};
use minato_rules::{ResourceInfo, Strategy, Subresource, Verb};
use minato_storage::cache::CacheOptions;
use minato_storage::{
    Commit, CommitError, EmbeddedOptions, EmbeddedStore, Event, EventKind, Expect, KeyValue, ListPage, ListRequest, Op,
    Read, Store, StoreError, Txn, WatchItem, WatchStream,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

/// Everything in memory, with all its events; no reads of the past.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<(u64, BTreeMap<String, KeyValue>)>,
    events: Mutex<Vec<Event>>,
    written: watch::Sender<()>,
}

impl Memory {
    fn record(&self, kv: KeyValue, previous: Option<KeyValue>, deleted: bool) {
        let kind = match &previous {
            _ if deleted => EventKind::Deleted,
            Some(_) => EventKind::Updated,
            None => EventKind::Created,
        };
        self.events.lock().push(Event { kind, kv, previous });
    }

    fn events(&self, prefix: &str, after: Revision) -> Vec<Event> {
        let events = self.events.lock();
        let events = events
            .iter()
            .filter(|e| e.kv.mod_revision > after && e.kv.key.starts_with(prefix));
        events.cloned().collect()
    }
}

/// The trait is for the shared store, since its watches outlive the call.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Memory>);

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Read, StoreError> {
        let state = self.0.state.lock();
        Ok(Read {
            kv: state.1.get(key).cloned(),
            revision: Revision(state.0),
        })
    }
    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let state = self.0.state.lock();
        let items = state.1.range(request.prefix.clone()..);
        let items: Vec<_> = items
            .take_while(|(k, _)| k.starts_with(&request.prefix))
            .map(|(_, v)| v.clone())
            .collect();
        Ok(ListPage {
            items,
            more: false,
            remaining: 0,
            revision: Revision(state.0),
        })
    }
    async fn commit(&self, txn: Txn) -> Result<Commit, CommitError> {
        let mut state = self.0.state.lock();
        let holds = |c: &minato_storage::Compare| match c.expect {
            Expect::Absent => !state.1.contains_key(&c.key),
            Expect::ModRevision(r) => state.1.get(&c.key).is_some_and(|kv| kv.mod_revision == r),
        };
        if !txn.compare.iter().all(holds) {
            return Err(CommitError::Conflict {
                current: txn.compare.iter().map(|c| state.1.get(&c.key).cloned()).collect(),
                revision: Revision(state.0),
            });
        }
        state.0 += 1;
        let revision = Revision(state.0);
        for op in txn.ops {
            match op {
                Op::Put { key, value, .. } => {
                    let previous = state.1.get(&key).cloned();
                    let create_revision = state.1.get(&key).map_or(revision, |kv| kv.create_revision);
                    let kv = KeyValue {
                        key: key.clone(),
                        value,
                        create_revision,
                        mod_revision: revision,
                    };
                    state.1.insert(key, kv.clone());
                    self.0.record(kv, previous, false);
                }
                Op::Delete { key } => {
                    let previous = state.1.remove(&key);
                    let gone = previous.is_some();
                    let kv = KeyValue {
                        key,
                        value: Bytes::new(),
                        create_revision: Revision(0),
                        mod_revision: revision,
                    };
                    if gone {
                        self.0.record(kv, previous, true);
                    }
                }
            }
        }
        drop(state);
        self.0.written.send_replace(());
        Ok(Commit { revision })
    }
    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        let start = (self.0.clone(), prefix.to_owned(), after, self.0.written.subscribe());
        Ok(Box::pin(futures::stream::unfold(start, |mut watch| async move {
            loop {
                let revision = Revision(watch.0.state.lock().0);
                let events = watch.0.events(&watch.1, watch.2);
                if let Some(last) = events.last() {
                    watch.2 = last.kv.mod_revision;
                    return Some((Ok(WatchItem::Events(events)), watch));
                }
                if revision > watch.2 {
                    watch.2 = revision;
                    return Some((Ok(WatchItem::Progress(revision)), watch));
                }
                watch.3.changed().await.ok()?;
            }
        })))
    }
    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(Revision(self.0.state.lock().0))
    }
    async fn request_progress(&self) -> Result<(), StoreError> {
        self.0.written.send_replace(());
        Ok(())
    }
    async fn compact(&self, _: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Tokens are user names; one word is refused.
pub(crate) struct Names;

#[async_trait]
impl Authenticator for Names {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        match credentials.bearer_token {
            None if !credentials.client_certificates.is_empty() => Ok(Some(Authenticated {
                user: user("certified"),
                audiences: Vec::new(),
            })),
            None => Ok(None),
            Some("wrong") => Err(ApiError::unauthorized()),
            Some(name) => Ok(Some(Authenticated {
                user: user(name),
                audiences: Vec::new(),
            })),
        }
    }
}

/// Tokens that say what they were asked for.
pub(crate) struct Issuer;

#[async_trait]
impl TokenIssuer for Issuer {
    async fn issue(&self, spec: &TokenSpec) -> Result<IssuedToken, ApiError> {
        Ok(IssuedToken {
            token: format!("{spec:?}"),
            expires: Timestamp::now(),
            audiences: spec.audiences.clone(),
        })
    }
}

/// Everybody may do everything, but for `nobody` and the anonymous.
pub(crate) struct Most;

#[async_trait]
impl Authorizer for Most {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match attributes.user.name.as_str() {
            "nobody" | "system:anonymous" if attributes.is_resource => Decision::NoOpinion(String::new()),
            _ => Decision::Allow(String::new()),
        }
    }
    async fn rules_for(&self, _: &UserInfo, _: &str) -> RulesFor {
        RulesFor::default()
    }
}

pub(crate) fn user(name: &str) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        ..UserInfo::default()
    }
}

struct Plain {
    generation: bool,
    grace: Option<u64>,
}

impl Strategy for Plain {
    fn validate_name(&self, name: &str) -> Vec<String> {
        if name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b))
        {
            Vec::new()
        } else {
            vec!["not a name".to_owned()]
        }
    }
    fn has_generation(&self) -> bool {
        self.generation
    }
    fn graceful_deletion_seconds(&self, object: &Value) -> Option<u64> {
        let scheduled = object.pointer("/spec/nodeName").is_some();
        self.grace.map(|g| if scheduled { g } else { 0 })
    }
}

const CLUSTER_SCOPED: &[&str] = &[
    "ClusterRole",
    "Namespace",
    "PriorityClass",
    "SelfSubjectReview",
    "SubjectAccessReview",
    "TokenReview",
];

const SUBRESOURCES: &[(&str, &str)] = &[
    ("*", "status"),
    ("deployments", "scale"),
    ("pods", "binding"),
    ("pods", "eviction"),
    ("pods", "ephemeralcontainers"),
    ("pods", "exec"),
    ("namespaces", "finalize"),
    ("serviceaccounts", "token"),
];

pub(crate) fn kind(group: &str, resource: &str, kind: &str, status: bool) -> ResourceInfo {
    let package = if group.is_empty() {
        "core"
    } else {
        group.trim_end_matches(".k8s.io")
    };
    ResourceInfo {
        gvr: GroupVersionResource::new(group, "v1", resource),
        gvk: GroupVersionKind::new(group, "v1", kind),
        list_kind: format!("{kind}List"),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: !CLUSTER_SCOPED.contains(&kind),
        verbs: Verb::ALL,
        subresources: SUBRESOURCES
            .iter()
            .filter(|(of, name)| *of == resource || *of == "*" && *name == "status" && status)
            .map(|(_, name)| Subresource {
                name,
                kind: None,
                verbs: &[Verb::Get, Verb::Patch, Verb::Update],
            })
            .collect(),
        definition: format!("io.k8s.api.{package}.v1.{kind}"),
        storage: GroupResource::new(group, resource),
        storage_version: "v1".to_owned(),
        strategy: Arc::new(Plain {
            generation: status,
            grace: (kind == "Pod").then_some(30),
        }),
    }
}

/// A kind with a schema of its own.
fn widgets() -> (ResourceInfo, Option<minato_schema::SchemaRef>) {
    let mut widgets = kind("example.com", "widgets", "Widget", true);
    widgets.definition = String::new();
    let document = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "colour": {"type": "string", "enum": ["red", "blue"]},
                },
            },
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    });
    let schema = minato_schema::Schema::custom_resource(&document, widgets.gvk.clone()).unwrap();
    (widgets, Some(schema.into()))
}

/// One kind, two groups, one place in the store.
fn events(group: &str, version: &str) -> ResourceInfo {
    let mut events = kind(group, "events", "Event", false);
    events.gvr.version = version.to_owned();
    events.storage = GroupResource::new("", "events");
    events
}

pub(crate) fn server() -> Arc<ApiServer> {
    server_on(Arc::new(MemoryStore::default()))
}

/// A server on the store that keeps history.
pub(crate) fn embedded() -> (Arc<ApiServer>, EmbeddedStore, tempfile::TempDir) {
    embedded_with(CacheOptions::default())
}

pub(crate) fn embedded_with(options: CacheOptions) -> (Arc<ApiServer>, EmbeddedStore, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = EmbeddedStore::open(&path, EmbeddedOptions::default()).unwrap();
    let server = server_with(Arc::new(store.clone()), options);
    (server, store, directory)
}

pub(crate) fn server_on(store: Arc<dyn Store>) -> Arc<ApiServer> {
    server_with(store, CacheOptions::default())
}

pub(crate) fn server_with(store: Arc<dyn Store>, watch_cache: CacheOptions) -> Arc<ApiServer> {
    let services = ServiceConfig {
        cluster_ip_ranges: vec!["10.96.0.0/27".parse().unwrap()],
        node_port_range: (30000, 30009),
        advertise_address: "192.0.2.1".parse().unwrap(),
        advertise_port: 6443,
    };
    let config = ApiServerConfig {
        services: Some(services),
        watch_cache,
        ..ApiServerConfig::default()
    };
    ApiServer::new(config, store, |_| Deps {
        authenticator: Arc::new(Names),
        authorizer: Arc::new(Most),
        admission: Vec::new(),
        egress: None,
        kubelet: None,
        node_listener: None,
        token_issuer: Some(Arc::new(Issuer)),
        extra_resources: [
            kind("", "configmaps", "ConfigMap", false),
            kind("", "pods", "Pod", true),
            kind("", "namespaces", "Namespace", true),
            kind("apps", "deployments", "Deployment", true),
            kind("", "serviceaccounts", "ServiceAccount", false),
            kind("", "services", "Service", true),
            events("", "v1"),
            events("events.k8s.io", "v1"),
            kind("", "endpoints", "Endpoints", false),
            kind("discovery.k8s.io", "endpointslices", "EndpointSlice", false),
            kind("scheduling.k8s.io", "priorityclasses", "PriorityClass", false),
            kind("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false),
            kind("", "bindings", "Binding", false),
            kind("policy", "poddisruptionbudgets", "PodDisruptionBudget", true),
            kind("authentication.k8s.io", "tokenreviews", "TokenReview", false),
            kind(
                "authentication.k8s.io",
                "selfsubjectreviews",
                "SelfSubjectReview",
                false,
            ),
            kind(
                "authorization.k8s.io",
                "subjectaccessreviews",
                "SubjectAccessReview",
                false,
            ),
        ]
        .into_iter()
        .map(|info| (info, None))
        .chain([widgets()])
        .collect(),
        bootstrap_objects: vec![json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:test"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        })],
    })
}

/// Sends a request as `admin` and returns code and body.
pub(crate) async fn call(server: &Arc<ApiServer>, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    call_typed(server, method, path, "application/json", body).await
}

/// Sends a body of any type.
pub(crate) async fn call_typed(
    server: &Arc<ApiServer>,
    method: Method,
    path: &str,
    content_type: &str,
    body: String,
) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "tester/1.0")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = server.service_as(user("admin")).oneshot(request).await.unwrap();
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
}
