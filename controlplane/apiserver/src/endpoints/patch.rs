//! PATCH: the patch is applied to the newest state, and again when that was not the newest.

use std::sync::Arc;

use async_trait::async_trait;
use minato_codec::{Decoded, Limits, depth_within};
use minato_meta::{ApiError, ErrorKind};
use minato_patch::{JsonPatchLimits, json_patch, merge_patch};
use serde_json::Value;

use super::options::WriteOptions;
use super::pipeline::Write;
use super::transaction::{self, Change, Stored, Transform};
use super::{Target, create, decode, version};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// The patch languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    fn from_media_type(media_type: &str) -> Result<Self, ApiError> {
        Ok(match media_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            _ => {
                return Err(unsupported(
                    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
        })
    }
}

fn unsupported(message: &str) -> ApiError {
    ApiError::new(ErrorKind::UnsupportedMediaType, message)
}

/// Patches an object or a subresource that shows the whole object.
///
/// # Errors
/// See [`Write::update`]; 404 when it is absent, 400, 415 or 422 for patches that do not apply.
pub(crate) async fn patch(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let options = WriteOptions::from_request(&request, "PatchOptions")?;
    let patch_type = PatchType::from_media_type(decode::media_type(&request))?;
    let body = request.read_body().await?;
    let Decoded { value, duplicates } = match patch_type {
        PatchType::Apply => decode::tree(&body, "application/yaml")?,
        _ => decode::tree(&body, "application/json")?,
    };
    let write = Write {
        server,
        target: &target,
        user: &request.user,
        warnings: &request.warnings,
        options: &options,
    };
    let mut transform = Patch {
        write: &write,
        patch_type,
        patch: value,
        duplicates,
    };
    let outcome = transaction::run(server, &target, options.dry_run, &mut transform).await?;
    create::respond(&target, outcome)
}

struct Patch<'a> {
    write: &'a Write<'a>,
    patch_type: PatchType,
    patch: Value,
    duplicates: Vec<String>,
}

impl Patch<'_> {
    fn patched(&self, old: &Value) -> Result<Value, ApiError> {
        let mut new = old.clone();
        match self.patch_type {
            PatchType::Json => {
                json_patch(&mut new, &self.patch, &JsonPatchLimits::default()).map_err(|e| e.into_api_error())?;
            }
            PatchType::Merge => merge_patch(&mut new, &self.patch),
            PatchType::Strategic | PatchType::Apply => {
                return Err(ApiError::new(
                    ErrorKind::ServiceUnavailable,
                    "this kind of patch is not served yet",
                ));
            }
        }
        if !depth_within(&new, Limits::default().depth) {
            return Err(ApiError::bad_request("the patched object is nested too deeply"));
        }
        Ok(new)
    }
}

#[async_trait]
impl Transform for Patch<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let target = self.write.target;
        let Some(current) = current else {
            return Err(target.not_found());
        };
        let mut old = current.object.clone();
        version::from_storage(&target.resource, &mut old);
        let decoded = Decoded {
            value: self.patched(&old)?,
            duplicates: self.duplicates.clone(),
        };
        let strictness = decode::Strictness {
            validation: self.write.options.field_validation,
            warnings: self.write.warnings,
        };
        let mut object = decode::intake(&self.write.server.registry, &target.resource, decoded, &strictness)?;
        version::to_storage(&target.resource, &mut object);
        self.write.update(object, current).await
    }
}
