//! Keeps protected clusters from being deleted.

use async_trait::async_trait;
use minato_admission::{AdmissionPlugin, AdmissionRequest, Operation};
use minato_api::fleet;
use minato_meta::ApiError;
use serde_json::{Value, json};

/// Refuses to delete a Cluster whose `spec.deletionProtection` is true.
pub struct DeletionProtection;

#[async_trait]
impl AdmissionPlugin for DeletionProtection {
    fn name(&self) -> &'static str {
        "ClusterDeletionProtection"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Delete
            && request.resource.group == fleet::GROUP
            && request.resource.resource == "clusters"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.old_object.pointer("/spec/deletionProtection") == Some(&Value::Bool(true)) {
            let why = json!({"spec": {"deletionProtection": false}});
            return Err(ApiError::forbidden(
                &request.resource.group_resource(),
                request.name,
                format!("the cluster is protected from deletion; patch it with {why} first"),
            ));
        }
        Ok(())
    }
}
