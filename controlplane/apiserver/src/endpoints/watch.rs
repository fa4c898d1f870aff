//! WATCH of a collection.

use std::sync::Arc;

use minato_meta::{ApiError, ErrorKind};

use super::Target;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Watches a collection.
///
/// # Errors
/// 503 until the watch cache lands.
pub(crate) async fn watch(_: &Arc<ApiServer>, _: ApiRequest, _: Target) -> Result<Response, ApiError> {
    Err(ApiError::new(
        ErrorKind::ServiceUnavailable,
        "watches are not served yet",
    ))
}
