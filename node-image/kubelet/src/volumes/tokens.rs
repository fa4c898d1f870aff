//! Service-account tokens for projected volumes: asked of the API server, bound to the pod, renewed in time.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use minato_api::k8s::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;

use crate::client::api_message;
use crate::context::Context;
use crate::pods::{PodId, spec};

/// Renewed after this much, however long it lives.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// A refused renewal is tried again after this.
const RETRY: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, Clone)]
struct Token {
    token: String,
    refresh: Timestamp,
    expires: Timestamp,
}

/// The tokens of one pod, by volume and path.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<(String, String), Token>);

impl Tokens {
    /// When the first of them is due.
    pub(super) fn refresh_at(&self) -> Option<Timestamp> {
        self.0.values().map(|token| token.refresh).min()
    }

    /// The token for a projection: the one at hand, or a new one when that is due.
    pub(super) async fn get(
        &mut self,
        context: &Context,
        pod: &Pod,
        volume: &str,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, String> {
        let key = (volume.to_owned(), source.path.clone());
        let now = Timestamp::now();
        if let Some(token) = self.0.get(&key).filter(|token| now < token.refresh) {
            return Ok(token.token.clone());
        }
        match request(context, pod, source).await {
            Ok(token) => {
                let text = token.token.clone();
                self.0.insert(key, token);
                Ok(text)
            }
            // The old one is still good: better than none.
            Err(error) => match self.0.get_mut(&key).filter(|token| now < token.expires) {
                Some(token) => {
                    tracing::warn!(pod = PodId::of(pod).long(), %error, "renewing a token failed; trying again");
                    token.refresh = now + RETRY;
                    Ok(token.token.clone())
                }
                None => Err(format!("failed to fetch token: {error}")),
            },
        }
    }
}

async fn request(context: &Context, pod: &Pod, source: &ServiceAccountTokenProjection) -> Result<Token, String> {
    let id = PodId::of(pod);
    let account = spec(pod).service_account_name.clone().filter(|name| !name.is_empty());
    let account = account.unwrap_or_else(|| "default".to_owned());
    let audience = source.audience.clone().filter(|audience| !audience.is_empty());
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|audience| vec![audience]),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(id.name.clone()),
                uid: Some(id.uid.clone()),
            }),
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(3600)),
        }),
        ..TokenRequest::default()
    };
    let api: Api<ServiceAccount> = Api::namespaced(context.client.clone(), &id.namespace);
    let answer = api
        .create_token_request(&account, &PostParams::default(), &request)
        .await;
    let status = answer.map_err(|error| api_message(&error))?.status;
    let status = status.unwrap_or_default();
    let (Some(token), Some(expires)) = (status.token, status.expiration_timestamp) else {
        return Err("the answer holds no token".to_owned());
    };
    let (now, expires) = (Timestamp::now(), expires.0);
    // At four fifths of its life.
    let life = expires.duration_since(now) * 4 / 5;
    Ok(Token {
        token,
        refresh: now + life.min(LONGEST),
        expires,
    })
}
