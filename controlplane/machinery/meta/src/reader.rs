//! What authorizers and admission plug-ins may see of the cluster: the API server's own caches, never the store.

use async_trait::async_trait;
use bytes::Bytes;

use crate::{ApiError, GroupResource, Revision};

/// One object as the cache keeps it: canonical JSON with the `resourceVersion` in it, and the revision of its last write.
#[derive(Debug, Clone)]
pub struct CachedObject {
    /// Revision of the last write.
    pub revision: Revision,
    /// The object in its storage version, as JSON.
    pub json: Bytes,
}

/// A change of one object since some revision.
#[derive(Debug, Clone)]
pub enum Change {
    /// The object was created or updated.
    Applied(CachedObject),
    /// The object was deleted; holds its last state, with the revision of the delete.
    Deleted(CachedObject),
}

/// Read access to the cluster's objects from within the API server.
///
/// The cached reads never block and may trail the store by the watch latency (well under a millisecond for the embedded
/// store). Use [`ClusterReader::get_consistent`] where a stale "absent" would be wrong, as upstream does for namespaces.
#[async_trait]
pub trait ClusterReader: Send + Sync + 'static {
    /// The cached object, or `None` when the cache does not hold it.
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<CachedObject>;

    /// All cached objects of a resource, in key order; of one namespace when given.
    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<CachedObject>;

    /// The revision up to which the cache of `resource` is complete. Zero when it is not served or not yet filled.
    fn revision(&self, resource: &GroupResource) -> Revision;

    /// What changed after `since`, oldest first, and the revision reached. `None` when the history no longer reaches
    /// back that far: call [`ClusterReader::list`] and start over.
    fn changes_since(&self, resource: &GroupResource, since: Revision) -> Option<(Vec<Change>, Revision)>;

    /// Reads through to the store; linearizable.
    ///
    /// # Errors
    /// Store failures, as the `Status` that the client would see.
    async fn get_consistent(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<CachedObject>, ApiError>;
}
