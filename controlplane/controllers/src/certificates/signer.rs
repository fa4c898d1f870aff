//! Signs approved requests of the built-in signers.

use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::certificates::v1::CertificateSigningRequest;
use minato_api::k8s_openapi::ByteString;
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_pki::{Authority, CertificateRequest, Signer};
use minato_runtime::{Controller, Informer, Next, ObjectKey};

use super::approve::usages;
use super::{APPROVED, DENIED, FAILED, has, is_issued, text, with_condition};
use crate::Context;
use crate::error::{Error, Result, is_not_found};

/// Nobody gets a certificate for less.
const SHORTEST: Duration = Duration::from_secs(600);

struct Signing {
    cx: Context,
    authority: Arc<Authority>,
    requests: Informer<CertificateSigningRequest>,
}

/// Starts the signer, if there is an authority.
pub(crate) fn start(cx: &Context) {
    let Some(authority) = cx.config.authority.clone() else {
        return;
    };
    let this = Arc::new(Signing {
        cx: cx.clone(),
        authority,
        requests: cx.informer(),
    });
    Controller::new("certificate-signer", &cx.runtime)
        .watch_primary(&this.requests)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// How long a certificate lives: as long as asked for, within bounds.
pub(super) fn life(asked: Option<i32>, longest: Duration) -> Duration {
    match asked.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) => Duration::from_secs(seconds).max(SHORTEST).min(longest),
        None => longest,
    }
}

impl Signing {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(request) = self.requests.get(&key) else {
            return Ok(Next::Done);
        };
        if is_issued(&request) || !has(&request, APPROVED) || has(&request, DENIED) || has(&request, FAILED) {
            return Ok(Next::Done);
        }
        let Ok(signer) = request.spec.signer_name.parse::<Signer>() else {
            return Ok(Next::Done);
        };
        let changed = match self.sign(&request, signer)? {
            Ok(certificate) => {
                let mut changed = CertificateSigningRequest::clone(&request);
                changed.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
                changed
            }
            Err(refusal) => {
                tracing::info!(request = %key, signer = signer.name(), refusal, "request not signed");
                with_condition(&request, FAILED, "SignerValidationFailure", refusal)
            }
        };
        let api: Api<CertificateSigningRequest> = Api::all(self.cx.client().clone());
        match api.replace_status(&key.name, &PostParams::default(), &changed).await {
            Ok(_) => Ok(Next::Done),
            Err(error) if is_not_found(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// The certificate, or why there will never be one.
    fn sign(&self, request: &CertificateSigningRequest, signer: Signer) -> Result<std::result::Result<String, String>> {
        let asked = match CertificateRequest::parse(&text(request)) {
            Ok(asked) => asked,
            Err(error) => return Ok(Err(format!("unable to parse the request: {error}"))),
        };
        let Some(usages) = usages(&request.spec) else {
            return Ok(Err("a usage is not known".to_owned()));
        };
        if let Err(refusal) = signer.check(&asked, &usages) {
            return Ok(Err(refusal.to_string()));
        }
        let life = life(request.spec.expiration_seconds, self.cx.config.longest_certificate);
        let signed = self.authority.sign_request(&asked, &usages, life);
        signed
            .map(Ok)
            .map_err(|error| Error::Invalid(format!("signing: {error}")))
    }
}
