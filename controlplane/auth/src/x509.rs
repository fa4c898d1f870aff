//! Identity by client certificate. Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>.

use async_trait::async_trait;
use minato_meta::ApiError;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Authenticated, Authenticator, Credentials, UserInfo};

/// The attribute that holds a user's uid.
const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// Takes the common name as the user and each organization as a group. The TLS layer has verified the chain.
#[derive(Debug, Default, Clone, Copy)]
pub struct X509Authenticator;

/// The identity that a certificate states; `None` when it names nobody, or cannot be read.
fn identity(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    // A connection may outlive its certificate.
    if !certificate.validity().is_valid() {
        return None;
    }
    let subject = certificate.subject();
    let mut user = UserInfo::default();
    for name in subject.iter_common_name() {
        // Of several the last one counts, as Go reads them.
        user.name = name.as_str().ok()?.to_owned();
    }
    for group in subject.iter_organization() {
        user.groups.push(group.as_str().ok()?.to_owned());
    }
    for attribute in subject.iter_attributes() {
        let is_uid = attribute
            .attr_type()
            .iter()
            .is_some_and(|arcs| arcs.eq(UID.iter().copied()));
        if is_uid {
            if !user.uid.is_empty() {
                return None;
            }
            user.uid = attribute.as_str().ok()?.to_owned();
        }
    }
    user.groups.push(crate::union::AUTHENTICATED.to_owned());
    (!user.name.is_empty()).then_some(user)
}

#[async_trait]
impl Authenticator for X509Authenticator {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        let Some(leaf) = credentials.client_certificates.first() else {
            return Ok(None);
        };
        let user = identity(leaf).ok_or_else(ApiError::unauthorized)?;
        Ok(Some(Authenticated {
            user,
            audiences: Vec::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minato_pki::ClusterPki;
    use std::time::Duration;

    #[tokio::test]
    async fn subject_becomes_user_and_groups() {
        let pki = ClusterPki::generate("c").unwrap();
        let (chain, _) = pki.issue_client("jane", &["dev", "ops"]).unwrap().to_tls().unwrap();
        let credentials = Credentials {
            client_certificates: &chain,
            bearer_token: None,
        };
        let user = X509Authenticator
            .authenticate(&credentials)
            .await
            .unwrap()
            .unwrap()
            .user;
        assert_eq!(user.name, "jane");
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.uid, "");
        let nobody = Credentials::default();
        assert!(X509Authenticator.authenticate(&nobody).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn nameless_expired_and_malformed_certificates_are_refused() {
        let pki = ClusterPki::generate("c").unwrap();
        let (nameless, _) = pki.issue_client("", &["system:masters"]).unwrap().to_tls().unwrap();
        let expired = pki.issue_client_for("jane", &[], Duration::ZERO).unwrap();
        let (expired, _) = expired.to_tls().unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        for chain in [nameless, expired, vec![vec![0x30, 3, 1, 2].into()]] {
            let credentials = Credentials {
                client_certificates: &chain,
                bearer_token: None,
            };
            assert!(X509Authenticator.authenticate(&credentials).await.is_err());
        }
    }
}
