//! Several authenticators as one, and several authorizers as one.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::ApiError;

use crate::{Attributes, Authenticated, Authenticator, Authorizer, Credentials, Decision, RulesFor, UserInfo};

/// Group of everybody who proved an identity.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody else.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Asks authenticators in turn; the first that establishes an identity wins. A refusal by one does not keep the next
/// from recognising the request; it stands when none does.
pub struct UnionAuthenticator {
    members: Vec<Arc<dyn Authenticator>>,
}

impl UnionAuthenticator {
    /// In this order.
    pub fn new(members: Vec<Arc<dyn Authenticator>>) -> Self {
        Self { members }
    }
}

#[async_trait]
impl Authenticator for UnionAuthenticator {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        let mut refusal = None;
        for member in &self.members {
            match member.authenticate(credentials).await {
                Ok(Some(mut authenticated)) => {
                    let user = &mut authenticated.user;
                    if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
                        user.groups.push(AUTHENTICATED.to_owned());
                    }
                    return Ok(Some(authenticated));
                }
                Ok(None) => {}
                Err(error) => refusal = Some(error),
            }
        }
        refusal.map_or(Ok(None), Err)
    }
}

/// Asks authorizers in turn; the first that allows or denies decides.
pub struct UnionAuthorizer {
    members: Vec<Arc<dyn Authorizer>>,
}

impl UnionAuthorizer {
    /// In this order.
    pub fn new(members: Vec<Arc<dyn Authorizer>>) -> Self {
        Self { members }
    }
}

#[async_trait]
impl Authorizer for UnionAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reasons = Vec::new();
        for member in &self.members {
            match member.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> RulesFor {
        let mut all = RulesFor::default();
        for member in &self.members {
            let rules = member.rules_for(user, namespace).await;
            all.resource_rules.extend(rules.resource_rules);
            all.non_resource_rules.extend(rules.non_resource_rules);
            all.incomplete |= rules.incomplete;
        }
        all
    }
}

/// Allows members of `system:masters` everything, so that no role can lock the operator out.
#[derive(Debug, Default, Clone, Copy)]
pub struct MastersAuthorizer;

/// The group that no role can take anything from.
pub(crate) const MASTERS: &str = "system:masters";

#[async_trait]
impl Authorizer for MastersAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        if attributes.user.in_group(MASTERS) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    async fn rules_for(&self, user: &UserInfo, _namespace: &str) -> RulesFor {
        use minato_meta::api::k8s::authorization::v1::{NonResourceRule, ResourceRule};
        if !user.in_group(MASTERS) {
            return RulesFor::default();
        }
        let all = || vec!["*".to_owned()];
        RulesFor {
            resource_rules: vec![ResourceRule {
                verbs: all(),
                api_groups: Some(all()),
                resources: Some(all()),
                resource_names: None,
            }],
            non_resource_rules: vec![NonResourceRule {
                verbs: all(),
                non_resource_urls: Some(all()),
            }],
            incomplete: false,
        }
    }
}
