//! Approves what kubelets ask for, if they may have it.

use std::sync::Arc;

use minato_api::k8s::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use minato_api::k8s::certificates::v1::CertificateSigningRequest;
use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_pki::CertificateRequest;
use minato_runtime::{Controller, Informer, Next, ObjectKey};

use super::approve::{Kind, Reserved, may_serve, recognize, unknown_to_cloud};
use super::{APPROVED, is_pending, text, with_condition};
use crate::error::{Error, Result, is_not_found};
use crate::{Context, ops};

/// Pending requests for serving certificates, by the user who asks.
const SERVING: &str = "pending-serving";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

struct Approver {
    cx: Context,
    requests: Informer<CertificateSigningRequest>,
    nodes: Informer<Node>,
}

/// Starts the approver.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Approver {
        cx: cx.clone(),
        requests: cx.informer(),
        nodes: cx.informer(),
    });
    this.requests.add_index(SERVING, |request| {
        let waits = request.spec.signer_name == SERVING_SIGNER && is_pending(request);
        waits
            .then(|| request.spec.username.clone().unwrap_or_default())
            .into_iter()
            .collect()
    });
    let requests = this.requests.clone();
    Controller::new("certificate-approver", &cx.runtime)
        .watch_primary(&this.requests)
        .watch(&this.nodes, move |change, add| {
            // The addresses that a request waits for may have come.
            let addresses = |node: &Node| node.status.as_ref().and_then(|status| status.addresses.clone());
            let node = change.object();
            if change.old().is_some_and(|old| addresses(old) == addresses(node)) {
                return;
            }
            let user = format!("system:node:{}", ops::name(&node.metadata));
            for request in requests.indexed(SERVING, &user) {
                add(ObjectKey::of(request.as_ref()));
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl Approver {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(request) = self.requests.get(&key).filter(|request| is_pending(request)) else {
            return Ok(Next::Done);
        };
        let Ok(asked) = CertificateRequest::parse(&text(&request)) else {
            // Nobody can sign it; a human may deny it, and the cleaner takes it away.
            return Ok(Next::Done);
        };
        let Some(kind) = recognize(&request.spec, &asked) else {
            return Ok(Next::Done);
        };
        if let Kind::Serving(name) = &kind {
            let Some(node) = self.nodes.get_cluster(name) else {
                return Ok(Next::Done);
            };
            let config = &self.cx.config;
            let reserved = Reserved {
                services: &config.service_cidrs,
                names: &config.reserved_names,
                addresses: &config.reserved_addresses,
            };
            if let Err(why) = may_serve(&asked, &node, &self.nodes.list(), &reserved) {
                tracing::info!(request = %key, node = name, why, "serving certificate not approved");
                return Ok(Next::Done);
            }
            if let Some(cloud) = &config.cloud_addresses {
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                let known = cloud.addresses(name, id).await.map_err(Error::Invalid)?;
                if let Some(odd) = unknown_to_cloud(&asked, &known) {
                    // What the cloud knows may change, and nothing would tell us: try again, ever less often.
                    return Err(Error::Invalid(format!("the cloud does not know {odd} of node {name}")));
                }
            }
        }
        if let Some(subresource) = kind.permission()
            && !self.allowed(&request, subresource).await?
        {
            // A binding may come that allows it: try again, ever less often.
            return Err(Error::Invalid(format!(
                "the requester may not create certificatesigningrequests/{subresource}"
            )));
        }
        let approved = with_condition(&request, APPROVED, "AutoApproved", kind.message());
        let api: Api<CertificateSigningRequest> = Api::all(self.cx.client().clone());
        let sent = api
            .replace_subresource("approval", &key.name, &PostParams::default(), &approved)
            .await;
        match sent {
            Ok::<CertificateSigningRequest, _>(_) => Ok(Next::Done),
            Err(error) if is_not_found(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }

    async fn allowed(&self, request: &CertificateSigningRequest, subresource: &str) -> Result<bool> {
        let spec = &request.spec;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: spec.username.clone(),
                uid: spec.uid.clone(),
                groups: spec.groups.clone(),
                extra: spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    verb: Some("create".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.cx.client().clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
