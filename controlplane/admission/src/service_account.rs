//! `ServiceAccount`: every pod has an account, and finds its token, the cluster's certificates and its namespace mounted.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#serviceaccount-admission-controller>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::{Value, json};

use crate::objects::{creates_pod, is_mirror, list, parse, spec, text};
use crate::{AdmissionPlugin, AdmissionRequest};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Upstream's: an hour and seven seconds, by which it knows tokens that nobody chose a life for.
const TOKEN_SECONDS: u32 = 3607;

/// See the module.
pub struct ServiceAccount {
    reader: Arc<dyn ClusterReader>,
}

impl ServiceAccount {
    /// Looks accounts up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    async fn account(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let accounts = GroupResource::new("", "serviceaccounts");
        let found = match self.reader.get(&accounts, Some(namespace), name) {
            Some(object) => Some(object),
            None => self.reader.get_consistent(&accounts, Some(namespace), name).await?,
        };
        Ok(found.and_then(|object| parse(&object.json)))
    }
}

#[async_trait]
impl AdmissionPlugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates_pod(request)
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if is_mirror(&request.object) {
            return static_pod(request);
        }
        if text(&request.object, "/spec/serviceAccountName").is_empty() {
            let legacy = text(&request.object, "/spec/serviceAccount").to_owned();
            let name = if legacy.is_empty() {
                "default".to_owned()
            } else {
                legacy
            };
            if let Some(fields) = spec(&mut request.object) {
                fields.insert("serviceAccountName".to_owned(), json!(name));
            }
        }
        let name = text(&request.object, "/spec/serviceAccountName").to_owned();
        if let Some(fields) = spec(&mut request.object) {
            fields.insert("serviceAccount".to_owned(), json!(name));
        }
        let Some(account) = self.account(request.namespace, &name).await? else {
            let namespace = request.namespace;
            let why =
                format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
            return Err(ApiError::forbidden(
                &request.resource.group_resource(),
                request.name,
                why,
            ));
        };
        if wants_token(&request.object, &account) {
            mount_token(&mut request.object);
        }
        if list(&request.object, "/spec/imagePullSecrets").is_empty()
            && let secrets = list(&account, "/imagePullSecrets")
            && !secrets.is_empty()
            && let Some(fields) = spec(&mut request.object)
        {
            fields.insert("imagePullSecrets".to_owned(), json!(secrets));
        }
        Ok(())
    }
}

/// A static pod is its node's own business: it has no account and no secrets.
fn static_pod(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let refuse = |why: &str| {
        Err(ApiError::forbidden(
            &request.resource.group_resource(),
            request.name,
            why,
        ))
    };
    if !text(&request.object, "/spec/serviceAccountName").is_empty() {
        return refuse("a mirror pod may not reference service accounts");
    }
    let volumes = list(&request.object, "/spec/volumes").iter();
    let secret = |volume: &Value| volume.get("secret").is_some();
    let token = |volume: &Value| {
        list(volume, "/projected/sources")
            .iter()
            .any(|s| s.get("serviceAccountToken").is_some())
    };
    if volumes.clone().any(secret) {
        return refuse("a mirror pod may not reference secrets");
    }
    if volumes.clone().any(token) {
        return refuse("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The pod's word counts before the account's.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let pod = pod
        .pointer("/spec/automountServiceAccountToken")
        .and_then(Value::as_bool);
    let account = account
        .pointer("/automountServiceAccountToken")
        .and_then(Value::as_bool);
    pod.or(account).unwrap_or(true)
}

fn has_mount(container: &Value) -> bool {
    list(container, "/volumeMounts")
        .iter()
        .any(|mount| text(mount, "/mountPath") == MOUNT_PATH)
}

/// Adds the volume, and a mount in every container that has none there.
fn mount_token(pod: &mut Value) {
    let kinds = ["initContainers", "containers"];
    let all = || kinds.iter().flat_map(|kind| list(pod, &format!("/spec/{kind}")));
    if all().all(has_mount) {
        return;
    }
    let volume = volume_name(pod);
    let Some(fields) = spec(pod) else { return };
    for kind in kinds {
        let containers = fields.get_mut(kind).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter(|container| !has_mount(container))
        {
            let Some(container) = container.as_object_mut() else {
                continue;
            };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
            }
        }
    }
    let volumes = fields.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(token_volume(&volume));
    }
}

fn volume_name(pod: &Value) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    loop {
        let suffix: String = (0..5)
            .map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]))
            .collect();
        let name = format!("kube-api-access-{suffix}");
        if list(pod, "/spec/volumes")
            .iter()
            .all(|volume| text(volume, "/name") != name)
        {
            return name;
        }
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}
