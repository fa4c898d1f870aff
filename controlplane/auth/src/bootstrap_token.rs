//! Bootstrap tokens: what a new node proves itself with before it has a certificate.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use minato_meta::{ApiError, ClusterReader, GroupResource, Revision, parse_time};
use serde::Deserialize;

use crate::{Authenticated, Authenticator, Credentials, UserInfo};

const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Recognises bootstrap tokens by their Secrets.
pub struct BootstrapTokenAuthenticator {
    reader: Arc<dyn ClusterReader>,
    secrets: GroupResource,
}

#[derive(Deserialize)]
struct Secret {
    metadata: Meta,
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    data: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    deletion_timestamp: Option<String>,
}

impl Secret {
    fn text(&self, key: &str) -> Option<String> {
        let bytes = STANDARD.decode(self.data.get(key)?).ok()?;
        String::from_utf8(bytes).ok()
    }
}

impl BootstrapTokenAuthenticator {
    /// Of a cluster's objects.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self {
            reader,
            secrets: GroupResource::new("", "secrets"),
        }
    }

    async fn secret(&self, id: &str) -> Result<Option<Secret>, ApiError> {
        let name = format!("{PREFIX}{id}");
        let mut found = self.reader.get(&self.secrets, Some(NAMESPACE), &name);
        // Guesses must not cost a read of the store each; only a cache that is not filled yet is passed by.
        if found.is_none() && self.reader.revision(&self.secrets) == Revision(0) {
            found = self
                .reader
                .get_consistent(&self.secrets, Some(NAMESPACE), &name)
                .await?;
        }
        Ok(found.and_then(|object| serde_json::from_slice(&object.json).ok()))
    }
}

/// The parts of `[a-z0-9]{6}.[a-z0-9]{16}`; nothing else is a bootstrap token.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    rest.len() <= 256
        && rest.as_bytes().last().is_some_and(end)
        && rest.bytes().all(|b| end(&b) || b == b':' || b == b'-')
}

/// The identity that a Secret gives to a token, if the token is right and the Secret in order.
fn identity(secret: &Secret, id: &str, given: &str, now: Timestamp) -> Result<UserInfo, &'static str> {
    use subtle::ConstantTimeEq;
    if secret.r#type != SECRET_TYPE {
        return Err("the Secret is of another type");
    }
    if secret.metadata.deletion_timestamp.is_some() {
        return Err("the Secret is being deleted");
    }
    let wanted = secret.text("token-secret").unwrap_or_default();
    if wanted.len() != 16 || !bool::from(wanted.as_bytes().ct_eq(given.as_bytes())) {
        return Err("the secret does not match");
    }
    if secret.text("token-id").as_deref() != Some(id) {
        return Err("the Secret is of another token");
    }
    if let Some(expiration) = secret.text("expiration").filter(|e| !e.is_empty()) {
        match parse_time(&expiration) {
            Ok(at) if at > now => {}
            Ok(_) => return Err("the token has expired"),
            Err(_) => return Err("the expiration is no time"),
        }
    }
    if secret.text("usage-bootstrap-authentication").as_deref() != Some("true") {
        return Err("the token is not for authentication");
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = secret.text("auth-extra-groups").unwrap_or_default();
    for group in extra.split(',').filter(|g| !g.is_empty()) {
        if !is_group(group) {
            return Err("an extra group is not one of bootstrappers");
        }
        if !groups.iter().any(|g| g == group) {
            groups.push(group.to_owned());
        }
    }
    Ok(UserInfo {
        name: format!("system:bootstrap:{id}"),
        groups,
        ..UserInfo::default()
    })
}

#[async_trait]
impl Authenticator for BootstrapTokenAuthenticator {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        let Some((id, given)) = credentials.bearer_token.and_then(split) else {
            return Ok(None);
        };
        let Some(secret) = self.secret(id).await? else {
            return Ok(None);
        };
        match identity(&secret, id, given, Timestamp::now()) {
            Ok(user) => Ok(Some(Authenticated {
                user,
                audiences: Vec::new(),
            })),
            Err(why) => {
                tracing::debug!(token_id = id, why, "bootstrap token refused");
                Err(ApiError::unauthorized())
            }
        }
    }
}
