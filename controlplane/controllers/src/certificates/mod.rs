//! Certificate signing requests: three controllers that approve, sign and clear away.
//!
//! ```text
//!  request ── approver (is it a kubelet, may it?) ── signer (does it keep the signer's rules?) ── certificate
//!                                                                            └ condition Failed
//!  cleaner: all of them go in time
//! ```
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

mod approve;
mod approver;
mod clean;
mod signer;
#[cfg(test)]
mod tests;

use minato_api::k8s::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use minato_api::meta_v1::Time;

pub(crate) use approver::start as start_approver;
pub(crate) use clean::start as start_cleaner;
pub(crate) use signer::start as start_signer;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

fn has(request: &CertificateSigningRequest, type_: &str) -> bool {
    let conditions = request
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == type_ && condition.status == "True")
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// Neither approved nor denied nor anything else: somebody still has to decide.
fn is_pending(request: &CertificateSigningRequest) -> bool {
    !is_issued(request) && ![APPROVED, DENIED, FAILED].iter().any(|type_| has(request, type_))
}

/// The PEM text that was sent.
fn text(request: &CertificateSigningRequest) -> String {
    String::from_utf8_lossy(&request.spec.request.0).into_owned()
}

fn with_condition(
    request: &CertificateSigningRequest,
    type_: &str,
    reason: &str,
    message: impl Into<String>,
) -> CertificateSigningRequest {
    let mut changed = request.clone();
    let now = Time(jiff::Timestamp::now());
    let status = changed.status.get_or_insert_default();
    status
        .conditions
        .get_or_insert_default()
        .push(CertificateSigningRequestCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
        });
    changed
}
