//! Who asks.

use async_trait::async_trait;
use minato_auth::{Credentials, UserInfo};
use minato_meta::ApiError;

use super::{Next, Stage};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::ConnectionInfo;

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Establishes the requester. In-process clients carry a [`UserInfo`] extension, which no network request can have;
/// everybody else must prove who they are. Without any credentials the requester is anonymous, and the authorizer
/// decides how little that allows; wrong credentials are 401.
pub(crate) struct Authentication;

#[async_trait]
impl Stage for Authentication {
    async fn handle(&self, mut request: ApiRequest, next: Next<'_>) -> Response {
        if let Some(user) = request.extensions.remove::<UserInfo>() {
            request.user = user;
            return next.run(request).await;
        }
        let connection = request.extensions.get::<ConnectionInfo>().cloned().unwrap_or_default();
        let authorization = request.header("authorization").map(str::to_owned);
        let websocket_token = websocket_bearer_token(&request);
        let bearer_token = match authorization.as_deref().map(|value| value.split_once(' ')) {
            Some(Some((scheme, token))) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
            _ => websocket_token.as_deref(),
        };
        let credentials = Credentials {
            client_certificates: &connection.client_certificates,
            bearer_token,
        };
        match next.server.deps().authenticator.authenticate(&credentials).await {
            Ok(Some(authenticated)) => {
                request.user = authenticated.user;
                // Nothing behind this stage needs the secret, and proxied requests must not carry it on.
                request.headers.remove("authorization");
            }
            Ok(None) if bearer_token.is_none() && authorization.is_none() => {
                request.user = UserInfo {
                    name: ANONYMOUS.to_owned(),
                    groups: vec![UNAUTHENTICATED.to_owned()],
                    ..UserInfo::default()
                };
            }
            Ok(None) => return response::error(&ApiError::unauthorized()),
            Err(error) => {
                tracing::debug!(
                    path = request.info.path,
                    reason = error.message(),
                    "authentication failed"
                );
                return response::error(&ApiError::unauthorized());
            }
        }
        next.run(request).await
    }
}

/// Browsers cannot set headers on WebSockets; they pass the token as a sub-protocol.
fn websocket_bearer_token(request: &ApiRequest) -> Option<String> {
    use base64_url::decode;
    let protocols = request.header("sec-websocket-protocol")?;
    let encoded = protocols
        .split(',')
        .find_map(|p| p.trim().strip_prefix("base64url.bearer.authorization.k8s.io."))?;
    String::from_utf8(decode(encoded)?).ok()
}

mod base64_url {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
        URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
    }
}
