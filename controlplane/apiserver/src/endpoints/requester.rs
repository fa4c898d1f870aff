//! Certificate signing requests say who asks. That is the server's to write: signers and approvers trust it.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/certificate-signing-request-v1/>.

use minato_auth::UserInfo;
use minato_rules::ResourceInfo;
use serde_json::{Value, json};

use super::Target;

fn concerns(resource: &ResourceInfo) -> bool {
    resource.gvr.group == "certificates.k8s.io" && resource.gvr.resource == "certificatesigningrequests"
}

/// Writes the requester into a new request.
pub(super) fn stamp(resource: &ResourceInfo, user: &UserInfo, object: &mut Value) {
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    let Some(spec) = spec.filter(|_| concerns(resource)) else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}

/// What is asked for does not change, nor is it approved but through `approval`.
pub(super) fn keep(target: &Target, object: &mut Value, old: &Value) {
    if !concerns(&target.resource) {
        return;
    }
    if let (Some(fields), Some(spec)) = (object.as_object_mut(), old.get("spec")) {
        fields.insert("spec".to_owned(), spec.clone());
    }
    if target.subresource == "status" {
        keep_decision(object, old);
    }
}

/// Makes the conditions `Approved` and `Denied` those of the old object.
fn keep_decision(object: &mut Value, old: &Value) {
    let decides = |condition: &Value| {
        let type_ = condition.get("type").and_then(Value::as_str);
        matches!(type_, Some("Approved" | "Denied"))
    };
    let conditions = |object: &Value| {
        let all = object.pointer("/status/conditions").and_then(Value::as_array);
        all.cloned().unwrap_or_default()
    };
    let mut kept: Vec<Value> = conditions(old).into_iter().filter(decides).collect();
    kept.extend(conditions(object).into_iter().filter(|condition| !decides(condition)));
    if kept.is_empty() {
        return;
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("conditions".to_owned(), Value::Array(kept));
    }
}
