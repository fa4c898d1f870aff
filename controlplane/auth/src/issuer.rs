//! Issuing service-account tokens: what the API server asks of whoever holds the signing key.

use async_trait::async_trait;
use minato_meta::ApiError;

/// An object that a token lives and dies with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundObject {
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    /// Its name, in the service account's namespace (nodes: in none).
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A request for a token. The API server has checked everything in it.
/// Source: <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSpec {
    /// Namespace of the service account.
    pub namespace: String,
    /// Its name.
    pub service_account: String,
    /// Its uid.
    pub service_account_uid: String,
    /// Whom the token is for; empty for the API server itself.
    pub audiences: Vec<String>,
    /// How long it lasts, in seconds.
    pub expiration_seconds: u64,
    /// What it is bound to.
    pub bound: Option<BoundObject>,
    /// Name and uid of the node on which a bound pod runs.
    pub node: Option<(String, String)>,
}

/// A signed token.
#[derive(Clone)]
pub struct IssuedToken {
    /// The JWT.
    pub token: String,
    /// When it ends.
    pub expires: jiff::Timestamp,
    /// Whom it is for.
    pub audiences: Vec<String>,
}

/// Signs service-account tokens.
#[async_trait]
pub trait TokenIssuer: Send + Sync + 'static {
    /// A new token.
    ///
    /// # Errors
    /// The signer is not available.
    async fn issue(&self, spec: &TokenSpec) -> Result<IssuedToken, ApiError>;

    /// `/.well-known/openid-configuration`, by which others learn to verify these tokens; `None` when it is not served.
    fn openid_configuration(&self) -> Option<serde_json::Value> {
        None
    }

    /// `/openid/v1/jwks`, the keys that go with it.
    fn openid_keys(&self) -> Option<serde_json::Value> {
        None
    }
}
