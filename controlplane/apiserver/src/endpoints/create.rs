//! POST to a collection.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use minato_codec::Decoded;
use minato_meta::ApiError;
use serde_json::Value;

use super::options::WriteOptions;
use super::pipeline::Write;
use super::transaction::{self, Change, Outcome, Stored, Transform};
use super::{Target, decode, metadata, version};
use crate::negotiate;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Tries with other random names before a create with `generateName` gives up; upstream's figure.
const MOST_NAMES: usize = 8;

/// Creates an object.
///
/// # Errors
/// See [`Write::create`]; 409 when it exists.
pub(crate) async fn create(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "CreateOptions")?;
    let body = request.read_body().await?;
    let decoded = decode::tree(&body, decode::media_type(&request))?;
    let outcome = create_decoded(server, &request, &target, decoded, &options).await?;
    respond(server, &request, &target, outcome)
}

/// Creates an object of a decoded body.
pub(crate) async fn create_decoded(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    decoded: Decoded,
    options: &WriteOptions,
) -> Result<Outcome, ApiError> {
    let strictness = decode::Strictness {
        validation: options.field_validation,
        warnings: &request.warnings,
    };
    let mut object = decode::intake(&server.registry, &target.resource, decoded, &strictness)?;
    if target.resource.namespaced && target.namespace.is_none() {
        return Err(ApiError::bad_request(
            "an empty namespace may not be set during creation",
        ));
    }
    version::to_storage(&target.resource, &mut object);
    let stored_target = version::stored_target(&server.registry, target);
    let write = Write {
        server,
        target: &stored_target,
        user: &request.user,
        warnings: &request.warnings,
        options,
        managers_settled: false,
    };
    create_object(&write, object).await
}

/// Creates an object, with other names if need be.
pub(crate) async fn create_object(write: &Write<'_>, object: Value) -> Result<Outcome, ApiError> {
    let names = if metadata::text(&object, "name").is_empty() {
        MOST_NAMES
    } else {
        1
    };
    let mut attempt = 1;
    loop {
        let ready = write.create(object.clone()).await?;
        let target = write.target.named(metadata::text(&ready, "name"));
        let mut transform = Create {
            write,
            target: &target,
            object: ready,
        };
        let dry_run = write.options.dry_run;
        let result = if dry_run {
            transaction::run(write.server, &target, true, &mut transform).await
        } else {
            transaction::run_from(write.server, &target, false, &mut transform, None).await
        };
        match result {
            Err(error) if error.kind() == minato_meta::ErrorKind::AlreadyExists && attempt < names => attempt += 1,
            result => return result,
        }
    }
}

struct Create<'a> {
    write: &'a Write<'a>,
    target: &'a Target,
    object: Value,
}

#[async_trait]
impl Transform for Create<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        if current.is_some() {
            return Err(ApiError::already_exists(
                &resource.gvr.group_resource(),
                &self.target.name,
            ));
        }
        let mut object = self.object.clone();
        let effects = self.write.effects(self.target, None, &mut object).await?;
        Ok(Change::Put { object, effects })
    }
}

/// The answer to a write: the object as written, in the version and an encoding of the request.
///
/// # Errors
/// 406 when the client accepts none of the kind's encodings, 500 when it cannot be serialized.
pub(crate) fn respond(
    server: &ApiServer,
    request: &ApiRequest,
    target: &Target,
    outcome: Outcome,
) -> Result<Response, ApiError> {
    let (stored, code) = match outcome {
        Outcome::Written { stored, created: true } => (stored, StatusCode::CREATED),
        Outcome::Written { stored, created: false } | Outcome::Kept(stored) => (stored, StatusCode::OK),
        Outcome::Deleted { object } => {
            let mut object = object;
            version::from_storage(&target.resource, &mut object);
            return encode(server, request, target, StatusCode::OK, &object, None);
        }
    };
    if version::is_stored_version(&target.resource) && version::names_version(&target.resource, &stored.object) {
        return encode(server, request, target, code, &stored.object, Some(&stored));
    }
    let mut object = stored.object;
    version::from_storage(&target.resource, &mut object);
    encode(server, request, target, code, &object, None)
}

/// Encodes an object; JSON is made of the stored bytes where they are at hand.
fn encode(
    server: &ApiServer,
    request: &ApiRequest,
    target: &Target,
    code: StatusCode,
    object: &Value,
    stored: Option<&Stored>,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request)?;
    let json = || match stored {
        Some(stored) if stored.revision.0 == 0 => Ok(stored.bytes.clone()),
        Some(stored) => Ok(minato_storage::object::with_revision(&stored.bytes, stored.revision)),
        None => serde_json::to_vec(object).map(Into::into).map_err(ApiError::internal),
    };
    let schema = server.registry.schema(&target.resource);
    negotiate::respond(code, &accepted, object, json, schema.as_deref())
}
