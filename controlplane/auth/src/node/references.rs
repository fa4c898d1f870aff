//! What pods and volumes refer to.

use serde_json::Value;

/// Kinds that are reached through a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ServiceAccount,
    ResourceClaim,
}

/// Namespace and name.
pub(super) type Place = (String, String);

const MIRROR: &str = "kubernetes.io/config.mirror";

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str).filter(|t| !t.is_empty())
}

fn items<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// Kinds and names of what a pod refers to in its namespace; each once.
pub(super) fn of_pod(pod: &Value) -> Vec<(Kind, String)> {
    let mut all = Vec::new();
    let annotations = pod.pointer("/metadata/annotations");
    if annotations.and_then(|a| a.get(MIRROR)).is_some() {
        // A mirror pod is the node's own writing: it must not open doors.
        return all;
    }
    let mut add = |kind: Kind, name: Option<&str>| {
        if let Some(name) = name {
            all.push((kind, name.to_owned()));
        }
    };
    add(Kind::ServiceAccount, text(pod, "/spec/serviceAccountName"));
    for reference in items(pod, "/spec/imagePullSecrets") {
        add(Kind::Secret, text(reference, "/name"));
    }
    for list in ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"] {
        for container in items(pod, list) {
            for source in items(container, "/envFrom") {
                add(Kind::Secret, text(source, "/secretRef/name"));
                add(Kind::ConfigMap, text(source, "/configMapRef/name"));
            }
            for variable in items(container, "/env") {
                add(Kind::Secret, text(variable, "/valueFrom/secretKeyRef/name"));
                add(Kind::ConfigMap, text(variable, "/valueFrom/configMapKeyRef/name"));
            }
        }
    }
    for volume in items(pod, "/spec/volumes") {
        add(Kind::ConfigMap, text(volume, "/configMap/name"));
        add(Kind::Claim, text(volume, "/persistentVolumeClaim/claimName"));
        for path in [
            "/secret/secretName",
            "/azureFile/secretName",
            "/csi/nodePublishSecretRef/name",
        ] {
            add(Kind::Secret, text(volume, path));
        }
        for driver in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            add(Kind::Secret, text(volume, &format!("/{driver}/secretRef/name")));
        }
        for source in items(volume, "/projected/sources") {
            add(Kind::Secret, text(source, "/secret/name"));
            add(Kind::ConfigMap, text(source, "/configMap/name"));
        }
        if volume.get("ephemeral").is_some_and(|e| !e.is_null())
            && let (Some(pod), Some(volume)) = (text(pod, "/metadata/name"), text(volume, "/name"))
        {
            add(Kind::Claim, Some(&format!("{pod}-{volume}")));
        }
    }
    for claim in items(pod, "/spec/resourceClaims") {
        add(Kind::ResourceClaim, text(claim, "/resourceClaimName"));
    }
    for claim in items(pod, "/status/resourceClaimStatuses") {
        add(Kind::ResourceClaim, text(claim, "/resourceClaimName"));
    }
    all.sort();
    all.dedup();
    all
}

/// A volume's claim (namespace, name) and the secrets that its driver needs.
pub(super) fn of_volume(volume: &Value) -> Option<(Place, Vec<Place>)> {
    let claim = (
        text(volume, "/spec/claimRef/namespace")?.to_owned(),
        text(volume, "/spec/claimRef/name")?.to_owned(),
    );
    let mut secrets = Vec::new();
    for source in volume.get("spec").and_then(Value::as_object)?.values() {
        let Some(fields) = source.as_object() else {
            continue;
        };
        for (key, reference) in fields {
            if key != "secretRef" && !key.ends_with("SecretRef") {
                continue;
            }
            if let Some(name) = text(reference, "/name") {
                let namespace = text(reference, "/namespace").unwrap_or(&claim.0);
                secrets.push((namespace.to_owned(), name.to_owned()));
            }
        }
    }
    if let Some(name) = text(volume, "/spec/azureFile/secretName") {
        let namespace = text(volume, "/spec/azureFile/secretNamespace").unwrap_or(&claim.0);
        secrets.push((namespace.to_owned(), name.to_owned()));
    }
    secrets.sort();
    secrets.dedup();
    Some((claim, secrets))
}
