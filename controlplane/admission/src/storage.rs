//! `StorageObjectInUseProtection` and `PersistentVolumeClaimResize`.
//! Source: <https://kubernetes.io/docs/concepts/storage/persistent-volumes/>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource, Quantity};
use serde_json::{Value, json};

use crate::objects::{cached, list, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

/// Keeps storage that is in use from going; a controller takes the finalizers away.
pub struct StorageObjectInUseProtection;

fn finalizer(request: &AdmissionRequest<'_>) -> Option<&'static str> {
    match (request.resource.group.as_str(), request.resource.resource.as_str()) {
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

#[async_trait]
impl AdmissionPlugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Create && request.subresource.is_empty() && finalizer(request).is_some()
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let Some(finalizer) = finalizer(request) else {
            return Ok(());
        };
        if list(&request.object, "/metadata/finalizers")
            .iter()
            .any(|present| present == finalizer)
        {
            return Ok(());
        }
        let mut all = list(&request.object, "/metadata/finalizers").to_vec();
        all.push(json!(finalizer));
        let fields = request.object.as_object_mut();
        let metadata = fields.map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            metadata.insert("finalizers".to_owned(), json!(all));
        }
        Ok(())
    }
}

/// Lets only such claims grow whose class can make volumes larger.
pub struct PersistentVolumeClaimResize {
    reader: Arc<dyn ClusterReader>,
}

impl PersistentVolumeClaimResize {
    /// Looks classes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    fn may_grow(&self, new: &Value, old: &Value) -> bool {
        let class = class(new);
        let classes = GroupResource::new("storage.k8s.io", "storageclasses");
        !class.is_empty()
            && class == self::class(old)
            && cached(self.reader.as_ref(), &classes, None, class)
                .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)))
    }
}

fn class(claim: &Value) -> &str {
    match text(claim, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class") {
        "" => text(claim, "/spec/storageClassName"),
        class => class,
    }
}

fn size(claim: &Value) -> Quantity {
    let size = text(claim, "/spec/resources/requests/storage");
    size.parse().unwrap_or(Quantity::ZERO)
}

#[async_trait]
impl AdmissionPlugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Update
            && request.subresource.is_empty()
            && request.resource.group.is_empty()
            && request.resource.resource == "persistentvolumeclaims"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let (new, old) = (&request.object, request.old_object);
        if size(new) <= size(old) {
            return Ok(());
        }
        let why = if text(old, "/status/phase") != "Bound" {
            "Only bound persistent volume claims can be expanded"
        } else if !self.may_grow(new, old) {
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        } else {
            return Ok(());
        };
        Err(ApiError::forbidden(
            &request.resource.group_resource(),
            request.name,
            why,
        ))
    }
}

#[cfg(test)]
mod tests {
    use minato_meta::MemoryReader;

    use super::*;
    use crate::tests::{create, update};

    #[tokio::test]
    async fn storage_gets_its_finalizer_once() {
        let claims = ("", "persistentvolumeclaims");
        let made = create(&StorageObjectInUseProtection, claims, json!({})).await.unwrap();
        assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
        let again = create(&StorageObjectInUseProtection, claims, made.clone())
            .await
            .unwrap();
        assert_eq!(again, made);
    }

    #[tokio::test]
    async fn claims_grow_where_their_class_lets_them() {
        let reader = MemoryReader::new();
        for (name, expands) in [("grows", true), ("fixed", false)] {
            let class = json!({"metadata": {"name": name}, "allowVolumeExpansion": expands});
            reader.put(&GroupResource::new("storage.k8s.io", "storageclasses"), class);
        }
        let plugin = PersistentVolumeClaimResize::new(Arc::new(reader));
        let claim = |class: &str, size: &str, phase: &str| {
            json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
                "status": {"phase": phase}})
        };
        let resize = |class: &str, phase: &str, from: &str, to: &str| {
            let (new, old) = (claim(class, to, phase), claim(class, from, phase));
            update(&plugin, ("", "persistentvolumeclaims"), new, old)
        };
        assert!(resize("grows", "Bound", "1Gi", "2Gi").await.is_ok());
        assert!(resize("fixed", "Pending", "1Gi", "1024Mi").await.is_ok());
        let pending = resize("grows", "Pending", "1Gi", "2Gi").await.unwrap_err();
        assert!(
            pending.ends_with("Only bound persistent volume claims can be expanded"),
            "{pending}"
        );
        let fixed = resize("fixed", "Bound", "1Gi", "2Gi").await.unwrap_err();
        assert!(
            fixed.contains("only dynamically provisioned pvc can be resized"),
            "{fixed}"
        );
    }
}
