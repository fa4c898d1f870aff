//! Who asks, and whether they may. The API server decides: tokens by TokenReview, permissions by SubjectAccessReview on
//! subresources of this node.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/>.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Response, StatusCode, header};
use minato_api::k8s::authentication::v1::{TokenReview, TokenReviewSpec};
use minato_api::k8s::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use minato_api::kube::api::PostParams;
use minato_api::kube::{Api, Client};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Body, answer};
use crate::settings::Settings;

/// Answers remembered of each kind; when full, all are forgotten.
const REMEMBERED: usize = 1024;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct User {
    pub(super) name: String,
    uid: String,
    groups: Vec<String>,
}

/// Answers with the time until which they hold.
struct Remembered<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K: Eq + Hash, V: Clone> Remembered<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn get(&self, key: &K) -> Option<V> {
        let answers = self.0.lock();
        answers
            .get(key)
            .filter(|(_, until)| Instant::now() < *until)
            .map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V, life: Duration) {
        let mut answers = self.0.lock();
        if answers.len() >= REMEMBERED {
            answers.clear();
        }
        answers.insert(key, (value, Instant::now() + life));
    }
}

type Permission = (User, String, &'static str);

pub(super) struct Auth {
    client: Client,
    settings: Arc<Settings>,
    tokens: Remembered<Vec<u8>, Option<User>>,
    permissions: Remembered<Permission, bool>,
}

fn unauthorized() -> Response<Body> {
    answer(StatusCode::UNAUTHORIZED, "Unauthorized")
}

/// User and groups of a client certificate, which was verified already.
fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok().map(str::to_owned))
        .collect();
    Some(User {
        name,
        uid: String::new(),
        groups,
    })
}

/// What of the node a path is about.
pub(super) fn subresource(path: &str) -> &'static str {
    let below = |prefix: &str| path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    match path {
        path if below("/stats") && !path.is_empty() => "stats",
        _ if below("/metrics") => "metrics",
        _ if below("/logs") => "log",
        _ if below("/pods") || below("/runningpods") => "pods",
        _ if below("/healthz") => "healthz",
        _ if below("/configz") => "configz",
        _ => "proxy",
    }
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}

impl Auth {
    pub(super) fn new(client: Client, settings: Arc<Settings>) -> Self {
        Self {
            client,
            settings,
            tokens: Remembered::new(),
            permissions: Remembered::new(),
        }
    }

    /// Who asks; an answer that refuses for nobody known.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&CertificateDer<'_>>,
    ) -> Result<User, Response<Body>> {
        if let Some(user) = certificate.and_then(user_of) {
            return Ok(with_group(user, "system:authenticated"));
        }
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        match token.filter(|token| !token.is_empty()) {
            Some(token) if self.settings.tokens => self.review(token).await,
            None if self.settings.anonymous => Ok(with_group(
                User {
                    name: "system:anonymous".to_owned(),
                    ..User::default()
                },
                "system:unauthenticated",
            )),
            _ => Err(unauthorized()),
        }
    }

    async fn review(&self, token: &str) -> Result<User, Response<Body>> {
        let key = Sha256::digest(token.as_bytes()).to_vec();
        if let Some(known) = self.tokens.get(&key) {
            return known.ok_or_else(unauthorized);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "reviewing a token failed");
            unauthorized()
        })?;
        let status = review.status.unwrap_or_default();
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(|user| User {
                name: user.username.unwrap_or_default(),
                uid: user.uid.unwrap_or_default(),
                groups: user.groups.unwrap_or_default(),
            });
        self.tokens.put(key, user.clone(), self.settings.token_ttl);
        user.ok_or_else(unauthorized)
    }

    /// Whether they may; an answer that refuses if not.
    pub(super) async fn authorize(&self, user: &User, method: &Method, path: &str) -> Result<(), Response<Body>> {
        if self.settings.always_allow {
            return Ok(());
        }
        let verb = verb(method);
        let fine = subresource(path);
        // Who has the whole of `nodes/proxy` needs no part of it.
        for subresource in [fine, "proxy"] {
            match self.may(user, verb, subresource).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(message) => return Err(answer(StatusCode::INTERNAL_SERVER_ERROR, message)),
            }
            if !matches!(fine, "pods" | "healthz" | "configz") {
                break;
            }
        }
        let message = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{fine}])",
            user.name
        );
        Err(answer(StatusCode::FORBIDDEN, message))
    }

    async fn may(&self, user: &User, verb: &str, subresource: &'static str) -> Result<bool, String> {
        let key = (user.clone(), verb.to_owned(), subresource);
        if let Some(known) = self.permissions.get(&key) {
            return Ok(known);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.settings.node_name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "reviewing a permission failed"
            );
            format!(
                "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                user.name
            )
        })?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        let lives = &self.settings.authorization;
        let life = if allowed {
            lives.cache_authorized_ttl
        } else {
            lives.cache_unauthorized_ttl
        };
        self.permissions.put(key, allowed, life);
        Ok(allowed)
    }
}

fn with_group(mut user: User, group: &str) -> User {
    if !user.groups.iter().any(|known| known == group) {
        user.groups.push(group.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_subresources() {
        for (path, expected) in [
            ("/stats/summary", "stats"),
            ("/statsx", "proxy"),
            ("/metrics", "metrics"),
            ("/logs/messages", "log"),
            ("/pods", "pods"),
            ("/containerLogs/a/b/c", "proxy"),
            ("/exec/a/b/c", "proxy"),
        ] {
            assert_eq!(subresource(path), expected, "{path}");
        }
        assert_eq!((verb(&Method::GET), verb(&Method::POST)), ("get", "create"));
    }
}
