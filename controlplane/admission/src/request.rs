//! What a plug-in gets to see and to change.

use async_trait::async_trait;
use minato_auth::UserInfo;
use minato_meta::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

/// The kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the four operations of admission, by name")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// One write on its way to the store.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// What is done.
    pub operation: Operation,
    /// Kind of the object in the request.
    pub kind: GroupVersionKind,
    /// Resource of the request's path.
    pub resource: GroupVersionResource,
    /// Subresource, empty for none.
    pub subresource: &'a str,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name; empty for a create whose name the server makes.
    pub name: &'a str,
    /// The requester.
    pub user: &'a UserInfo,
    /// Nothing is stored and no side effect may happen.
    pub dry_run: bool,
    /// The new object; `Null` for deletes. Mutating plug-ins change it in place.
    pub object: Value,
    /// The object as stored; `Null` for creates.
    pub old_object: &'a Value,
    /// The operation's options object (`CreateOptions`, …).
    pub options: Value,
    /// Texts for the client's `Warning` headers.
    pub warnings: Vec<String>,
    /// Annotations for the audit event, `plugin/key` to value.
    pub audit_annotations: Vec<(String, String)>,
}

/// What the second phase has to tell beside its verdict.
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts for the client's `Warning` headers.
    pub warnings: Vec<String>,
    /// Annotations for the audit event, `plugin/key` to value.
    pub audit_annotations: Vec<(String, String)>,
}

/// A built-in admission plug-in. The default of either phase does nothing.
#[async_trait]
pub trait AdmissionPlugin: Send + Sync + 'static {
    /// Upstream's plug-in name, such as `ServiceAccount`.
    fn name(&self) -> &'static str;

    /// Whether the plug-in has anything to say about such a request; cheap.
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool;

    /// First phase: may change `request.object`.
    ///
    /// # Errors
    /// The write is refused; the error is what the client gets.
    async fn admit(&self, _request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// [`AdmissionPlugin::validate`] for plug-ins that have something to tell; the server calls this one.
    ///
    /// # Errors
    /// The write is refused; the error is what the client gets.
    async fn inspect(&self, request: &AdmissionRequest<'_>, _notes: &mut Notes) -> Result<(), ApiError> {
        self.validate(request).await
    }

    /// Second phase: may only refuse. Runs on the object as it would be stored.
    ///
    /// # Errors
    /// The write is refused; the error is what the client gets.
    async fn validate(&self, _request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}
