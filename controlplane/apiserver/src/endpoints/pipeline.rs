//! What happens to an object between decoding and the store, the same for PUT, PATCH, apply and subresources.

use std::sync::Arc;

use minato_admission::{AdmissionRequest, Notes, Operation};
use minato_auth::UserInfo;
use minato_meta::{ApiError, FieldErrors};
use serde_json::Value;

use super::options::WriteOptions;
use super::transaction::{Change, Effects, Stored};
use super::{Target, managed, metadata, requester};
use crate::allocators;
use crate::request::Warnings;
use crate::server::ApiServer;

/// The parts of a request that a write needs until its end.
pub(crate) struct Write<'a> {
    pub(crate) server: &'a Arc<ApiServer>,
    pub(crate) target: &'a Target,
    pub(crate) user: &'a UserInfo,
    pub(crate) warnings: &'a Warnings,
    pub(crate) options: &'a WriteOptions,
    /// Whether the object comes with its managers already (server-side apply).
    pub(crate) managers_settled: bool,
}

/// Kinds whose status is taken on create: a kubelet registers its node with it.
fn keeps_status_on_create(target: &Target) -> bool {
    target.resource.gvr.group.is_empty() && target.resource.gvr.resource == "nodes"
}

impl Write<'_> {
    /// Admission's view of this write.
    pub(crate) fn admission<'r>(
        &'r self,
        operation: Operation,
        object: Value,
        old: &'r Value,
        name: &'r str,
    ) -> AdmissionRequest<'r> {
        let options = match operation {
            Operation::Create => self.options.to_object("CreateOptions"),
            _ => self.options.to_object("UpdateOptions"),
        };
        AdmissionRequest {
            operation,
            kind: self.target.resource.gvk.clone(),
            resource: self.target.resource.gvr.clone(),
            subresource: &self.target.subresource,
            namespace: admission_namespace(self.target, name),
            name,
            user: self.user,
            dry_run: self.options.dry_run,
            object,
            old_object: old,
            options,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        }
    }

    /// First phase of admission; returns the object as the plug-ins left it.
    pub(crate) async fn mutate(&self, operation: Operation, object: Value, old: &Value) -> Result<Value, ApiError> {
        let name = metadata::text(&object, "name").to_owned();
        let mut request = self.admission(operation, object, old, &name);
        admit(self.server, &mut request).await?;
        self.warnings.extend(request.warnings.drain(..));
        Ok(request.object)
    }

    /// Second phase of admission; gives the object back.
    pub(crate) async fn check(&self, operation: Operation, object: Value, old: &Value) -> Result<Value, ApiError> {
        let name = metadata::text(&object, "name").to_owned();
        let mut request = self.admission(operation, object, old, &name);
        validate(self.server, &mut request).await?;
        self.warnings.extend(request.warnings.drain(..));
        Ok(request.object)
    }

    /// From a decoded object to the one to store. `generateName` is settled here, so each call may make another name.
    ///
    /// # Errors
    /// 422 with all that is wrong, or what admission says.
    pub(crate) async fn create(&self, mut object: Value) -> Result<Value, ApiError> {
        let resource = &self.target.resource;
        let strategy = &resource.strategy;
        metadata::settle_namespace(&mut object, self.target)?;
        metadata::begin_create(&mut object)?;
        let strip_status = resource.has_status() && !keeps_status_on_create(self.target);
        if strip_status {
            self.drop_status(&mut object);
        }
        self.warn_repeated_owners(&mut object);
        self.record_managers(&mut object, None);
        let mut object = self.mutate(Operation::Create, object, &Value::Null).await?;
        if strip_status {
            self.drop_status(&mut object);
        }
        metadata::generate_name(&mut object);
        requester::stamp(&self.target.resource, self.user, &mut object);
        strategy.prepare_for_create(&mut object);
        if strategy.has_generation() {
            metadata::of(&mut object)?.insert("generation".to_owned(), Value::from(1));
        }
        let mut errors = FieldErrors::default();
        metadata::validate(&object, resource, &mut errors);
        self.custom_errors(&object, &mut errors);
        errors.0.extend(strategy.validate(&object).0);
        self.refuse_if(&object, errors)?;
        self.warnings.extend(strategy.warnings(&object, None));
        self.check(Operation::Create, object, &Value::Null).await
    }

    /// From a decoded or patched object to the change to make.
    ///
    /// # Errors
    /// 409 for identities and revisions that do not match, 422 with all that is wrong, or what admission says.
    pub(crate) async fn update(&self, mut object: Value, current: &Stored) -> Result<Change, ApiError> {
        let resource = &self.target.resource;
        let strategy = &resource.strategy;
        let old = &current.object;
        let status_write = self.target.subresource == "status";
        metadata::begin_update(&mut object, current, self.target)?;
        self.split(&mut object, old);
        if self.target.subresource.is_empty() {
            allocators::inherit(self.server, resource, old, &mut object);
        }
        self.warn_repeated_owners(&mut object);
        self.record_managers(&mut object, Some(old));
        let mut object = self.mutate(Operation::Update, object, old).await?;
        self.split(&mut object, old);
        if status_write {
            strategy.prepare_for_status_update(&mut object, old);
        } else {
            match self.target.subresource.as_str() {
                "" => strategy.prepare_for_update(&mut object, old),
                part => strategy.prepare_for_subresource_update(part, &mut object, old),
            }
            if strategy.has_generation() {
                metadata::bump_generation(&mut object, old);
            }
        }
        requester::keep(self.target, &mut object, old);
        let mut errors = FieldErrors::default();
        metadata::validate_update(&object, old, resource, &mut errors);
        self.custom_errors(&object, &mut errors);
        let wrong = match self.target.subresource.as_str() {
            "" => strategy.validate_update(&object, old),
            "status" => strategy.validate_status_update(&object, old),
            part => strategy.validate_subresource_update(part, &object, old),
        };
        errors.0.extend(wrong.0);
        self.refuse_if(&object, errors)?;
        self.warnings.extend(strategy.warnings(&object, Some(old)));
        let object = self.check(Operation::Update, object, old).await?;
        self.finish(object, old).await
    }

    /// Decides between writing, deleting and doing nothing.
    pub(crate) async fn finish(&self, mut object: Value, old: &Value) -> Result<Change, ApiError> {
        if is_finished(&object, self.target) {
            let effects = allocators::release(self.server, &self.target.resource, old);
            return Ok(Change::Delete { object, effects });
        }
        // Writes that change nothing but the times of managers change nothing that anybody could want.
        if minato_patch::same_but_for_times(&object, old) {
            return Ok(Change::Keep);
        }
        let effects = self.effects(self.target, Some(old), &mut object).await?;
        Ok(Change::Put { object, effects })
    }

    /// What belongs to the write beside the object itself: addresses and ports, and the namespace's quotas.
    pub(crate) async fn effects(
        &self,
        target: &Target,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<Effects, ApiError> {
        let mut effects = Effects::default();
        if target.subresource.is_empty() {
            effects = allocators::plan(self.server, &target.resource, old, object, self.warnings).await?;
        }
        crate::quota::charge(self.server, target, old, object, &mut effects).await?;
        Ok(effects)
    }

    /// Takes from the object what this endpoint is about, and all else from the old one.
    fn split(&self, object: &mut Value, old: &Value) {
        let from = |source: &Value| source.get("status").cloned();
        match self.target.subresource.as_str() {
            "" if self.target.resource.has_status() => set(object, "status", from(old)),
            "status" => {
                let mut merged = old.clone();
                set(&mut merged, "status", from(object));
                keep_metadata_of_status_write(&mut merged, object);
                *object = merged;
            }
            "approval" => take(object, old, "/status/conditions"),
            "finalize" => take(object, old, "/spec/finalizers"),
            "ephemeralcontainers" => take(object, old, "/spec/ephemeralContainers"),
            "resize" => take_resources(object, old),
            _ => {}
        }
    }

    /// Leaves what Go shows of an unset status: `{}` for most built-in kinds.
    fn drop_status(&self, object: &mut Value) {
        set(object, "status", None);
        if let Some(schema) = self.server.registry.schema(&self.target.resource)
            && self.server.registry.custom_schema(&self.target.resource.gvr).is_none()
        {
            minato_schema::to_go_shape(object, &schema);
        }
    }

    fn record_managers(&self, object: &mut Value, old: Option<&Value>) {
        if !self.managers_settled {
            let (registry, target) = (&self.server.registry, self.target);
            managed::record(
                registry,
                &target.resource,
                &target.subresource,
                old,
                object,
                self.options,
            );
        }
    }

    /// Value rules of custom kinds, which live in their schema.
    fn custom_errors(&self, object: &Value, errors: &mut FieldErrors) {
        if let Some(schema) = self.server.registry.custom_schema(&self.target.resource.gvr) {
            errors.0.extend(minato_schema::validate(object, &schema).0);
        }
    }

    fn refuse_if(&self, object: &Value, errors: FieldErrors) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        let kind = self.target.resource.gvk.group_kind();
        let name = match metadata::text(object, "name") {
            "" => metadata::text(object, "generateName"),
            name => name,
        };
        Err(ApiError::invalid(&kind, name, errors))
    }

    fn warn_repeated_owners(&self, object: &mut Value) {
        for uid in metadata::deduplicate_owners(object) {
            self.warnings.add(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
                 may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}"
            ));
        }
    }
}

/// The namespace as admission sees it: a Namespace object counts as being in itself.
pub(crate) fn admission_namespace<'a>(target: &'a Target, name: &'a str) -> &'a str {
    match &target.namespace {
        Some(namespace) => namespace,
        None if target.resource.gvr.group.is_empty() && target.resource.gvr.resource == "namespaces" => name,
        None => "",
    }
}

/// Runs the first phase.
pub(crate) async fn admit(server: &Arc<ApiServer>, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    for plugin in &server.deps().admission {
        if plugin.handles(request) {
            plugin.admit(request).await?;
        }
    }
    Ok(())
}

/// Runs the second phase; what the plug-ins tell is added to the request.
pub(crate) async fn validate(server: &Arc<ApiServer>, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    let mut notes = Notes::default();
    for plugin in &server.deps().admission {
        if plugin.handles(request) {
            plugin.inspect(request, &mut notes).await?;
        }
    }
    request.warnings.append(&mut notes.warnings);
    request.audit_annotations.append(&mut notes.audit_annotations);
    Ok(())
}

fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Some(value) => fields.insert(key.to_owned(), value),
            None => fields.remove(key),
        };
    }
}

/// Makes `object` the old one but for the value at a path of two fields.
fn take(object: &mut Value, old: &Value, path: &str) {
    let value = object.pointer(path).cloned();
    let managers = object.pointer("/metadata/managedFields").cloned();
    let mut merged = old.clone();
    let mut fields = path.split('/').skip(1);
    if let (Some(outer), Some(inner)) = (fields.next(), fields.next()) {
        if !merged.get(outer).is_some_and(Value::is_object) {
            set(&mut merged, outer, Some(Value::Object(serde_json::Map::new())));
        }
        if let Some(outer) = merged.get_mut(outer) {
            set(outer, inner, value);
        }
    }
    if let Some(metadata) = merged.get_mut("metadata") {
        set(metadata, "managedFields", managers);
    }
    *object = merged;
}

/// Makes `object` the old one but for the resources of its containers.
fn take_resources(object: &mut Value, old: &Value) {
    let sent = std::mem::replace(object, old.clone());
    let managers = sent.pointer("/metadata/managedFields").cloned();
    for list in ["/spec/containers", "/spec/initContainers"] {
        let sent = sent.pointer(list).and_then(Value::as_array);
        let kept = object.pointer_mut(list).and_then(Value::as_array_mut);
        for container in kept.into_iter().flatten() {
            let same = |c: &&Value| c.get("name") == container.get("name");
            if let Some(sent) = sent.into_iter().flatten().find(same) {
                for field in ["resources", "resizePolicy"] {
                    set(container, field, sent.get(field).cloned());
                }
            }
        }
    }
    if let Some(metadata) = object.get_mut("metadata") {
        set(metadata, "managedFields", managers);
    }
}

/// Labels, annotations, finalizers and field ownership may change with a status write; owners and the rest may not.
fn keep_metadata_of_status_write(merged: &mut Value, sent: &Value) {
    for field in ["labels", "annotations", "finalizers", "managedFields"] {
        let value = sent.get("metadata").and_then(|m| m.get(field)).cloned();
        if let Some(metadata) = merged.get_mut("metadata") {
            set(metadata, field, value);
        }
    }
}

/// Whether a write leaves nothing to wait for of an object whose deletion has begun.
fn is_finished(object: &Value, target: &Target) -> bool {
    let grace = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    metadata::is_deleting(object)
        && metadata::finalizers(object).is_empty()
        && grace.unwrap_or(0) == 0
        && !(super::delete::is_namespace(target) && super::delete::has_spec_finalizers(object))
}
