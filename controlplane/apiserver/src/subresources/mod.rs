//! Parts of objects that have paths of their own.

mod binding;
mod eviction;
mod node;
mod scale;
mod token;

use std::sync::Arc;

use http::StatusCode;
use minato_meta::ApiError;
use serde_json::json;

use crate::endpoints::{Target, get, patch, update};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

pub(crate) use binding::create as create_binding;
pub use node::KubeletAccess;
pub(crate) use node::{admits_tunnel, serve_tunnel};

/// Answers a request for a subresource.
///
/// # Errors
/// 404 for subresources that the kind does not have; else the subresource's own.
pub(crate) async fn dispatch(
    server: &Arc<ApiServer>,
    request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    if target.resource.subresource(&target.subresource).is_none() || target.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let creates = request.info.verb == "create";
    match target.subresource.as_str() {
        "status" | "approval" | "finalize" | "ephemeralcontainers" | "resize" => {
            whole_object(server, request, target).await
        }
        "scale" => scale::handle(server, request, target).await,
        "binding" if creates => binding::create(server, request, target).await,
        "eviction" if creates => eviction::create(server, request, target).await,
        "token" if creates => token::create(server, request, target).await,
        "binding" | "eviction" | "token" => Err(ApiError::method_not_allowed()),
        _ => node::dispatch(server, request, target)
            .await
            .unwrap_or_else(|| Err(ApiError::no_such_path())),
    }
}

/// A subresource whose body is the whole object; the pipeline takes from it what the subresource is about.
async fn whole_object(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    match request.info.verb.as_str() {
        "get" => get::get(server, request, target).await,
        "update" => update::update(server, request, target).await,
        "patch" => patch::patch(server, request, target).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The `Status` that answers a request which makes nothing to show.
fn success(code: StatusCode) -> Result<Response, ApiError> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code.as_u16(),
    });
    response::json(code, &status)
}
