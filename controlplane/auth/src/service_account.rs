//! Service-account tokens: issued for TokenRequest, recognised as bearer tokens, and documented for relying parties.
//!
//! Sources: <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/>,
//! <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery>.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use minato_meta::{ApiError, ClusterReader, GroupResource, parse_time};
use parking_lot::{Mutex, RwLock};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::jws::{self, KeyError, SigningKey, VerifyingKey};
use crate::{Authenticated, Authenticator, Credentials, IssuedToken, TokenIssuer, TokenSpec, UserInfo};

/// The issuer of a cluster that names none.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Clocks may differ by this much, and a deleted object's tokens live on for as long; upstream's figure.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// Tokens whose signature is remembered as good.
const REMEMBERED: usize = 4096;

/// Who signs a cluster's tokens, and with what.
pub struct ServiceAccountKeys {
    /// The first one issues; tokens of the others are still taken.
    issuers: Vec<String>,
    /// Audiences that the API server counts as itself.
    audiences: Vec<String>,
    signing: SigningKey,
    /// The signing key's public half first.
    verifying: Vec<VerifyingKey>,
}

impl ServiceAccountKeys {
    /// Of a private key and the public keys of earlier ones, all PEM. Audiences default to the issuers.
    ///
    /// # Errors
    /// Keys that are not ECDSA P-256 or RSA.
    pub fn new(
        issuers: Vec<String>,
        audiences: Vec<String>,
        signing_key: &str,
        verifying_keys: &[String],
    ) -> Result<Self, KeyError> {
        let signing = SigningKey::from_pem(signing_key)?;
        let mut verifying = vec![signing.public().clone()];
        for text in verifying_keys {
            let key = VerifyingKey::from_pem(text)?;
            if verifying.iter().all(|k| k.id != key.id) {
                verifying.push(key);
            }
        }
        let issuers = if issuers.is_empty() {
            vec![DEFAULT_ISSUER.to_owned()]
        } else {
            issuers
        };
        Ok(Self {
            audiences: if audiences.is_empty() {
                issuers.clone()
            } else {
                audiences
            },
            issuers,
            signing,
            verifying,
        })
    }

    fn issuer(&self) -> &str {
        self.issuers.first().map_or(DEFAULT_ISSUER, String::as_str)
    }

    /// `/.well-known/openid-configuration`. `jwks_uri` is where [`ServiceAccountKeys::key_set`] is served; by default
    /// under the issuer.
    pub fn discovery_document(&self, jwks_uri: Option<&str>) -> Value {
        let issuer = self.issuer();
        let jwks_uri = jwks_uri.map_or_else(
            || format!("{}/openid/v1/jwks", issuer.trim_end_matches('/')),
            str::to_owned,
        );
        let mut algorithms: Vec<Value> = Vec::new();
        for key in &self.verifying {
            let algorithm = key.jwk()["alg"].clone();
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        json!({
            "issuer": issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        json!({"keys": self.verifying.iter().map(VerifyingKey::jwk).collect::<Vec<_>>()})
    }

    fn claims(&self, spec: &TokenSpec, now: Timestamp) -> (Value, Timestamp, Vec<String>) {
        let audiences = if spec.audiences.is_empty() {
            self.audiences.clone()
        } else {
            spec.audiences.clone()
        };
        let seconds = i64::try_from(spec.expiration_seconds).unwrap_or(i64::MAX);
        let expires = now
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        let mut private = json!({
            "namespace": spec.namespace,
            "serviceaccount": {"name": spec.service_account, "uid": spec.service_account_uid},
        });
        if let Some(bound) = &spec.bound {
            private[bound.kind.to_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        if let Some((name, uid)) = &spec.node {
            private["node"] = json!({"name": name, "uid": uid});
        }
        let claims = json!({
            "iss": self.issuer(),
            "sub": user_name(&spec.namespace, &spec.service_account),
            "aud": audiences,
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "exp": expires.as_second(),
            "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": private,
        });
        (claims, expires, audiences)
    }
}

#[async_trait]
impl TokenIssuer for ServiceAccountKeys {
    async fn issue(&self, spec: &TokenSpec) -> Result<IssuedToken, ApiError> {
        let (claims, expires, audiences) = self.claims(spec, Timestamp::now());
        let token = self.signing.sign(&claims).map_err(|error| {
            tracing::error!(%error, "cannot sign a token");
            ApiError::internal("the token could not be signed")
        })?;
        Ok(IssuedToken {
            token,
            expires,
            audiences,
        })
    }

    fn openid_configuration(&self) -> Option<Value> {
        Some(self.discovery_document(None))
    }

    fn openid_keys(&self) -> Option<Value> {
        Some(self.key_set())
    }
}

/// User name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

#[derive(Debug, Clone, Deserialize)]
struct Claims {
    #[serde(default)]
    sub: String,
    #[serde(default)]
    aud: OneOrMany,
    exp: i64,
    #[serde(default)]
    nbf: i64,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    private: Private,
}

#[derive(Debug, Clone, Deserialize)]
struct Private {
    namespace: String,
    serviceaccount: Reference,
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

#[derive(Debug, Clone, Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Why a token is refused; for logs.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Token(#[from] jws::TokenError),
    #[error("the claims are not those of a service-account token")]
    Claims,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    Early,
    #[error("the token is for other audiences")]
    Audience,
    #[error("{0} no longer exists, or is another one of that name")]
    Gone(&'static str),
    #[error("the cluster cannot be read: {0}")]
    Read(ApiError),
}

/// Recognises service-account tokens.
pub struct ServiceAccountAuthenticator {
    keys: Arc<RwLock<Arc<ServiceAccountKeys>>>,
    reader: Arc<dyn ClusterReader>,
    /// Digests of tokens whose signature was found good, with their claims: signatures are dear, and clients send the
    /// same token with every request. Everything else is checked every time.
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
    accounts: GroupResource,
    pods: GroupResource,
    secrets: GroupResource,
    nodes: GroupResource,
}

impl ServiceAccountAuthenticator {
    /// Of a cluster's keys and objects.
    pub fn new(keys: Arc<ServiceAccountKeys>, reader: Arc<dyn ClusterReader>) -> Self {
        Self {
            keys: Arc::new(RwLock::new(keys)),
            reader,
            verified: Mutex::new(HashMap::new()),
            accounts: GroupResource::new("", "serviceaccounts"),
            pods: GroupResource::new("", "pods"),
            secrets: GroupResource::new("", "secrets"),
            nodes: GroupResource::new("", "nodes"),
        }
    }

    /// Takes other keys from now on (after a rotation).
    pub fn replace_keys(&self, keys: Arc<ServiceAccountKeys>) {
        *self.keys.write() = keys;
        self.verified.lock().clear();
    }

    /// The claims of a token that one of our keys signed; `None` when it is somebody else's token.
    fn verified(&self, token: &str) -> Result<Option<Arc<Claims>>, Refusal> {
        let hash: [u8; 32] = digest(&SHA256, token.as_bytes())
            .as_ref()
            .try_into()
            .map_err(|_| Refusal::Claims)?;
        if let Some(claims) = self.verified.lock().get(&hash) {
            return Ok(Some(claims.clone()));
        }
        let keys = self.keys.read().clone();
        let Ok(claims) = jws::unverified_claims(token) else {
            return Ok(None);
        };
        let issuer = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        if !keys.issuers.iter().any(|i| i == issuer) {
            return Ok(None);
        }
        jws::verify(token, &keys.verifying)?;
        let claims: Claims = serde_json::from_value(claims).map_err(|_| Refusal::Claims)?;
        let claims = Arc::new(claims);
        let mut verified = self.verified.lock();
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(hash, claims.clone());
        Ok(Some(claims))
    }

    async fn check(&self, claims: &Claims, now: Timestamp) -> Result<Authenticated, Refusal> {
        if claims.exp <= now.as_second() {
            return Err(Refusal::Expired);
        }
        if claims.nbf > (now + LEEWAY).as_second() {
            return Err(Refusal::Early);
        }
        let Private {
            namespace,
            serviceaccount: account,
            ..
        } = &claims.private;
        let name = user_name(namespace, &account.name);
        if name != claims.sub {
            return Err(Refusal::Claims);
        }
        let keys = self.keys.read().clone();
        let audiences: Vec<String> = claims
            .aud
            .as_slice()
            .iter()
            .filter(|a| keys.audiences.contains(a))
            .cloned()
            .collect();
        if audiences.is_empty() {
            return Err(Refusal::Audience);
        }
        self.alive(&self.accounts, Some(namespace), account, now, "the service account")
            .await?;
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        };
        if !claims.jti.is_empty() {
            add("credential-id", &format!("JTI={}", claims.jti));
        }
        if let Some(pod) = &claims.private.pod {
            self.alive(&self.pods, Some(namespace), pod, now, "the pod").await?;
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        if let Some(secret) = &claims.private.secret {
            self.alive(&self.secrets, Some(namespace), secret, now, "the secret")
                .await?;
        }
        if let Some(node) = &claims.private.node {
            // A pod's node is told, not checked: the pod decides. A token bound to a node itself lives with it.
            if claims.private.pod.is_none() {
                self.alive(&self.nodes, None, node, now, "the node").await?;
            }
            add("node-name", &node.name);
            add("node-uid", &node.uid);
        }
        let user = UserInfo {
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            name,
            uid: account.uid.clone(),
            extra,
        };
        Ok(Authenticated { user, audiences })
    }

    /// Whether the object is there with the same uid, and not long deleted.
    async fn alive(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        wanted: &Reference,
        now: Timestamp,
        what: &'static str,
    ) -> Result<(), Refusal> {
        let alive = |json: &[u8]| {
            #[derive(Deserialize)]
            struct Object {
                metadata: Meta,
            }
            #[derive(Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct Meta {
                #[serde(default)]
                uid: String,
                deletion_timestamp: Option<String>,
            }
            let Ok(object) = serde_json::from_slice::<Object>(json) else {
                return false;
            };
            let deleted = object.metadata.deletion_timestamp.as_deref().map(parse_time);
            let lives = match deleted {
                None => true,
                Some(Ok(at)) => at + LEEWAY > now,
                Some(Err(_)) => false,
            };
            object.metadata.uid == wanted.uid && lives
        };
        if let Some(cached) = self.reader.get(resource, namespace, &wanted.name)
            && alive(&cached.json)
        {
            return Ok(());
        }
        // The cache may not have seen the newest object of that name yet.
        let read = self.reader.get_consistent(resource, namespace, &wanted.name).await;
        match read.map_err(Refusal::Read)? {
            Some(object) if alive(&object.json) => Ok(()),
            _ => Err(Refusal::Gone(what)),
        }
    }
}

#[async_trait]
impl Authenticator for ServiceAccountAuthenticator {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        let Some(token) = credentials.bearer_token else {
            return Ok(None);
        };
        let refuse = |refusal: &Refusal| {
            tracing::debug!(%refusal, "service-account token refused");
            ApiError::unauthorized()
        };
        let claims = match self.verified(token) {
            Ok(Some(claims)) => claims,
            Ok(None) => return Ok(None),
            Err(refusal) => return Err(refuse(&refusal)),
        };
        match self.check(&claims, Timestamp::now()).await {
            Ok(authenticated) => Ok(Some(authenticated)),
            Err(Refusal::Read(error)) => Err(error),
            Err(refusal) => Err(refuse(&refusal)),
        }
    }
}
