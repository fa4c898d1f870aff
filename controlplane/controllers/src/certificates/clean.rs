//! Requests do not stay: who asked has fetched the answer, or never will.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::certificates::v1::CertificateSigningRequest;
use minato_api::kube::Api;
use minato_runtime::{Controller, Informer, Next, ObjectKey};

use super::{APPROVED, DENIED, FAILED, is_issued, is_pending};
use crate::error::Result;
use crate::{Context, ops};

/// From being answered, one way or the other, to deletion.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
/// From being sent, without an answer, to deletion.
const UNANSWERED: SignedDuration = SignedDuration::from_hours(24);

struct Cleaner {
    cx: Context,
    requests: Informer<CertificateSigningRequest>,
}

/// Starts the cleaner.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Cleaner {
        cx: cx.clone(),
        requests: cx.informer(),
    });
    Controller::new("certificate-cleaner", &cx.runtime)
        .watch_primary(&this.requests)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// When a request goes. Approved ones that nobody signed wait for their signer.
pub(super) fn goes_at(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let conditions = request
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut answers: Vec<Timestamp> = Vec::new();
    for condition in conditions {
        let ends = match condition.type_.as_str() {
            DENIED | FAILED => true,
            APPROVED => is_issued(request),
            _ => false,
        };
        let at = condition
            .last_update_time
            .as_ref()
            .or(condition.last_transition_time.as_ref());
        if ends && let Some(at) = at {
            answers.push(at.0 + ANSWERED);
        }
    }
    if is_pending(request) {
        let sent = request.metadata.creation_timestamp.as_ref();
        answers.extend(sent.map(|sent| sent.0 + UNANSWERED));
    }
    answers.into_iter().min()
}

impl Cleaner {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(request) = self.requests.get(&key) else {
            return Ok(Next::Done);
        };
        let Some(at) = goes_at(&request) else {
            return Ok(Next::Done);
        };
        if let Ok(left) = Duration::try_from(at.duration_since(Timestamp::now()))
            && !left.is_zero()
        {
            return Ok(Next::After(left));
        }
        let api: Api<CertificateSigningRequest> = Api::all(self.cx.client().clone());
        ops::delete(&api, &request.metadata).await?;
        Ok(Next::Done)
    }
}
