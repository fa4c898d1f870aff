//! Nobody may give what they do not have: checks on writes of roles and bindings.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use minato_meta::{ApiError, GroupResource};
use serde_json::Value;

use super::RbacAuthorizer;
use super::rule::{Rule, describe, missing};
use crate::union::MASTERS;
use crate::{Attributes, Authorizer, Decision, UserInfo};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A create or update of a Role, ClusterRole, RoleBinding or ClusterRoleBinding.
#[derive(Debug, Clone, Copy)]
pub struct RoleWrite<'a> {
    /// The requester.
    pub user: &'a UserInfo,
    /// Plural resource name, such as `clusterroles`.
    pub resource: &'a str,
    /// Namespace; empty for the cluster-wide kinds.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The object as stored; `Null` for creates.
    pub old: &'a Value,
}

impl RoleWrite<'_> {
    fn unchanged(&self, fields: &[&str]) -> bool {
        !self.old.is_null() && fields.iter().all(|f| self.object.get(f) == self.old.get(f))
    }

    fn attributes(&self, verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        Attributes {
            user: self.user.clone(),
            verb: verb.to_owned(),
            is_resource: true,
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }
}

async fn allowed(authorizer: &dyn Authorizer, attributes: &Attributes) -> bool {
    matches!(authorizer.authorize(attributes).await, Decision::Allow(_))
}

impl RbacAuthorizer {
    /// Checks that the requester of a write holds all that it would grant, or is allowed to `escalate` (roles) or
    /// `bind` (bindings). `authorizer` is the server's whole chain. Other resources pass.
    ///
    /// # Errors
    /// 403 with what the requester lacks; 404 for a binding to a role that does not exist.
    pub async fn check_write(&self, write: &RoleWrite<'_>, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        if write.user.in_group(MASTERS) {
            return Ok(());
        }
        match write.resource {
            "roles" | "clusterroles" => self.check_role(write, authorizer).await,
            "rolebindings" | "clusterrolebindings" => self.check_binding(write, authorizer).await,
            _ => Ok(()),
        }
    }

    async fn check_role(&self, write: &RoleWrite<'_>, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        if write.unchanged(&["rules", "aggregationRule"]) {
            return Ok(());
        }
        let escalate = write.attributes("escalate", write.resource, write.namespace, write.name);
        if allowed(authorizer, &escalate).await {
            return Ok(());
        }
        let mut rules = rules_of(write.object);
        if write.object.get("aggregationRule").is_some_and(|a| !a.is_null()) {
            // Whatever will be labelled that way, by whomever.
            rules = everything();
        }
        self.confirm(write, &rules)
    }

    async fn check_binding(&self, write: &RoleWrite<'_>, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        if write.unchanged(&["roleRef", "subjects"]) {
            return Ok(());
        }
        let text = |field: &str| write.object.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let (resource, namespace) = match text("/roleRef/kind") {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", write.namespace),
        };
        let role = text("/roleRef/name");
        // The power to bind a cluster role may be held in the binding's namespace alone.
        let bind = write.attributes("bind", resource, write.namespace, role);
        if allowed(authorizer, &bind).await {
            return Ok(());
        }
        self.catch_up();
        let rules = self.index.read().role(namespace, role);
        match rules {
            Some(rules) => self.confirm(write, &rules),
            None => Err(ApiError::not_found(&GroupResource::new(GROUP, resource), role)),
        }
    }

    fn confirm(&self, write: &RoleWrite<'_>, wanted: &[Rule]) -> Result<(), ApiError> {
        let (owned, _) = self.rules(write.user, write.namespace);
        let owned: Vec<&Rule> = owned.iter().flat_map(|rules| rules.iter()).collect();
        let missing = missing(&owned, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = write.user.groups.iter().map(|g| format!("{g:?}")).collect();
        Err(ApiError::forbidden(
            &GroupResource::new(GROUP, write.resource),
            write.name,
            format!(
                "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
                write.user.name,
                groups.join(" "),
                describe(&missing)
            ),
        ))
    }
}

fn rules_of(object: &Value) -> Vec<Rule> {
    let rules = object.get("rules").and_then(Value::as_array);
    let parsed = rules.into_iter().flatten().map(|r| serde_json::from_value(r.clone()));
    // A rule that cannot be read grants nothing; validation has refused it anyway.
    parsed.filter_map(Result::ok).collect()
}

fn everything() -> Vec<Rule> {
    let all = || vec!["*".to_owned()];
    vec![
        Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Rule::default()
        },
        Rule {
            verbs: all(),
            non_resource_urls: all(),
            ..Rule::default()
        },
    ]
}
