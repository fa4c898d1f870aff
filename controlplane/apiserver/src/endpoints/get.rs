//! GET of one object, from the watch cache.

use std::sync::Arc;

use http::StatusCode;
use minato_meta::ApiError;

use super::list::read_error;
use super::view::View;
use super::{Target, list_options};
use crate::negotiate::Ask;
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ApiServer;

/// Reads an object.
///
/// # Errors
/// 404 when it is absent, 504 for a revision that is not reached.
pub(crate) async fn get(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let view = View::new(server, &request, &target.resource, Ask::Object)?;
    let at = list_options::at_revision(&request.query)?;
    let resource = server.cache.resource(&target.resource.storage);
    let key = format!("{}{}", super::list::prefix(&target), target.name);
    let entry = resource.get(&key, at).await.map_err(|error| read_error(error, at))?;
    let entry = entry.ok_or_else(|| target.not_found())?;
    Ok(response::with_type(
        StatusCode::OK,
        view.media_type(),
        view.object(&entry)?,
    ))
}
