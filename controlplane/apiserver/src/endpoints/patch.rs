//! PATCH: the patch is applied to the newest state, and again when that was not the newest.

use std::sync::Arc;

use async_trait::async_trait;
use minato_codec::{Decoded, Limits, depth_within};
use minato_meta::{ApiError, ErrorKind, FieldError, FieldErrors, GroupKind};
use minato_patch::{JsonPatchLimits, json_patch, merge_patch, strategic_merge_patch};
use serde_json::Value;

use super::options::WriteOptions;
use super::pipeline::Write;
use super::transaction::{self, Change, Outcome, Stored, Transform};
use super::{Target, create, decode, managed, metadata, version};
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
    fn from_media_type(media_type: &str, custom: bool) -> Result<Self, ApiError> {
        Ok(match media_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" if !custom => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            _ => {
                let strategic = if custom {
                    ""
                } else {
                    "application/strategic-merge-patch+json, "
                };
                return Err(ApiError::new(
                    ErrorKind::UnsupportedMediaType,
                    format!(
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json-patch+json, application/merge-patch+json, {strategic}\
                         application/apply-patch+yaml"
                    ),
                ));
            }
        })
    }
}

/// A patch as it came.
pub(crate) struct PatchBody {
    pub(crate) patch_type: PatchType,
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

impl PatchBody {
    /// Reads the body.
    ///
    /// # Errors
    /// 415 for patch types that the kind does not take, 400 for bodies that are none.
    pub(crate) async fn read(server: &ApiServer, request: &mut ApiRequest, target: &Target) -> Result<Self, ApiError> {
        let custom = server.registry.custom_schema(&target.resource.gvr).is_some();
        let patch_type = PatchType::from_media_type(decode::media_type(request), custom)?;
        let body = request.read_body().await?;
        let media_type = match patch_type {
            PatchType::Apply => "application/yaml",
            _ => "application/json",
        };
        let Decoded { value, duplicates } = decode::tree(&body, media_type)?;
        Ok(Self {
            patch_type,
            value,
            duplicates,
        })
    }

    /// The patched tree, before any check of its structure. Not for apply.
    ///
    /// # Errors
    /// 400, 413 or 422 for patches that do not fit.
    pub(crate) fn patched(&self, old: &Value, schema: Option<&minato_schema::Schema>) -> Result<Value, ApiError> {
        let mut new = old.clone();
        let result = match (self.patch_type, schema) {
            (PatchType::Json, _) => json_patch(&mut new, &self.value, &JsonPatchLimits::default()),
            (PatchType::Strategic, Some(schema)) => strategic_merge_patch(&mut new, &self.value, schema),
            _ => {
                merge_patch(&mut new, &self.value);
                Ok(())
            }
        };
        result.map_err(minato_patch::PatchError::into_api_error)?;
        if !depth_within(&new, Limits::default().depth) {
            return Err(ApiError::bad_request("the patched object is nested too deeply"));
        }
        Ok(new)
    }
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
    let body = PatchBody::read(server, &mut request, &target).await?;
    let outcome = patch_object(server, &request, &target, &options, &body).await?;
    create::respond(server, &request, &target, outcome)
}

/// Runs a patch to its end.
pub(crate) async fn patch_object(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    options: &WriteOptions,
    body: &PatchBody,
) -> Result<Outcome, ApiError> {
    let applies = body.patch_type == PatchType::Apply;
    if options.force && !applies {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        let kind = GroupKind::new("meta.k8s.io", "PatchOptions");
        return Err(ApiError::invalid(&kind, "", FieldErrors(vec![error])));
    }
    let stored_target = version::stored_target(&server.registry, target);
    let write = Write {
        server,
        target: &stored_target,
        user: &request.user,
        warnings: &request.warnings,
        options,
        managers_settled: applies,
    };
    if applies {
        let mut transform = ApplyPatch {
            config: configuration(&write, target, body)?,
            write: &write,
            target,
        };
        return transaction::run(server, target, options.dry_run, &mut transform).await;
    }
    let mut transform = Patch {
        write: &write,
        target,
        body,
    };
    transaction::run(server, target, options.dry_run, &mut transform).await
}

struct Patch<'a> {
    write: &'a Write<'a>,
    /// The object in the version of the request.
    target: &'a Target,
    body: &'a PatchBody,
}

#[async_trait]
impl Transform for Patch<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let (target, registry) = (self.target, &self.write.server.registry);
        let Some(current) = current else {
            return Err(target.not_found());
        };
        let mut old = current.object.clone();
        version::from_storage(&target.resource, &mut old);
        let schema = registry.schema(&target.resource);
        let decoded = Decoded {
            value: self.body.patched(&old, schema.as_deref())?,
            duplicates: self.body.duplicates.clone(),
        };
        let strictness = decode::Strictness {
            validation: self.write.options.field_validation,
            warnings: self.write.warnings,
        };
        let mut object = decode::intake(registry, &target.resource, decoded, &strictness)?;
        version::to_storage(&target.resource, &mut object);
        self.write.update(object, current).await
    }
}

/// The configuration of an apply: checked and pruned, but not defaulted.
fn configuration(write: &Write<'_>, target: &Target, body: &PatchBody) -> Result<Value, ApiError> {
    let registry = &write.server.registry;
    let mut config = body.value.clone();
    decode::stamp_kind(&mut config, &target.resource.gvk)?;
    let strictness = decode::Strictness {
        validation: write.options.field_validation,
        warnings: write.warnings,
    };
    decode::structure(
        registry,
        &target.resource,
        &mut config,
        body.duplicates.clone(),
        &strictness,
    )?;
    metadata::settle_namespace(&mut config, target)?;
    let name = metadata::text(&config, "name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    metadata::of(&mut config)?.insert("name".to_owned(), Value::String(target.name.clone()));
    Ok(config)
}

struct ApplyPatch<'a> {
    write: &'a Write<'a>,
    /// The object in the version of the request.
    target: &'a Target,
    config: Value,
}

#[async_trait]
impl Transform for ApplyPatch<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        let Write { server, options, .. } = self.write;
        let target = self.target;
        let resource = &target.resource;
        let live = current.map(|stored| {
            let mut live = stored.object.clone();
            version::from_storage(resource, &mut live);
            live
        });
        if live.is_none() {
            self.refuse_absent()?;
        }
        let registry = &server.registry;
        let mut object = managed::apply(
            registry,
            resource,
            &target.subresource,
            live.as_ref(),
            &self.config,
            options,
        )?;
        decode::complete(registry, resource, &mut object);
        version::to_storage(resource, &mut object);
        if let Some(current) = current {
            return self.write.update(object, current).await;
        }
        let mut object = self.write.create(object).await?;
        let effects = self.write.effects(self.write.target, None, &mut object).await?;
        Ok(Change::Put { object, effects })
    }
}

impl ApplyPatch<'_> {
    /// Applies that cannot create: to a subresource, or of an object that the client has seen before.
    fn refuse_absent(&self) -> Result<(), ApiError> {
        let target = self.target;
        if !target.subresource.is_empty() {
            return Err(target.not_found());
        }
        let uid = metadata::text(&self.config, "uid");
        if !uid.is_empty() {
            return Err(ApiError::conflict(
                &target.resource.gvr.group_resource(),
                &target.name,
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
            ));
        }
        Ok(())
    }
}
