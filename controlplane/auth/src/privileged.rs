//! Authorization without roles: the privileged group may do everything, everybody else only what discovery needs.

use async_trait::async_trait;

use crate::{Attributes, Authorizer, Decision, RulesFor, UserInfo};

/// The group that no role can take anything from.
const MASTERS: &str = "system:masters";

/// Allows members of `system:masters` everything, authenticated users discovery and their own reviews, and anybody the
/// health and version paths. For servers whose tenants have no roles, and for tests; whatever else is asked is refused.
#[derive(Debug, Default, Clone, Copy)]
pub struct PrivilegedGroupAuthorizer;

#[async_trait]
impl Authorizer for PrivilegedGroupAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let allow = |why: &str| Decision::Allow(why.to_owned());
        if attributes.user.in_group(MASTERS) {
            return allow("member of system:masters");
        }
        if !attributes.is_resource && attributes.verb == "get" {
            let first = attributes.path.trim_matches('/').split('/').next().unwrap_or_default();
            if matches!(first, "healthz" | "livez" | "readyz" | "version") {
                return allow("public information");
            }
            if matches!(first, "api" | "apis" | "openapi") && attributes.user.in_group("system:authenticated") {
                return allow("discovery");
            }
        }
        let own_review = attributes.verb == "create"
            && matches!(
                (attributes.group.as_str(), attributes.resource.as_str()),
                ("authentication.k8s.io", "selfsubjectreviews")
                    | (
                        "authorization.k8s.io",
                        "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
                    )
            );
        if own_review && attributes.user.in_group("system:authenticated") {
            return allow("about oneself");
        }
        Decision::NoOpinion(String::new())
    }

    async fn rules_for(&self, user: &UserInfo, _namespace: &str) -> RulesFor {
        // The privileged group has no rules to list: everything is allowed.
        RulesFor {
            incomplete: user.in_group(MASTERS),
            ..RulesFor::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decide(group: &str, is_resource: bool, verb: &str, path: &str) -> bool {
        let attributes = Attributes {
            user: UserInfo {
                name: "u".into(),
                groups: vec![group.into()],
                ..UserInfo::default()
            },
            verb: verb.into(),
            is_resource,
            resource: if is_resource { "pods".into() } else { String::new() },
            path: path.into(),
            ..Attributes::default()
        };
        matches!(
            PrivilegedGroupAuthorizer.authorize(&attributes).await,
            Decision::Allow(_)
        )
    }

    #[tokio::test]
    async fn only_the_privileged_group_may_touch_resources() {
        assert!(decide("system:masters", true, "delete", "").await);
        assert!(!decide("system:authenticated", true, "get", "").await);
        assert!(decide("system:authenticated", false, "get", "/apis").await);
        assert!(!decide("system:unauthenticated", false, "get", "/apis").await);
        assert!(decide("system:unauthenticated", false, "get", "/readyz").await);
        assert!(!decide("system:authenticated", false, "post", "/apis").await);
        assert!(!decide("system:authenticated", false, "get", "/metrics").await);
    }
}
