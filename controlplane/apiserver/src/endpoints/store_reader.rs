//! The server's view of the cluster until the watch cache serves it: consistent reads only.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, CachedObject, Change, ClusterReader, GroupResource, Revision};
use minato_storage::{Store, key, object};

use super::transaction::store_error;
use crate::registry::Registry;

pub(crate) struct StoreReader {
    store: Arc<dyn Store>,
}

impl StoreReader {
    pub(crate) fn new(store: Arc<dyn Store>, _registry: Arc<Registry>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl ClusterReader for StoreReader {
    fn get(&self, _: &GroupResource, _: Option<&str>, _: &str) -> Option<CachedObject> {
        None
    }

    fn list(&self, _: &GroupResource, _: Option<&str>) -> Vec<CachedObject> {
        Vec::new()
    }

    fn revision(&self, _: &GroupResource) -> Revision {
        Revision(0)
    }

    fn changes_since(&self, _: &GroupResource, _: Revision) -> Option<(Vec<Change>, Revision)> {
        None
    }

    async fn get_consistent(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<CachedObject>, ApiError> {
        let key = key::object_key(resource, namespace, name);
        let read = self.store.get(&key).await.map_err(store_error)?;
        Ok(read.kv.map(|kv| CachedObject {
            revision: kv.mod_revision,
            json: object::with_revision(&kv.value, kv.mod_revision),
        }))
    }
}
