//! `DefaultStorageClass` and `DefaultIngressClass`: objects that name no class get the one that is marked as the default.
//! Source: <https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass>.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::{Value, json};

use crate::objects::{all_cached, spec, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

/// The name of the class that has one of these annotations: of several the newest, then the first by name.
fn default_class(reader: &dyn ClusterReader, classes: &GroupResource, annotations: &[&str]) -> Option<String> {
    let is_default = |class: &Value| {
        let all = class.pointer("/metadata/annotations");
        annotations
            .iter()
            .any(|key| all.and_then(|all| all.get(*key)).and_then(Value::as_str) == Some("true"))
    };
    let mut marked = all_cached(reader, classes, None);
    marked.retain(is_default);
    marked.sort_by_key(|class| {
        let made = text(class, "/metadata/creationTimestamp").to_owned();
        (Reverse(made), text(class, "/metadata/name").to_owned())
    });
    marked.first().map(|class| text(class, "/metadata/name").to_owned())
}

fn creates(request: &AdmissionRequest<'_>, group: &str, resource: &str) -> bool {
    request.operation == Operation::Create
        && request.subresource.is_empty()
        && request.resource.group == group
        && request.resource.resource == resource
}

/// Whether an annotation of the object names a class, as was done before there was a field.
fn has_annotation(object: &Value, key: &str) -> bool {
    object
        .pointer("/metadata/annotations")
        .is_some_and(|all| all.get(key).is_some())
}

fn set_class(object: &mut Value, field: &str, class: Option<String>) {
    if let (Some(class), Some(fields)) = (class, spec(object)) {
        fields.insert(field.to_owned(), json!(class));
    }
}

/// Gives claims the default storage class.
pub struct DefaultStorageClass {
    reader: Arc<dyn ClusterReader>,
}

impl DefaultStorageClass {
    /// Looks classes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }
}

#[async_trait]
impl AdmissionPlugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "", "persistentvolumeclaims")
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // An empty class is a choice too: none.
        let named = request
            .object
            .pointer("/spec/storageClassName")
            .is_some_and(|class| !class.is_null());
        if named || has_annotation(&request.object, "volume.beta.kubernetes.io/storage-class") {
            return Ok(());
        }
        let annotations = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        let classes = GroupResource::new("storage.k8s.io", "storageclasses");
        let class = default_class(self.reader.as_ref(), &classes, &annotations);
        set_class(&mut request.object, "storageClassName", class);
        Ok(())
    }
}

/// Gives ingresses the default ingress class.
pub struct DefaultIngressClass {
    reader: Arc<dyn ClusterReader>,
}

impl DefaultIngressClass {
    /// Looks classes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }
}

#[async_trait]
impl AdmissionPlugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "networking.k8s.io", "ingresses")
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let named = request
            .object
            .pointer("/spec/ingressClassName")
            .is_some_and(|class| !class.is_null());
        if named || has_annotation(&request.object, "kubernetes.io/ingress.class") {
            return Ok(());
        }
        let classes = GroupResource::new("networking.k8s.io", "ingressclasses");
        let annotations = ["ingressclass.kubernetes.io/is-default-class"];
        let class = default_class(self.reader.as_ref(), &classes, &annotations);
        set_class(&mut request.object, "ingressClassName", class);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use minato_meta::MemoryReader;

    use super::*;
    use crate::tests::create;

    fn reader() -> Arc<MemoryReader> {
        let reader = MemoryReader::new();
        for (name, made, marked) in [
            ("a", "2026-01-01T00:00:00Z", "true"),
            ("b", "2026-01-02T00:00:00Z", "true"),
            ("c", "2026-01-03T00:00:00Z", "false"),
        ] {
            for (group, resource, key) in [
                ("storage.k8s.io", "storageclasses", "storageclass"),
                ("networking.k8s.io", "ingressclasses", "ingressclass"),
            ] {
                let mut class = json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": {}}});
                class["metadata"]["annotations"][format!("{key}.kubernetes.io/is-default-class")] = json!(marked);
                reader.put(&GroupResource::new(group, resource), class);
            }
        }
        Arc::new(reader)
    }

    #[tokio::test]
    async fn the_newest_default_is_given_to_those_who_name_none() {
        let storage = DefaultStorageClass::new(reader());
        let ingress = DefaultIngressClass::new(reader());
        let claims = ("", "persistentvolumeclaims");
        let class = |object: Value| create(&storage, claims, object);
        assert_eq!(
            class(json!({"spec": {}})).await.unwrap()["spec"]["storageClassName"],
            "b"
        );
        let none = json!({"spec": {"storageClassName": ""}});
        assert_eq!(class(none.clone()).await.unwrap(), none);
        let made = create(&ingress, ("networking.k8s.io", "ingresses"), json!({"spec": {}}))
            .await
            .unwrap();
        assert_eq!(made["spec"]["ingressClassName"], "b");
        let old = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}, "spec": {}});
        assert_eq!(
            create(&ingress, ("networking.k8s.io", "ingresses"), old.clone())
                .await
                .unwrap(),
            old
        );
    }
}
