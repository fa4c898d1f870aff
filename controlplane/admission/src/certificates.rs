//! `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`: who may approve and sign for which
//! signer, and what nobody may ask for.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_auth::{Attributes, Authorizer, Decision};
use minato_meta::ApiError;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::objects::text;
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

fn is_requests(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group == GROUP && request.resource.resource == "certificatesigningrequests"
}

fn refuse(request: &AdmissionRequest<'_>, why: String) -> ApiError {
    ApiError::forbidden(&request.resource.group_resource(), request.name, why)
}

/// Whether the requester may do something for a signer: by its name, or for all signers of its domain.
async fn may(authorizer: &dyn Authorizer, request: &AdmissionRequest<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let attributes = Attributes {
            user: request.user.clone(),
            verb: verb.to_owned(),
            is_resource: true,
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..Attributes::default()
        };
        if matches!(authorizer.authorize(&attributes).await, Decision::Allow(_)) {
            return true;
        }
    }
    false
}

/// Who approves must be allowed to for the signer.
pub struct CertificateApproval {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateApproval {
    /// Asks `authorizer`, which is the server's whole chain.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

#[async_trait]
impl AdmissionPlugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_requests(request) && request.operation == Operation::Update && request.subresource == "approval"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let signer = text(request.old_object, "/spec/signerName");
        if may(self.authorizer.as_ref(), request, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName \"{signer}\"");
        Err(refuse(request, why))
    }
}

/// Who signs must be allowed to for the signer.
pub struct CertificateSigning {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateSigning {
    /// Asks `authorizer`, which is the server's whole chain.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

#[async_trait]
impl AdmissionPlugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_requests(request) && request.operation == Operation::Update && request.subresource == "status"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let old = request.old_object;
        let same = |pointer: &str| request.object.pointer(pointer) == old.pointer(pointer);
        if same("/status/certificate") && same("/status/conditions") {
            return Ok(());
        }
        let signer = text(old, "/spec/signerName");
        if may(self.authorizer.as_ref(), request, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName \"{signer}\"");
        Err(refuse(request, why))
    }
}

/// Nobody becomes a cluster's master by a certificate that it signs itself.
pub struct CertificateSubjectRestriction;

/// The organizations that a PEM-encoded request names; what cannot be read is for validation to refuse.
fn organizations(encoded: &str) -> Option<Vec<String>> {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &parsed.certification_request_info.subject;
    let names = subject.iter_organization().filter_map(|name| name.as_str().ok());
    Some(names.map(str::to_owned).collect())
}

#[async_trait]
impl AdmissionPlugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_requests(request) && request.operation == Operation::Create && request.subresource.is_empty()
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if text(&request.object, "/spec/signerName") != CLIENT_SIGNER {
            return Ok(());
        }
        let encoded = request.object.pointer("/spec/request").and_then(Value::as_str);
        let organizations = encoded.and_then(organizations).unwrap_or_default();
        if organizations.iter().any(|name| name == MASTERS) {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            return Err(refuse(request, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use minato_auth::{RulesFor, UserInfo};
    use serde_json::json;

    use super::*;
    use crate::tests::{create, update_part};

    /// Allows one thing.
    struct Only(&'static str, &'static str);

    #[async_trait]
    impl Authorizer for Only {
        async fn authorize(&self, attributes: &Attributes) -> Decision {
            if (attributes.verb.as_str(), attributes.name.as_str()) == (self.0, self.1) {
                Decision::Allow(String::new())
            } else {
                Decision::NoOpinion(String::new())
            }
        }
        async fn rules_for(&self, _: &UserInfo, _: &str) -> RulesFor {
            RulesFor::default()
        }
    }

    const CSRS: (&str, &str) = (GROUP, "certificatesigningrequests");

    #[tokio::test]
    async fn approvers_and_signers_need_leave_for_the_signer() {
        let old = json!({"spec": {"signerName": "example.com/a"}});
        let new = json!({"spec": {"signerName": "example.com/a"}, "status": {"certificate": "x"}});
        let approve = |name: &'static str| CertificateApproval::new(Arc::new(Only("approve", name)));
        for (name, allowed) in [
            ("example.com/a", true),
            ("example.com/*", true),
            ("example.com/b", false),
        ] {
            let result = update_part(&approve(name), CSRS, "approval", new.clone(), old.clone()).await;
            assert_eq!(result.is_ok(), allowed, "{result:?}");
        }
        let sign = CertificateSigning::new(Arc::new(Only("sign", "other/a")));
        let said = update_part(&sign, CSRS, "status", new, old.clone()).await.unwrap_err();
        assert!(
            said.ends_with("user not permitted to sign requests with signerName \"example.com/a\""),
            "{said}"
        );
        assert!(update_part(&sign, CSRS, "status", old.clone(), old).await.is_ok());
    }

    #[tokio::test]
    async fn nobody_asks_to_be_a_master() {
        let request = |organization: &str, signer: &str| {
            let mut parameters = rcgen::CertificateParams::default();
            let name = &mut parameters.distinguished_name;
            name.push(rcgen::DnType::OrganizationName, organization);
            let key = rcgen::KeyPair::generate().unwrap();
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
            create(
                &CertificateSubjectRestriction,
                CSRS,
                json!({"spec": {"signerName": signer, "request": encoded}}),
            )
        };
        assert!(request("people", CLIENT_SIGNER).await.is_ok());
        assert!(request(MASTERS, "example.com/a").await.is_ok());
        let said = request(MASTERS, CLIENT_SIGNER).await.unwrap_err();
        assert!(
            said.ends_with("signer with system:masters group is not allowed"),
            "{said}"
        );
    }
}
