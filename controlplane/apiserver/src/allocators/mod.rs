//! Addresses and ports of Services, allocated in the same transaction as the Service's own write.
//!
//! An allocation is a key of its own (`/allocations/serviceips/10.96.0.1`), put under the condition that it is absent:
//! so an address survives restarts, cannot be given out twice by any number of API servers, and goes with the Service
//! in one step. Source: <https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/>.

mod ports;
mod range;
mod service;

use std::sync::Arc;

use minato_meta::{ApiError, GroupVersionResource};
use minato_rules::ResourceInfo;
use serde_json::Value;

use crate::config::ServiceConfig;
use crate::endpoints::transaction::Effects;
use crate::request::Warnings;
use crate::server::ApiServer;

/// What a write needs allocated and released; fills the object in.
///
/// # Errors
/// 422 for addresses or ports that cannot be given, 500 when a range is exhausted.
pub(crate) async fn plan(
    server: &Arc<ApiServer>,
    resource: &ResourceInfo,
    old: Option<&Value>,
    new: &mut Value,
    _warnings: &Warnings,
) -> Result<Effects, ApiError> {
    match services(server, resource) {
        Some(config) => service::plan(server, config, old, new).await,
        None => Ok(Effects::default()),
    }
}

/// What the deletion of an object releases.
pub(crate) fn release(server: &Arc<ApiServer>, resource: &ResourceInfo, old: &Value) -> Effects {
    match services(server, resource) {
        Some(_) => service::release(old),
        None => Effects::default(),
    }
}

/// Brings an update in line with what the Service holds already, before it is validated: clients may leave out what was
/// allocated for them, and a change of type drops what the new type has no use for.
pub(crate) fn inherit(server: &Arc<ApiServer>, resource: &ResourceInfo, old: &Value, new: &mut Value) {
    if services(server, resource).is_some() {
        service::inherit(old, new);
    }
}

fn services<'s>(server: &'s Arc<ApiServer>, resource: &ResourceInfo) -> Option<&'s ServiceConfig> {
    let is_services = resource.gvr == GroupVersionResource::new("", "v1", "services");
    server.config.services.as_ref().filter(|_| is_services)
}
