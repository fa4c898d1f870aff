//! Parts of objects that have paths of their own.

use std::sync::Arc;

use minato_meta::{ApiError, ErrorKind};

use crate::endpoints::{Target, get, patch, update};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Answers a request for a subresource.
///
/// # Errors
/// 404 for subresources that the kind does not have; else the subresource's own.
pub(crate) async fn dispatch(
    server: &Arc<ApiServer>,
    request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    if target.resource.subresource(&target.subresource).is_none() {
        return Err(ApiError::no_such_path());
    }
    match target.subresource.as_str() {
        "status" => whole_object(server, request, target).await,
        name => Err(ApiError::new(
            ErrorKind::ServiceUnavailable,
            format!(
                "the subresource {name:?} of {} is not served yet",
                target.resource.gvr.resource
            ),
        )),
    }
}

/// A subresource whose body is the whole object.
async fn whole_object(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    match request.info.verb.as_str() {
        "get" => get::get(server, request, target).await,
        "update" => update::update(server, request, target).await,
        "patch" => patch::patch(server, request, target).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}
