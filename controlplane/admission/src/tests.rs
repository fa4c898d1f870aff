//! Running single plug-ins.

use minato_auth::UserInfo;
use minato_meta::{GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::{AdmissionPlugin, AdmissionRequest, Notes, Operation};

async fn run(
    plugin: &dyn AdmissionPlugin,
    operation: Operation,
    (group, resource): (&str, &str),
    subresource: &str,
    object: Value,
    old: Value,
) -> Result<Value, String> {
    let user = UserInfo::default();
    let mut request = AdmissionRequest {
        operation,
        kind: GroupVersionKind::new(group, "v1", "Kind"),
        resource: GroupVersionResource::new(group, "v1", resource),
        subresource,
        namespace: "d",
        name: "x",
        user: &user,
        dry_run: false,
        object,
        old_object: &old,
        options: Value::Null,
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    assert!(plugin.handles(&request));
    let said = |error: minato_meta::ApiError| error.message().to_owned();
    plugin.admit(&mut request).await.map_err(said)?;
    let mut notes = Notes::default();
    plugin.inspect(&request, &mut notes).await.map_err(said)?;
    Ok(request.object)
}

/// The object as admitted, or why it is refused.
pub(crate) async fn create(
    plugin: &dyn AdmissionPlugin,
    resource: (&str, &str),
    object: Value,
) -> Result<Value, String> {
    run(plugin, Operation::Create, resource, "", object, Value::Null).await
}

/// The same for a subresource.
pub(crate) async fn create_part(
    plugin: &dyn AdmissionPlugin,
    resource: (&str, &str),
    part: &str,
    object: Value,
) -> Result<Value, String> {
    run(plugin, Operation::Create, resource, part, object, Value::Null).await
}

/// The same for an update.
pub(crate) async fn update(
    plugin: &dyn AdmissionPlugin,
    resource: (&str, &str),
    object: Value,
    old: Value,
) -> Result<Value, String> {
    run(plugin, Operation::Update, resource, "", object, old).await
}

/// The same for an update of a subresource.
pub(crate) async fn update_part(
    plugin: &dyn AdmissionPlugin,
    resource: (&str, &str),
    part: &str,
    object: Value,
    old: Value,
) -> Result<Value, String> {
    run(plugin, Operation::Update, resource, part, object, old).await
}
