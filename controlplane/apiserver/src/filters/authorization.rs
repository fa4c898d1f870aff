//! Whether the requester may do it.

use async_trait::async_trait;
use minato_auth::{Attributes, Decision, UserInfo};
use minato_meta::{ApiError, ErrorKind, GroupResource};

use super::{Next, Stage};
use crate::request::ApiRequest;
use crate::request_info::RequestInfo;
use crate::response::{self, Response};

/// Asks the authorizer about the request itself. Checks that depend on the body are the endpoints'.
pub(crate) struct Authorization;

#[async_trait]
impl Stage for Authorization {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        match crate::subresources::admits_tunnel(&request) {
            Some(Ok(())) => return next.run(request).await,
            Some(Err(error)) => return response::error(&error),
            None => {}
        }
        let attributes = attributes(&request.user, &request.info);
        match next.server.deps().authorizer.authorize(&attributes).await {
            Decision::Allow(_) => next.run(request).await,
            Decision::Deny(reason) | Decision::NoOpinion(reason) => response::error(&forbidden(&attributes, &reason)),
        }
    }
}

/// The attributes of a request.
pub(crate) fn attributes(user: &UserInfo, info: &RequestInfo) -> Attributes {
    Attributes {
        user: user.clone(),
        verb: info.verb.clone(),
        is_resource: info.is_resource,
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: info.path.clone(),
        field_selector: info.field_selector.clone(),
    }
}

/// The refusal, worded as upstream words it.
pub(crate) fn forbidden(attributes: &Attributes, reason: &str) -> ApiError {
    let user = &attributes.user.name;
    let verb = &attributes.verb;
    let because = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    if !attributes.is_resource {
        let path = &attributes.path;
        return ApiError::new(
            ErrorKind::Forbidden,
            format!("forbidden: User {user:?} cannot {verb} path {path:?}{because}"),
        );
    }
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let scope = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let group = &attributes.group;
    ApiError::forbidden(
        &GroupResource::new(group, &attributes.resource),
        &attributes.name,
        format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}{because}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_kubectl_users_know_them() {
        let user = UserInfo {
            name: "jane".to_owned(),
            ..UserInfo::default()
        };
        let mut attributes = Attributes {
            user,
            verb: "get".to_owned(),
            is_resource: true,
            resource: "pods".to_owned(),
            subresource: "log".to_owned(),
            namespace: "default".to_owned(),
            name: "p".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&attributes, "").message(),
            r#"pods "p" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "default""#
        );
        attributes.namespace.clear();
        attributes.name.clear();
        attributes.subresource.clear();
        attributes.resource = "deployments".to_owned();
        attributes.group = "apps".to_owned();
        attributes.verb = "list".to_owned();
        assert_eq!(
            forbidden(&attributes, "").message(),
            r#"deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" at the cluster scope"#
        );
        attributes.is_resource = false;
        attributes.path = "/metrics".to_owned();
        attributes.verb = "get".to_owned();
        let error = forbidden(&attributes, "why");
        assert_eq!(
            error.message(),
            r#"forbidden: User "jane" cannot get path "/metrics": why"#
        );
        assert_eq!(error.code(), 403);
    }
}
