//! Acting as somebody else: `Impersonate-*` headers, each authorised for itself.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use minato_auth::{Attributes, Decision, UserInfo};
use minato_meta::ApiError;

use super::{Next, Stage, authorization};
use crate::request::ApiRequest;
use crate::request_info::percent_decode;
use crate::response::{self, Response};
use crate::server::ApiServer;

const EXTRA_PREFIX: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const AUTHENTICATED: &str = "system:authenticated";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Replaces the requester where allowed.
pub(crate) struct Impersonation;

#[async_trait]
impl Stage for Impersonation {
    async fn handle(&self, mut request: ApiRequest, next: Next<'_>) -> Response {
        let wanted = match wanted(&request) {
            Ok(None) => return next.run(request).await,
            Ok(Some(wanted)) => wanted,
            Err(error) => return response::error(&error),
        };
        if let Err(error) = authorize(next.server, &request.user, &wanted).await {
            return response::error(&error);
        }
        let names: Vec<_> = request
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("impersonate-"))
            .cloned()
            .collect();
        for name in names {
            request.headers.remove(name);
        }
        request.user = complete(wanted);
        next.run(request).await
    }
}

/// What the headers ask for; `None` without any of them.
fn wanted(request: &ApiRequest) -> Result<Option<UserInfo>, ApiError> {
    let all = |name: &str| -> Vec<String> {
        let values = request.headers.get_all(name).iter();
        values.filter_map(|v| v.to_str().ok()).map(str::to_owned).collect()
    };
    let groups = all("impersonate-group");
    let uid = request.header("impersonate-uid").unwrap_or_default().to_owned();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &request.headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA_PREFIX), value.to_str()) {
            extra.entry(percent_decode(key)).or_default().push(value.to_owned());
        }
    }
    match request.header("impersonate-user") {
        Some(name) if !name.is_empty() => Ok(Some(UserInfo {
            name: name.to_owned(),
            uid,
            groups,
            extra,
        })),
        _ if groups.is_empty() && uid.is_empty() && extra.is_empty() => Ok(None),
        _ => Err(ApiError::bad_request(
            "requested impersonation without impersonating a user",
        )),
    }
}

async fn authorize(server: &Arc<ApiServer>, who: &UserInfo, wanted: &UserInfo) -> Result<(), ApiError> {
    let check = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| Attributes {
        user: who.clone(),
        verb: "impersonate".to_owned(),
        is_resource: true,
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let mut checks = Vec::new();
    match service_account(&wanted.name) {
        Some((namespace, name)) => checks.push(check("", "serviceaccounts", "", namespace, name)),
        None => checks.push(check("", "users", "", "", &wanted.name)),
    }
    checks.extend(wanted.groups.iter().map(|g| check("", "groups", "", "", g)));
    if !wanted.uid.is_empty() {
        checks.push(check(AUTHENTICATION_GROUP, "uids", "", "", &wanted.uid));
    }
    for (key, values) in &wanted.extra {
        for value in values {
            checks.push(check(AUTHENTICATION_GROUP, "userextras", key, "", value));
        }
    }
    for attributes in checks {
        match server.deps().authorizer.authorize(&attributes).await {
            Decision::Allow(_) => {}
            Decision::Deny(reason) | Decision::NoOpinion(reason) => {
                return Err(authorization::forbidden(&attributes, &reason));
            }
        }
    }
    Ok(())
}

fn service_account(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// Adds the groups that the impersonated identity would have had by itself.
fn complete(mut user: UserInfo) -> UserInfo {
    if user.groups.is_empty()
        && let Some((namespace, _)) = service_account(&user.name)
    {
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let implied = if user.name == "system:anonymous" {
        "system:unauthenticated"
    } else {
        AUTHENTICATED
    };
    if !user.in_group(implied) && !user.in_group("system:unauthenticated") {
        user.groups.push(implied.to_owned());
    }
    user
}
