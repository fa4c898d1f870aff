//! Writes of roles and bindings: nobody may give what they do not have.
//!
//! Upstream checks this in the storage of the four kinds; here it is a plug-in, so that the generic handlers know no kind.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_auth::{Authorizer, RbacAuthorizer, RoleWrite};
use minato_meta::ApiError;

use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCES: &[&str] = &["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

/// Refuses roles and bindings that grant more than their writer holds.
pub struct RoleEscalation {
    rbac: Arc<RbacAuthorizer>,
    authorizer: Arc<dyn Authorizer>,
}

impl RoleEscalation {
    /// Compares with the rules that `rbac` knows; `authorizer` is the server's whole chain, which is asked for the verbs
    /// `escalate` and `bind`.
    pub fn new(rbac: Arc<RbacAuthorizer>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { rbac, authorizer }
    }
}

#[async_trait]
impl AdmissionPlugin for RoleEscalation {
    fn name(&self) -> &'static str {
        "RoleEscalation"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.resource.group == GROUP
            && RESOURCES.contains(&request.resource.resource.as_str())
            && matches!(request.operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let write = RoleWrite {
            user: request.user,
            resource: &request.resource.resource,
            namespace: request.namespace,
            name: request.name,
            object: &request.object,
            old: request.old_object,
        };
        self.rbac.check_write(&write, self.authorizer.as_ref()).await
    }
}
