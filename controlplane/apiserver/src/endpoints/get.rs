//! GET of one object.

use std::sync::Arc;

use minato_meta::ApiError;

use super::list_options::{self, At};
use super::transaction::{self, Outcome, store_error};
use super::{Target, create};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Reads an object.
///
/// # Errors
/// 404 when it is absent.
pub(crate) async fn get(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    if let At::NotOlderThan(asked) = list_options::at_revision(&request.query)? {
        let current = server.store.revision().await.map_err(store_error)?;
        if asked > current {
            return Err(ApiError::too_large_revision(asked, current));
        }
    }
    let stored = transaction::read(server, &target)
        .await?
        .ok_or_else(|| target.not_found())?;
    create::respond(server, &request, &target, Outcome::Kept(stored))
}
