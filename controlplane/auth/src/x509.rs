//! Identity by client certificate. Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>.

use async_trait::async_trait;
use minato_meta::ApiError;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Authenticated, Authenticator, Credentials, UserInfo};

/// Takes the common name as the user and each organization as a group. The TLS layer has verified the chain.
#[derive(Debug, Default, Clone, Copy)]
pub struct X509Authenticator;

#[async_trait]
impl Authenticator for X509Authenticator {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Authenticated>, ApiError> {
        let Some(leaf) = credentials.client_certificates.first() else {
            return Ok(None);
        };
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| ApiError::unauthorized())?;
        let subject = certificate.subject();
        let name = subject
            .iter_common_name()
            .next()
            .and_then(|cn| cn.as_str().ok())
            .unwrap_or_default();
        if name.is_empty() {
            return Err(ApiError::unauthorized());
        }
        let mut groups: Vec<String> = subject
            .iter_organization()
            .filter_map(|o| o.as_str().ok().map(str::to_owned))
            .collect();
        groups.push("system:authenticated".to_owned());
        let user = UserInfo {
            name: name.to_owned(),
            groups,
            ..UserInfo::default()
        };
        Ok(Some(Authenticated {
            user,
            audiences: Vec::new(),
        }))
    }
}
