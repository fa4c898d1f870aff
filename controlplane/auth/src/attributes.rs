//! The vocabulary shared by authenticators, authorizers, admission and audit.

use std::collections::BTreeMap;

use async_trait::async_trait;
use minato_meta::ApiError;
use rustls_pki_types::CertificateDer;

/// A requester, as an authenticator established it.
/// Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/>.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name, such as `system:node:n1`.
    pub name: String,
    /// Unique id, empty when the authenticator gives none.
    pub uid: String,
    /// Group names, `system:authenticated` among them.
    pub groups: Vec<String>,
    /// Further facts, such as `authentication.kubernetes.io/pod-name`.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Who a service account is to the API server.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: crate::user_name(namespace, name),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                crate::AUTHENTICATED.to_owned(),
            ],
            ..Self::default()
        }
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What a connection and its request offer as proof of identity.
#[derive(Debug, Clone, Default)]
pub struct Credentials<'a> {
    /// The verified client certificate chain, leaf first; empty when none was presented.
    pub client_certificates: &'a [CertificateDer<'static>],
    /// The token of an `Authorization: Bearer` header (or of the WebSocket sub-protocol that stands in for it).
    pub bearer_token: Option<&'a str>,
}

/// An established identity.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Who.
    pub user: UserInfo,
    /// Audiences the credential is valid for; empty when the authenticator knows none.
    pub audiences: Vec<String>,
}

/// Turns credentials into an identity.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// `Ok(None)` when the credentials are not of this authenticator's kind.
    ///
    /// # Errors
    /// The credentials are of this kind, and wrong. The client is told no more than 401.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError>;
}

/// What a request wants to do, as an authorizer sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The requester.
    pub user: UserInfo,
    /// API verb (`get`, `list`, `watch`, `create`, …) or lower-case HTTP method for non-resource requests.
    pub verb: String,
    /// Whether this is a request for a resource.
    pub is_resource: bool,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Object name, empty for collections.
    pub name: String,
    /// URL path, for non-resource requests.
    pub path: String,
    /// Field selector of a list or watch, as text; empty for none.
    pub field_selector: String,
}

/// An authorizer's answer; the text is the reason shown to the user or written to the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allow(String),
    /// Refuse, whatever later authorizers would say.
    Deny(String),
    /// Ask the next one; refused when it was the last.
    NoOpinion(String),
}

/// Decides whether a request may go ahead.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// The decision for one request.
    async fn authorize(&self, attributes: &Attributes) -> Decision;

    /// All rules that hold for a user in a namespace, for SelfSubjectRulesReview: resource rules, non-resource rules,
    /// and whether the list is incomplete. Each is the JSON of `authorization.k8s.io/v1` `ResourceRule`/`NonResourceRule`.
    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> RulesFor;
}

/// The answer of [`Authorizer::rules_for`].
#[derive(Debug, Clone, Default)]
pub struct RulesFor {
    /// `authorization.k8s.io/v1` ResourceRule objects.
    pub resource_rules: Vec<minato_meta::api::k8s::authorization::v1::ResourceRule>,
    /// `authorization.k8s.io/v1` NonResourceRule objects.
    pub non_resource_rules: Vec<minato_meta::api::k8s::authorization::v1::NonResourceRule>,
    /// Whether an authorizer could not enumerate all rules.
    pub incomplete: bool,
}
