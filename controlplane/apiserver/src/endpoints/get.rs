//! GET of one object.

use std::sync::Arc;

use minato_meta::ApiError;

use super::transaction::{self, Outcome};
use super::{Target, create};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Reads an object.
///
/// # Errors
/// 404 when it is absent.
pub(crate) async fn get(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let stored = transaction::read(server, &target)
        .await?
        .ok_or_else(|| target.not_found())?;
    create::respond(server, &request, &target, Outcome::Kept(stored))
}
