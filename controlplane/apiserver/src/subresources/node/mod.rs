//! What is served by a node and not from the store: logs, commands, forwarded ports, proxied requests.
//!
//! ```text
//! client ── log, exec, attach, portforward, proxy ── backend ── Egress ── TLS ── kubelet, pod or service
//! ```
//!
//! Paths of the kubelet: <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/>.

mod backend;
mod command;
mod log;
mod pod;
mod port_forward;
mod proxy;
mod tls;
mod tunnel;
mod upgrade;

use std::sync::Arc;

use minato_admission::{AdmissionRequest, Operation};
use minato_auth::Decision;
use minato_meta::{ApiError, GroupVersionKind};
use serde_json::{Value, json};

pub use tls::KubeletAccess;
pub(crate) use tunnel::{admits_tunnel, serve_tunnel};

use crate::endpoints::{Target, pipeline};
use crate::filters::authorization;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// Answers a request for a subresource that a node serves; `None` for others.
pub(super) async fn dispatch(
    server: &Arc<ApiServer>,
    request: ApiRequest,
    target: Target,
) -> Option<Result<Response, ApiError>> {
    let resource = target.resource.gvr.resource.clone();
    Some(match (resource.as_str(), target.subresource.as_str()) {
        ("pods", "log") => log::get(server, request, target).await,
        ("pods", "exec") => command::connect(server, request, target, command::Action::Exec).await,
        ("pods", "attach") => command::connect(server, request, target, command::Action::Attach).await,
        ("pods", "portforward") => port_forward::connect(server, request, target).await,
        (_, "proxy") => proxy::handle(server, request, target).await,
        _ => return None,
    })
}

/// The permission that upgrades by GET need besides `get`: without it, reading pods would be enough to run commands in
/// them. Source: <https://github.com/kubernetes/kubernetes/issues/133515>.
async fn authorize_upgrade(server: &Arc<ApiServer>, request: &ApiRequest) -> Result<(), ApiError> {
    match request.info.verb.as_str() {
        "create" => return Ok(()),
        "get" => {}
        _ => return Err(ApiError::method_not_allowed()),
    }
    let mut attributes = authorization::attributes(&request.user, &request.info);
    attributes.verb = "create".to_owned();
    match server.deps().authorizer.authorize(&attributes).await {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(authorization::forbidden(&attributes, &reason)),
    }
}

/// Asks the admission plug-ins about a connection, whose options are the object.
async fn admit(
    server: &Arc<ApiServer>,
    request: &ApiRequest,
    target: &Target,
    kind: &str,
    mut options: Value,
) -> Result<(), ApiError> {
    options["kind"] = json!(kind);
    options["apiVersion"] = json!("v1");
    let mut admission = AdmissionRequest {
        operation: Operation::Connect,
        kind: GroupVersionKind::new("", "v1", kind),
        resource: target.resource.gvr.clone(),
        subresource: &target.subresource,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: &target.name,
        user: &request.user,
        dry_run: false,
        object: options,
        old_object: &Value::Null,
        options: Value::Null,
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    pipeline::admit(server, &mut admission).await?;
    pipeline::validate(server, &mut admission).await?;
    request.warnings.extend(admission.warnings);
    Ok(())
}

/// Appends a query parameter to a path.
fn add_parameter(path: &mut String, name: &str, value: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(name);
    path.push('=');
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_way() {
        let mut path = "/exec/a/b/c".to_owned();
        add_parameter(&mut path, "command", "sh -c");
        add_parameter(&mut path, "command", "echo \u{e9} a&b=c%");
        assert_eq!(path, "/exec/a/b/c?command=sh%20-c&command=echo%20%C3%A9%20a%26b%3Dc%25");
    }
}
