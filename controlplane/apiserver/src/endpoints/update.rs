//! PUT to an object or to a subresource that shows the whole object (`status`, `finalize`, …).

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, FieldError, FieldErrors};
use serde_json::Value;

use super::options::WriteOptions;
use super::pipeline::Write;
use super::transaction::{self, Change, Outcome, Stored, Transform};
use super::{Target, create, decode, metadata, version};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Replaces an object.
///
/// # Errors
/// See [`Write::update`]; 404 when it is absent and may not be created so.
pub(crate) async fn update(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "UpdateOptions")?;
    let body = request.read_body().await?;
    let decoded = decode::tree(&body, decode::media_type(&request))?;
    let strictness = decode::Strictness {
        validation: options.field_validation,
        warnings: &request.warnings,
    };
    let mut object = decode::intake(&server.registry, &target.resource, decoded, &strictness)?;
    version::to_storage(&target.resource, &mut object);
    let stored_target = version::stored_target(&server.registry, &target);
    let write = Write {
        server,
        target: &stored_target,
        user: &request.user,
        warnings: &request.warnings,
        options: &options,
        managers_settled: false,
    };
    if metadata::text(&object, "name").is_empty() {
        return Err(ApiError::bad_request(
            "the name of the object () does not match the name on the URL: name must be provided",
        ));
    }
    let outcome = put(&write, object).await?;
    create::respond(server, &request, &target, outcome)
}

/// Runs an update of a whole object.
pub(crate) async fn put(write: &Write<'_>, object: Value) -> Result<Outcome, ApiError> {
    let mut transform = Replace { write, object };
    let outcome = transaction::run(write.server, write.target, write.options.dry_run, &mut transform).await;
    match outcome {
        Err(error)
            if error.kind() == minato_meta::ErrorKind::NotFound
                && write.target.subresource.is_empty()
                && write.target.resource.strategy.allow_create_on_update()
                && is_unversioned(&transform.object) =>
        {
            create::create_object(write, transform.object).await
        }
        outcome => outcome,
    }
}

fn is_unversioned(object: &Value) -> bool {
    matches!(metadata::text(object, "resourceVersion"), "" | "0") && metadata::text(object, "uid").is_empty()
}

struct Replace<'a> {
    write: &'a Write<'a>,
    object: Value,
}

#[async_trait]
impl Transform for Replace<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let target = self.write.target;
        let Some(current) = current else {
            return Err(target.not_found());
        };
        let unversioned = matches!(metadata::text(&self.object, "resourceVersion"), "" | "0");
        if unversioned && !target.resource.strategy.allow_unconditional_update() {
            let error = FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update");
            let kind = target.resource.gvk.group_kind();
            return Err(ApiError::invalid(&kind, &target.name, FieldErrors(vec![error])));
        }
        self.write.update(self.object.clone(), current).await
    }
}
